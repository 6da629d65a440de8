"""Vectors are read from the project and from the folder beside it; in CI none is absent."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import conformance
from tests.support.conformance import BESIDE, NOT_COPIED, OWN, VARIABLE, folders, require_file, vector_files

COPIES = [
    path
    for path in sorted(OWN.rglob("*"))
    if path != OWN / "README.md" and (BESIDE / path.relative_to(OWN)).is_file()
]


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let no folder of vectors be beside the project or named."""
    monkeypatch.setattr(conformance, "BESIDE", Path("/absent"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("CI", raising=False)
    return monkeypatch


@pytest.mark.parametrize("pattern", NOT_COPIED)
def test_vectors_beside_the_project_are_present(pattern: str) -> None:
    require_file(pattern)


def test_copies_equal_the_vectors_beside_the_project() -> None:
    assert [
        path for path in COPIES if path.read_bytes() != (BESIDE / path.relative_to(OWN)).read_bytes()
    ] == []


@pytest.mark.usefixtures("unset")
def test_own_vectors_are_read_without_any_beside() -> None:
    assert len(folders("kpt", "case.json")) >= 79
    assert len(vector_files("porch/*.yaml")) == 6
    assert len(vector_files("semver.yaml") + vector_files("kpt-mergekeys.json")) == 2


@pytest.mark.parametrize("read", [lambda: folders("functions", "x"), lambda: require_file("functions/x")])
def test_absent_vectors_are_an_error_in_ci(unset: pytest.MonkeyPatch, read: Callable[[], object]) -> None:
    unset.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match=rf"{VARIABLE} names \(functions/.*x, in /absent\)"):
        read()


@pytest.mark.usefixtures("unset")
def test_absent_vectors_are_skipped_with_a_message() -> None:
    (parameter,) = folders("functions", "x")

    assert [mark.name for mark in parameter.marks] == ["skip"]
    assert parameter.marks[0].kwargs["reason"].endswith(" (functions/*/x, in /absent)")
    with pytest.raises(pytest.skip.Exception, match=rf"vectors that {VARIABLE} names \(functions/x, "):
        require_file("functions/x")


def test_named_folder_adds_and_replaces_vectors(unset: pytest.MonkeyPatch, tmp_path: Path) -> None:
    new, replaced = tmp_path / "kpt/99-new/case.json", tmp_path / "kpt/02-scalar-conflict/case.json"
    for file in (new, replaced):
        file.parent.mkdir(parents=True)
        file.write_text("{}")
    unset.setenv(VARIABLE, str(tmp_path))
    unset.setenv("CI", "true")

    cases = {parameter.id: parameter.values[0] for parameter in folders("kpt", "case.json")}

    assert cases["99-new"] == new.parent
    assert cases["02-scalar-conflict"] == replaced.parent
    assert cases["04-field-del-up-modified"] == OWN / "kpt/04-field-del-up-modified"
    (parameter,) = folders("functions", "x")
    assert [mark.name for mark in parameter.marks] == ["skip"], "a named folder may have parts only"


def test_named_folder_must_exist(unset: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unset.setenv(VARIABLE, str(tmp_path / "absent"))

    with pytest.raises(pytest.fail.Exception, match="which is no folder"):
        vector_files("kpt/*/case.json")
