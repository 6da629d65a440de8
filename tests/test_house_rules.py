"""Conventions that hold in every file of the project."""

import ast
import configparser
import itertools
import re
import tomllib
from pathlib import Path

import pytest
from vulture import Vulture

from tests.support.asserts import ANY_ERROR, ITSELF, LETTER, LOOP, NOTHING, OR, find_judges, weak_tests

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(p for p in (ROOT / "reconciler").rglob("*.py"))


def test_architecture_describes_every_folder() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    folders = {str(path.parent.relative_to(ROOT / "reconciler")) for path in MODULES} - {"."}
    sections = re.findall(r"^### `(\S+)`\n\n(?=[A-Z])", text, re.MULTILINE)

    assert sorted(sections) == sorted(folders)


def test_architecture_names_modules_that_exist() -> None:
    names = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs/architecture.md").read_text())

    assert names
    for name in names:
        assert (ROOT / "reconciler" / name).is_file(), name


def test_arrows_of_the_architecture_point_down_the_layers() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    lines = contracts["importlinter:contract:layers"]["layers"].strip().splitlines()
    height = {name.strip(): -row for row, line in enumerate(lines) for name in line.split(":")}
    arrows = re.findall(r"^    ([\w &]+) --> ([\w &]+)$", text.partition("flowchart TB")[2], re.MULTILINE)

    assert arrows
    for above, below in arrows:
        for first, second in itertools.product(above.split(" & "), below.split(" & ")):
            assert height[first] > height[second], f"{first} --> {second}"


def test_expressions_of_modules_are_compiled_at_their_first_use() -> None:
    texts = {path.name: path.read_text() for path in MODULES if path.name != "helm_worker.py"}

    assert [
        name for name, text in texts.items() if re.search(r"^\w.* = re\.compile\(", text, re.MULTILINE)
    ] == []


def test_every_adr_fits_one_page() -> None:
    paths = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))
    assert paths
    for path in paths:
        text = path.read_text()
        assert len(text.split()) <= 450, path.name
        assert re.match(r"# \d+\. ", text), path.name


def test_no_absolute_path_of_a_machine_is_committed() -> None:
    for path in [*MODULES, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        assert "/work/" not in path.read_text(), path
        assert "/root/" not in path.read_text(), path


@pytest.mark.slow
def test_every_name_that_vulture_ignores_is_defined_and_has_no_use() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["vulture"]
    strict = Vulture(ignore_decorators=settings["ignore_decorators"])
    strict.scavenge([str(ROOT / path) for path in settings["paths"]], settings["exclude"])
    unused = {item.name for item in strict.get_unused_code(settings["min_confidence"])}

    assert unused
    assert sorted(set(settings["ignore_names"]) - unused) == [], "remove these from pyproject.toml"


TESTS = {path: path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))}
BUILT = re.compile(
    r"(?<![.\w])(Change|DesiredVariant|PackageState|PackageVariantRecord|ResolvedVariant|WriteDraft)\("
)


def test_values_that_stages_hand_on_are_built_in_one_place() -> None:
    """Each has a builder in tests/support: a field that moves is one edit there, not one in thirty files."""
    built = {path for path, text in TESTS.items() if BUILT.search(text)}

    assert [path for path in built if {"support", "bench"}.isdisjoint(path.parts)] == []
    assert built, "some tests build values"


@pytest.mark.slow
def test_every_test_can_fail_for_its_own_reason() -> None:
    trees = {path: ast.parse(text) for path, text in TESTS.items()}
    judges = find_judges(trees.values())

    weak = [
        f"{path.relative_to(ROOT)}:{test.line}: {test.test}: {test.reason}"
        for path, tree in trees.items()
        for test in weak_tests(tree, TESTS[path], judges)
    ]

    assert weak == []


WEAK = {
    "run()": NOTHING,
    "for case in cases:\n        assert case": LOOP,
    "for case in cases:\n        with pytest.raises(KeyError):\n            case()": LOOP,
    "assert first or second": OR,
    "assert 'e' in str(error)": LETTER,
    "assert parse(text) == parse(text)": ITSELF,
    "with pytest.raises(Exception):\n        run()": ANY_ERROR,
}
STRONG = [
    "with pytest.raises(KeyError):\n        run()",
    "verify(run())",
    "assert cases\n    for case in cases:\n        assert case",
    "for case in (1, 2):\n        assert case",
    "for case in CASES.items():\n        assert case",
    "assert first or second  # the second holds where there is no first",
    "assert 'error' in str(error)",
    "assert parse(text) == parse(other)",
]
JUDGE = "def verify(value):\n    assert value\n\n\ndef test_it():\n    {}\n"


@pytest.mark.parametrize("body", WEAK)
def test_weak_test_is_recognised(body: str) -> None:
    source = JUDGE.format(body)
    tree = ast.parse(source)

    assert [test.reason for test in weak_tests(tree, source, find_judges([tree]))] == [WEAK[body]]


@pytest.mark.parametrize("body", STRONG)
def test_strong_test_is_accepted(body: str) -> None:
    source = JUDGE.format(body)
    tree = ast.parse(source)

    assert list(weak_tests(tree, source, find_judges([tree]))) == []
