from pathlib import Path

import pytest

from reconciler.errors import UnavailableError
from reconciler.git.failpoints import LOG_VARIABLE, VARIABLE, Points


def test_nothing_is_armed_by_default() -> None:
    assert Points.of({}) is None


def test_the_nth_point_raises_and_no_other() -> None:
    points = Points.of({VARIABLE: "2:raise"})
    assert points is not None

    points.reach("before git push")
    with pytest.raises(UnavailableError, match="after git push"):
        points.reach("after git push")
    points.reach("before git push")


def test_every_point_is_logged(tmp_path: Path) -> None:
    log = tmp_path / "points"
    points = Points.of({LOG_VARIABLE: str(log)})
    assert points is not None

    points.reach("before git push")
    points.reach("after git push")

    assert log.read_text() == "1 before git push\n2 after git push\n"


@pytest.mark.parametrize("spec", ["kill", "x:kill", "1:explode", "-1:kill"])
def test_a_misspelt_variable_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match=VARIABLE):
        Points.of({VARIABLE: spec})
