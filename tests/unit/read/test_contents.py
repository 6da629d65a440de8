from pathlib import Path

from reconciler.git.repository import Mirrors
from reconciler.ids import Oid
from reconciler.read.contents import fetch_contents
from reconciler.resolve.resolution import Needs
from tests.support.git import make_repository


def test_each_needed_package_is_there_or_refused(tmp_path: Path) -> None:
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


def test_a_tree_that_two_repositories_could_give_is_read_once(tmp_path: Path) -> None:
    repos = [make_repository(tmp_path / name, {"p/Kptfile": "1"}) for name in ("one", "two")]
    mirrors = Mirrors(tmp_path / "cache")
    tree = repos[0].tree("main", "p")

    contents = fetch_contents(
        Needs({mirrors.open(str(repo.path)).url: frozenset({tree}) for repo in repos}), mirrors
    )

    assert list(contents) == [tree]
    assert contents.refused == {}
