"""Trees that are edited in one place equal those that are made anew, also as deltas, and git agrees."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from reconciler.git.pack import Pack
from reconciler.git.repository import Mirrors
from reconciler.git.sorted_trees import SortedTree, apply_delta, delta
from reconciler.git.trees import RawEntry, parse_tree
from reconciler.names.objects import File, Signature
from tests.support.git import format_tree, make_repository, run

BOT = Signature("Bot", "bot@example.com", 1_767_225_600)
NAMES = st.sampled_from([b"a", b"a-b", b"a.b", b"a0", b"ab", b"b", b"x" * 300])
ENTRIES = st.builds(
    RawEntry, st.sampled_from([b"40000", b"040000", b"100644"]), NAMES, st.binary(min_size=20, max_size=20)
)


@given(st.lists(ENTRIES, max_size=8), NAMES, st.none() | ENTRIES)
def test_replaced_tree_equals_one_that_is_made_anew(
    entries: list[RawEntry], name: bytes, entry: RawEntry | None
) -> None:
    new = entry._replace(name=name) if entry else None
    before = SortedTree.of(entries)

    after, splice = before.replaced(name, new)

    kept = [each for each in entries if each.name != name]
    assert after.data == format_tree([*kept, *([new] if new else [])])
    assert after.find(name) == new
    assert after == SortedTree.of(parse_tree(after.data))
    if splice is not None:
        assert apply_delta(before.data, delta(len(before.data), splice)) == after.data


@given(st.lists(ENTRIES, unique_by=lambda entry: entry.name, max_size=8), NAMES)
def test_entry_is_found_by_its_name(entries: list[RawEntry], name: bytes) -> None:
    assert SortedTree.of(entries).find(name) == next((e for e in entries if e.name == name), None)


def test_git_reads_many_edits_of_large_tree(tmp_path: Path) -> None:
    """Both ways: each edit beside the others, and each on the one before it."""
    repo = make_repository(tmp_path / "a.git", {f"p{n:03}/Kptfile": "k" for n in range(100)})
    mirror = Mirrors(tmp_path / "cache").open(str(repo.path))
    head = mirror.refs()["refs/heads/main"]
    pack, root = Pack(mirror), mirror.commit(head).tree
    commits, chain = [], root
    for number in range(100):
        files = {"Kptfile": File.of(b"%d" % number)}
        beside = pack.patch_tree(root, f"p{number:03}", files)
        chain = pack.patch_tree(chain, f"q{number:03}/new", files)
        commits += [pack.commit(tree, [head], BOT, BOT, f"{number}\n") for tree in (beside, chain)]
    pack.save(mirror)

    store = mirror.location.directory
    size = sum(path.stat().st_size for path in (store / "objects/pack").glob("*.pack"))
    assert size < 200_000  # 200 trees of at least 3.5 KB, which do not deflate
    listed = [run("ls-tree", "--name-only", commit, cwd=store).split() for commit in commits[-2:]]
    assert list(map(len, listed)) == [100, 200]
    for number, commit in enumerate(commits):
        run("update-ref", f"refs/heads/d{number}", commit, cwd=store)
    run("fsck", "--strict", "--full", cwd=store)
