from pathlib import Path

import pytest

from reconciler.git.repository import Mirrors
from reconciler.names.ids import Oid
from reconciler.policy import Limits
from reconciler.read.contents import fetch_contents
from reconciler.resolve.resolution import BeyondRun, Needs
from tests.support.git import make_repository


def test_each_needed_package_is_fetched_or_refused(tmp_path: Path) -> None:
    one = make_repository(tmp_path / "one", {"p/Kptfile": "1", "p/d/x": "2"})
    two = make_repository(tmp_path / "two", {"q/Kptfile": "1", "bad/l": (b"/etc/passwd", 0o120000)})
    mirrors = Mirrors(tmp_path / "cache")
    urls = [mirrors.open(str(repo.path)).url for repo in (one, two)]
    package, other, bad = one.tree("main", "p"), two.tree("main", "q"), two.tree("main", "bad")
    nowhere = Oid("1" * 40)
    needs = Needs(
        {
            urls[0]: frozenset({package, nowhere}),
            urls[1]: frozenset({other, bad}),
            "unknown": frozenset({Oid("2" * 40)}),
        }
    )

    contents = fetch_contents(needs, mirrors)

    assert {tree: sorted(files) for tree, files in contents.items()} == {
        package: ["Kptfile", "d/x"],
        other: ["Kptfile"],
    }
    assert set(contents.refused) == {nowhere, bad, Oid("2" * 40)}
    assert all(contents.refused.values())
    assert contents[package]["d/x"].data == b"2"


@pytest.mark.parametrize(("package_bytes", "is_read"), [(9, False), (10, True), (11, True)])
def test_package_over_its_byte_limit_is_refused(tmp_path: Path, package_bytes: int, *, is_read: bool) -> None:
    repo = make_repository(tmp_path / "one", {"p/Kptfile": "1234", "p/d/x": "567890"})
    mirrors = Mirrors(tmp_path / "cache")
    tree = repo.tree("main", "p")
    needs = Needs({mirrors.open(str(repo.path)).url: frozenset({tree})})

    contents = fetch_contents(needs, mirrors, Limits(package_bytes=package_bytes))

    assert (tree in contents) is is_read
    assert ("limits.packageBytes" in contents.refused.get(tree, "")) is not is_read


@pytest.mark.parametrize(("run_bytes", "count"), [(3, 0), (4, 1), (7, 1), (8, 2), (9, 2)])
def test_packages_over_the_limit_of_a_run_are_left_to_the_next_one(tmp_path: Path, run_bytes, count) -> None:
    repos = [make_repository(tmp_path / name, {"p/Kptfile": f"{name}."}) for name in ("one", "two")]
    mirrors = Mirrors(tmp_path / "cache")
    trees = {mirrors.open(str(repo.path)).url: frozenset({repo.tree("main", "p")}) for repo in repos}

    contents = fetch_contents(Needs(trees), mirrors, Limits(run_bytes=run_bytes))

    assert len(contents) == count
    assert len(contents.refused) == 2 - count
    assert all("limits.runBytes" in why for why in contents.refused.values())
    assert all(isinstance(why, BeyondRun) for why in contents.refused.values())


def test_equal_files_of_packages_count_once_for_the_limit_of_a_run_and_are_held_once(tmp_path: Path) -> None:
    packages = {f"p{number}/{name}": f"{name}...." for number in range(3) for name in ("Kptfile", "a.yaml")}
    repos = [make_repository(tmp_path / name, {**packages, "p0/own": f"{name}."}) for name in ("one", "two")]
    mirrors = Mirrors(tmp_path / "cache")
    trees = {
        mirrors.open(str(repo.path)).url: frozenset(repo.tree("main", f"p{number}") for number in range(3))
        for repo in repos
    }
    everything = len("Kptfile....") + len("a.yaml....") + len("one.") + len("two.")

    contents = fetch_contents(Needs(trees), mirrors, Limits(run_bytes=everything))

    assert contents.refused == {}
    assert len({id(files["Kptfile"]) for files in contents.values()}) == 1
    assert fetch_contents(Needs(trees), mirrors, Limits(run_bytes=everything - 1)).refused
