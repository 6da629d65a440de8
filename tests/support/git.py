"""Real repositories for tests, from dicts of files, at fixed times: bare, in place, no working copy.

repo = make_repository(tmp_path / "a.git", {"nginx/Kptfile": "..."})
repo.commit({"nginx/values.yaml": "a: 1", "old.yaml": None}, branch="drafts/nginx/w", start="main")
repo.merge("drafts/nginx/w", how="squash")
repo.tag("nginx/v1")
"""

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pygit2

from reconciler.git.trees import RawEntry
from reconciler.names.ids import Oid
from reconciler.policy import CommitPolicy

EPOCH = 1_767_225_600
STEP_S = 60


class Who(NamedTuple):
    """A committer."""

    name: str
    email: str


PERSON = Who("Kim", "kim@example.com")
BOT = Who(CommitPolicy().name, CommitPolicy().email)
Change = str | bytes | tuple[bytes, int] | None


@dataclass
class Repo:
    """A bare repository that tests write directly; every commit is one step later than the last."""

    path: Path
    time: int = EPOCH
    git: pygit2.Repository = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.git = pygit2.Repository(str(self.path))

    def commit(
        self,
        changes: Mapping[str, Change],
        *,
        branch: str = "main",
        start: str = "",
        who: Who = PERSON,
        message: str = "Change\n",
        time: int | None = None,
    ) -> Oid:
        """Commit on a branch (made from `start` if new): text, bytes, (bytes, mode), None deletes."""
        parent = self.find(f"refs/heads/{branch}") or (self.oid(start) if start else None)
        tree = self._patched(self.git[parent].tree_id if parent else None, changes)
        oid = self.write(tree, [parent] if parent else [], who=who, message=message, time=time)
        self.point(f"refs/heads/{branch}", oid)
        return oid

    def write(
        self,
        tree: str,
        parents: list[Oid],
        *,
        who: Who = PERSON,
        message: str = "Change\n",
        time: int | None = None,
    ) -> Oid:
        """Write a commit of a tree without moving any ref."""
        self.time += STEP_S
        signature = pygit2.Signature(who.name, who.email, self.time if time is None else time, 0)
        oid = self.git.create_commit(
            None,
            signature,
            signature,
            message,
            pygit2.Oid(hex=str(tree)),
            [pygit2.Oid(hex=p) for p in parents],
        )
        return Oid(str(oid))

    def merge(
        self,
        source: str,
        *,
        into: str = "main",
        how: str = "merge",
        who: Who = PERSON,
        time: int | None = None,
    ) -> Oid:
        """Merge as a forge does it: `merge`, `squash` or `rebase` (every commit again)."""
        ours, theirs = self.oid(into), self.oid(source)
        tree = str(self.git.merge_commits(ours, theirs).write_tree(self.git))
        if how == "rebase":
            return self._rebase(ours, theirs, into, who)
        parents = [ours, theirs] if how == "merge" else [ours]
        oid = self.write(tree, parents, who=who, message=f"Merge {source}\n", time=time)
        self.point(f"refs/heads/{into}", oid)
        return oid

    def tag(self, name: str, target: str = "main", *, message: str = "") -> Oid:
        """Tag a commit: lightweight, or annotated if there is a message."""
        oid = self.oid(target)
        if not message:
            self.point(f"refs/tags/{name}", oid)
            return oid
        signature = pygit2.Signature(*PERSON, self.time, 0)
        made = self.git.create_tag(
            name, pygit2.Oid(hex=oid), pygit2.enums.ObjectType.COMMIT, signature, message
        )
        return Oid(str(made))

    def point(self, ref: str, oid: str) -> None:
        """Point a full ref at an object, whatever it pointed at."""
        self.git.references.create(ref, pygit2.Oid(hex=oid), force=True)

    def delete(self, ref: str) -> None:
        """Delete a full ref."""
        self.git.references.delete(ref)

    def find(self, ref: str) -> Oid | None:
        """Return what a full ref points at, None if it does not exist."""
        found = self.git.references.get(ref)
        return Oid(str(found.target)) if found is not None else None

    def oid(self, name: str) -> Oid:
        """Return the commit of a branch, a tag, a full ref or an id."""
        for ref in (name, f"refs/heads/{name}", f"refs/tags/{name}"):
            if ref.startswith("refs/") and (oid := self.find(ref)):
                return Oid(str(self.git[oid].peel(pygit2.Commit).id))
        return Oid(name)

    def refs(self) -> dict[str, str]:
        """Return every ref and what it points at."""
        return {r.name: str(r.target) for r in self.git.references.objects}

    def read(self, name: str, path: str) -> bytes:
        """Return a file at a branch, tag or commit."""
        return bytes(self.git[self.git[self.oid(name)].tree[path].id].data)

    def tree(self, name: str, path: str = "") -> Oid:
        """Return the id of a directory at a branch, tag or commit."""
        tree = self.git[self.oid(name)].tree
        return Oid(str(tree[path].id if path else tree.id))

    def raw_tree(self, *entries: tuple[bytes, bytes, str]) -> Oid:
        """Write a tree of (mode, name, id) exactly as given, hostile or not."""
        data = b"".join(b"%b %b\0%b" % (mode, name, bytes.fromhex(oid)) for mode, name, oid in entries)
        return Oid(str(self.git.odb.write(pygit2.enums.ObjectType.TREE, data)))

    def blob(self, data: bytes) -> Oid:
        """Write a blob."""
        return Oid(str(self.git.create_blob(data)))

    def fsck(self) -> None:
        """Fail if the repository is not sound."""
        run("fsck", "--strict", "--no-dangling", cwd=self.path)

    def _patched(self, tree: pygit2.Oid | None, changes: Mapping[str, Change]) -> str:
        index = pygit2.Index()
        if tree is not None:
            index.read_tree(self.git[tree])
        for path, change in changes.items():
            if change is None:
                index.remove(path)
                continue
            data, mode = change if isinstance(change, tuple) else (change, 0o100644)
            blob = self.git.create_blob(data.encode() if isinstance(data, str) else data)
            index.add(pygit2.IndexEntry(path, blob, pygit2.enums.FileMode(mode)))
        return str(index.write_tree(self.git))

    def _rebase(self, ours: Oid, theirs: Oid, into: str, who: Who) -> Oid:
        base = self.git.merge_base(ours, theirs)
        chain = []
        commit = self.git[theirs]
        while commit.id != base:
            chain.append(commit)
            commit = commit.parents[0]
        for picked in reversed(chain):
            merged = self.git.merge_trees(picked.parents[0].tree, self.git[ours].tree, picked.tree)
            ours = self.write(str(merged.write_tree(self.git)), [ours], who=who, message=picked.message)
        self.point(f"refs/heads/{into}", ours)
        return ours


def make_repository(path: Path, files: Mapping[str, Change] | None = None, *, branch: str = "main") -> Repo:
    """Make a bare repository; its first commit holds `files` if there are any."""
    pygit2.init_repository(str(path), bare=True, initial_head=branch)
    repo = Repo(path)
    if files:
        repo.commit(files, branch=branch, message="Start\n")
    return repo


def kptfile(name: str = "pkg", *, owner: str = "", location: str = "", more: str = "") -> str:
    """Return the text of a small Kptfile, with the ownership annotations if given."""
    notes = {"reconciler.dev/owner": owner, "reconciler.dev/location": location}
    lines = [f"    {key}: {value}\n" for key, value in notes.items() if value]
    annotations = "  annotations:\n" + "".join(lines) if lines else ""
    return f"apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {name}\n{annotations}{more}"


def run(*arguments: str, cwd: Path) -> str:
    """Run git as a person with no configuration of their own; return its output."""
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/nonexistent",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        **{
            f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _IDENTITY.items()
        },
    }
    ran = subprocess.run(
        ["git", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"git {' '.join(arguments)}: {ran.stderr}"
    return ran.stdout


_IDENTITY = {"NAME": PERSON.name, "EMAIL": PERSON.email, "DATE": f"{EPOCH} +0000"}


def format_tree(entries: Iterable[RawEntry]) -> bytes:
    """Return a tree object, its entries in Git's order (a directory sorts with a final slash)."""
    ordered = sorted(entries, key=lambda e: e.name + b"/" if e.is_tree else e.name)
    return b"".join(b"%b %b\0%b" % entry for entry in ordered)
