"""The picture of cost against size: valid SVG, the same for the same points, readable without seeing it."""

from xml.etree import ElementTree as ET

from tools.bench.chart import growth_svg

SVG = "{http://www.w3.org/2000/svg}"
SERIES = {"plan <full>": [(1000, 0.6), (10_000, 3.8), (100_000, 38)], "git": [(100_000, 0.3), (1000, 0.01)]}


def drawn() -> ET.Element:
    return ET.fromstring(growth_svg(SERIES, "Cost & size"))


def test_every_series_is_a_line_with_its_points_from_left_to_right() -> None:
    lines = [line.attrib["points"].split() for line in drawn().iter(f"{SVG}polyline")]
    places = [[tuple(map(float, place.split(","))) for place in line] for line in lines]

    assert [len(line) for line in places] == [3, 2]
    assert all(line == sorted(line) for line in places)
    assert places[0][0][0] == places[1][0][0] == 70
    # A decade is as long on every part of an axis.
    assert places[0][1][0] - places[0][0][0] == places[0][2][0] - places[0][1][0]


def test_a_reader_who_does_not_see_it_gets_the_figures() -> None:
    (title,) = drawn().findall(f"{SVG}title")
    (about,) = drawn().findall(f"{SVG}desc")

    assert title.text == "Cost & size"
    assert (
        about.text
        == "plan <full>: 0.6 s for 1,000, 38 s for 100,000; git: 0.01 s for 1,000, 0.3 s for 100,000"
    )
