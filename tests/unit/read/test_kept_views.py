"""Views that were kept: equal to those that are read anew after any change, and never used where damaged."""

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pygit2
import pytest

from reconciler.api.porch import Repository
from reconciler.base.digest import with_digest
from reconciler.base.errors import UnavailableError
from reconciler.git.repository import Mirror, Mirrors
from reconciler.inventory.inventory import Sourced
from reconciler.names.ids import Oid
from reconciler.policy import Policy
from reconciler.read.repositories import kept_views, read_repositories
from reconciler.read.repositories.kept_views import KeptViews, MainContent, ViewFiles, reader_name
from tests.support.git import BOT, Repo, kptfile, make_repository
from tests.unit.read.test_repositories import registration

OURS = kptfile(owner="default/default/pv")
DIRECTORIES = ("", "a", "a/b", "b", "gone")
FILES = {f"{place}/{name}/Kptfile": OURS for place in ("a", "a/b", "b") for name in ("web", "db")}


@dataclass
class Views:
    """Reads the same repository with kept views and without; `spared` counts packages that were not read."""

    root: Path
    repo: Repo
    policy: Policy = field(default_factory=Policy)
    spared: list[int] = field(default_factory=list)

    def kept(self, registrations: Iterable[Sourced[Repository]], **options: Any) -> Any:
        files = ViewFiles(self.root / "cache", reader_name(self.policy.instance), **options)
        return self._read(registrations, files)

    def anew(self, registrations: Iterable[Sourced[Repository]]) -> Any:
        return self._read(registrations, ViewFiles())

    def _read(self, registrations: Iterable[Sourced[Repository]], files: ViewFiles) -> Any:
        mirrors = Mirrors(self.root / "cache")
        return read_repositories([*registrations], mirrors, self.policy, kept_views=files)

    @property
    def file(self) -> Path:
        (file,) = (self.root / "cache/views").iterdir()
        return file


@pytest.fixture
def views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Views:
    views = Views(tmp_path, make_repository(tmp_path / "edge.git", FILES))
    find = KeptViews.find

    def counted(self: KeptViews, *arguments: Any) -> Any:
        before = self.spared
        main = find(self, *arguments)
        views.spared.append(self.spared - before)
        return main

    monkeypatch.setattr(KeptViews, "find", counted)
    return views


def registered(repo: Repo, *directories: str, branch: str = "main") -> list[Sourced[Repository]]:
    return [
        registration(str(repo.path), name=f"v{number}-{branch}", directory=directory, branch=branch)
        for number, directory in enumerate(directories)
    ]


# Whatever happens


class History:
    """Changes of a repository, drawn at random."""

    def __init__(self, repo: Repo, drawn: random.Random) -> None:
        self.repo, self.drawn = repo, drawn
        self.number = 0
        self.changes: list[Callable[[], object]] = [
            self.edit,
            self.edit,
            self.revert,
            self.beside,
            self.add,
            self.remove,
            self.tag,
            self.tag,
            self.delete_tag,
            self.draft,
            self.draft,
            self.merge,
            self.fast_forward,
            self.tag_a_draft,
            self.force,
            self.propose_deletion,
            self.mark_deletion,
            self.link,
        ]

    def change(self) -> None:
        self.number += 1
        with suppress(pygit2.GitError):  # of a merge with a conflict
            self.drawn.choice(self.changes)()

    def _package(self) -> str:
        return self.drawn.choice(sorted(FILES)).removesuffix("/Kptfile")

    def _main(self) -> str:
        return self.drawn.choice(("main", "main", "main", "other"))

    def _has(self, path: str) -> bool:
        return path in self.repo.git[self.repo.oid("main")].tree

    def _refs(self, prefix: str) -> list[str]:
        return sorted(ref for ref in self.repo.refs() if ref.startswith(prefix))

    def edit(self) -> None:
        self.repo.commit({f"{self._package()}/x": str(self.number)}, branch=self._main(), start="main")

    def revert(self) -> None:
        head = self.repo.git[self.repo.oid("main")].peel(pygit2.Commit)
        if head.parents:
            tree = str(head.parents[0].tree_id)
            self.repo.point("refs/heads/main", self.repo.write(tree, [Oid(str(head.id))]))

    def beside(self) -> None:
        self.repo.commit({self.drawn.choice(("NOTES.md", "a/NOTES.md", "a/b/NOTES.md")): str(self.number)})

    def add(self) -> None:
        place = self.drawn.choice(("a/", "a/b/", "b/", ""))
        self.repo.commit({f"{place}new{self.number}/Kptfile": OURS})

    def remove(self) -> None:
        path = f"{self._package()}/Kptfile"
        self.repo.commit({path: None if self._has(path) else OURS})

    def tag(self) -> None:
        self.repo.tag(f"{self._package()}/v{self.drawn.randrange(1, 4)}", self._main_or_older())

    def _main_or_older(self) -> str:
        line = [str(c.id) for c in self.repo.git.walk(pygit2.Oid(hex=self.repo.oid("main")))]
        return self.drawn.choice(line[:4])

    def delete_tag(self) -> None:
        if tags := self._refs("refs/tags/"):
            self.repo.delete(self.drawn.choice(tags))

    def draft(self) -> None:
        path = self._package()
        branch = (
            f"{self.drawn.choice(('drafts', 'proposed'))}/{path}/packagevariant-{self.drawn.randrange(3)}"
        )
        self.repo.commit({f"{path}/x": f"draft {self.number}"}, branch=branch, start="main", who=BOT)

    def merge(self) -> None:
        for ref in self._refs("refs/heads/drafts/")[:1]:
            self.repo.merge(ref, how=self.drawn.choice(("merge", "squash")))
            self.repo.delete(ref)

    def fast_forward(self) -> None:
        for ref in self._refs("refs/heads/drafts/")[:1]:
            self.repo.point("refs/heads/main", self.repo.oid(ref))

    def tag_a_draft(self) -> None:
        for ref in self._refs("refs/heads/drafts/")[:1]:
            self.repo.tag(f"{ref.removeprefix('refs/heads/drafts/').rpartition('/')[0]}/v2", ref)

    def force(self) -> None:
        self.repo.point("refs/heads/main", self._main_or_older())

    def propose_deletion(self) -> None:
        path = self._package()
        self.repo.commit(
            {"NOTES.md": str(self.number)}, branch=f"reconciler/default/delete/{path}", start="main", who=BOT
        )

    def mark_deletion(self) -> None:
        self.repo.point(f"refs/heads/deletionProposed/{self._package()}/v1", self.repo.oid("main"))

    def link(self) -> None:
        path = f"{self._package()}/Kptfile"
        self.repo.commit({path: (OURS.encode(), 0o120000)})


@pytest.mark.parametrize("seed", range(6))
def test_kept_views_are_those_that_are_read_anew_after_any_change(seed: int, views: Views) -> None:
    drawn = random.Random(seed)
    history, differences = History(views.repo, drawn), []
    directories = list(DIRECTORIES)
    for number in range(60):
        for _ in range(drawn.choice((0, 1, 1, 2, 4))):
            history.change()
        if drawn.random() < 0.1:
            directories = sorted(drawn.sample(DIRECTORIES, drawn.randrange(2, len(DIRECTORIES))))
        manifests = registered(views.repo, *directories)
        manifests += registered(views.repo, "a", branch="other") if drawn.random() < 0.8 else []
        if views.kept(manifests) != views.anew(manifests):
            differences.append(number)

    assert differences == []
    assert sum(views.spared) > 60, "hardly anything was kept"


# When a view is used


def use(views: Views, manifests: list[Sourced[Repository]]) -> list[int]:
    """Return how many packages of each view were not read, and compare with those that are read anew."""
    views.spared.clear()
    kept = views.kept(manifests)
    spared = [*views.spared]
    assert kept == views.anew(manifests)
    return spared


def test_only_what_changed_is_read_again(views: Views) -> None:
    manifests = registered(views.repo, "a", "a/b", "b")
    assert use(views, manifests) == [0, 0, 0]
    assert use(views, manifests) == [2, 2, 2]

    views.repo.commit({"a/b/web/x": "1"})
    views.repo.commit({"NOTES.md": "1"})

    assert use(views, manifests) == [0, 0, 2]
    assert use(views, manifests) == [2, 2, 2]


def test_edit_that_was_taken_back_is_read(views: Views) -> None:
    """The tree is the same, and yet there are more unpublished states."""
    manifests = registered(views.repo, "b")
    use(views, manifests)
    start = views.repo.tree("main")

    changed = views.repo.commit({"b/web/x": "1"})
    views.repo.point("refs/heads/main", views.repo.write(start, [changed]))

    assert use(views, manifests) == [0]
    assert len(views.anew(manifests)[manifests[0].key].packages["b/web"].unpublished) == 3


def test_new_directory_of_another_view_is_left_out(views: Views) -> None:
    use(views, registered(views.repo, "a"))

    assert use(views, registered(views.repo, "a", "a/b")) == [0, 0]
    assert use(views, registered(views.repo, "a")) == [0]


def test_another_tag_of_a_package_is_seen(views: Views) -> None:
    manifests = registered(views.repo, "a/b", "b")
    use(views, manifests)

    views.repo.tag("b/web/v1")

    assert use(views, manifests) == [2, 0]
    assert use(views, manifests) == [2, 2]


def test_drafts_are_read_each_time(views: Views) -> None:
    manifests = registered(views.repo, "b")
    use(views, manifests)

    views.repo.commit({"b/web/x": "1"}, branch="drafts/b/web/packagevariant-1", start="main", who=BOT)

    assert use(views, manifests) == [2]
    (view,) = views.kept(manifests).values()
    assert [draft.workspace for draft in view.packages["b/web"].drafts] == ["packagevariant-1"]


def test_main_that_was_rewritten_is_read(views: Views) -> None:
    first = views.repo.oid("main")
    views.repo.commit({"NOTES.md": "1"})
    manifests = registered(views.repo, "b")
    use(views, manifests)

    views.repo.point("refs/heads/main", first)

    assert use(views, manifests) == [0]


def test_views_far_behind_are_read(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    manifests = registered(views.repo, "b")
    monkeypatch.setattr(kept_views, "_MOST_COMMITS", 3)
    for commits, spared in ((0, 0), (2, 2), (3, 0)):
        for number in range(commits):
            views.repo.commit({"NOTES.md": str(number)})
        assert use(views, manifests) == [spared]


def test_history_that_was_fetched_since_is_seen(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a shallow clone, history ended at a commit that is there now."""
    first = views.repo.oid("main")
    views.repo.commit({"b/web/x": "1"})
    manifests = registered(views.repo, "b")
    find, absent = Mirror.find_commit, {first}
    monkeypatch.setattr(Mirror, "find_commit", lambda self, oid: None if oid in absent else find(self, oid))
    assert use(views, manifests) == [0]
    assert use(views, manifests) == [2]

    absent.clear()

    assert use(views, manifests) == [0]


def test_view_with_a_kptfile_that_was_not_there_is_read_again(
    views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = registered(views.repo, "a/b", "b")
    read, absent = Mirror.blob, {views.repo.blob(kptfile("lost").encode())}
    views.repo.commit({"b/web/Kptfile": kptfile("lost")})

    def blob(self: Mirror, oid: Oid, most: int) -> bytes:
        if oid in absent:
            raise UnavailableError("It is not there")
        return read(self, oid, most)

    monkeypatch.setattr(Mirror, "blob", blob)
    assert use(views, manifests) == [0, 0]
    header = views.kept(manifests)[manifests[1].key].packages["b/web"].main_header
    assert header.error == "It is not there"

    absent.clear()

    assert use(views, manifests) == [2, 0]
    assert views.kept(manifests)[manifests[1].key].packages["b/web"].main_header.error == ""


def test_full_run_removes_what_was_kept(views: Views) -> None:
    manifests = registered(views.repo, "a/b", "b")
    use(views, manifests)
    views.spared.clear()

    views.kept(manifests, reads=False)

    assert views.spared == [0, 0]
    assert [*(views.root / "cache/views").iterdir()] == []
    assert use(views, manifests) == [0, 0]
    assert use(views, manifests) == [2, 2]


# Files of the cache


def test_unchanged_views_are_not_written_again(views: Views) -> None:
    manifests = registered(views.repo, "a", "b")
    use(views, manifests)
    before = views.file.stat().st_ino

    use(views, manifests)

    assert views.file.stat().st_ino == before


@pytest.mark.parametrize("seed", range(20))
def test_damaged_file_is_not_used(seed: int, views: Views) -> None:
    drawn = random.Random(seed)
    manifests = registered(views.repo, "a/b", "b")
    use(views, manifests)
    data = bytearray(views.file.read_bytes())
    place = drawn.randrange(len(data))
    data[place] ^= 1 << drawn.randrange(8)
    views.file.write_bytes(data if drawn.random() < 0.5 else data[:place])

    assert use(views, manifests) == [0, 0]


@pytest.mark.parametrize("data", [b"", b"\xc0", b"\x90", b"\x97\xa0\xa0\x80\x90\x90\x90\x90", b"{" * 5000])
def test_file_with_something_else_is_not_used(data: bytes, views: Views) -> None:
    manifests = registered(views.repo, "b")
    use(views, manifests)
    views.file.write_bytes(with_digest(data))

    assert use(views, manifests) == [0]


def test_file_with_numbers_of_nothing_is_not_used(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    manifests = registered(views.repo, "b")
    content = kept_views._content

    def broken(main: MainContent) -> Any:
        whole = content(main)
        packed = [header._replace(lock=7) for header in whole.headers.headers]
        return whole._replace(headers=whole.headers._replace(headers=packed))

    monkeypatch.setattr(kept_views, "_content", broken)
    views.kept(manifests)

    assert use(views, manifests) == [0]


def test_file_of_another_repository_instance_or_program_is_not_used(
    views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = registered(views.repo, "b")
    use(views, manifests)
    other = make_repository(views.root / "other.git", FILES)
    others = registered(other, "b")
    use(views, others)
    paths = sorted((views.root / "cache/views").iterdir())
    paths[0].write_bytes(paths[1].read_bytes())
    assert use(views, manifests) + use(views, others) in ([0, 2], [2, 0])

    views.policy = Policy(instance="another")
    assert use(views, manifests) == [0]
    monkeypatch.setattr(kept_views, "__version__", "0")
    assert use(views, manifests) == [0]


def test_directory_that_cannot_be_written_is_no_error(views: Views) -> None:
    (views.root / "cache").mkdir()
    (views.root / "cache/views").write_text("")
    manifests = registered(views.repo, "b")

    assert use(views, manifests) == use(views, manifests) == [0]
