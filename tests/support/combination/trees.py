"""Files at a branch or in a tree, read fast: objects are named by their content, so caches are shared."""

from tests.support.git import Repo

_listings: dict[str, dict[str, str]] = {}
_blobs: dict[str, bytes] = {}
MOST_CACHED = 20_000


def listing(repo: Repo, tree: str) -> dict[str, str]:
    """Return the blob id of every file of a tree, by path."""
    if tree not in _listings:
        if len(_listings) > MOST_CACHED:
            _listings.clear()
        entries: dict[str, str] = {}
        _walk(repo, tree, "", entries)
        _listings[tree] = entries
    return _listings[tree]


def _walk(repo: Repo, oid: str, prefix: str, entries: dict[str, str]) -> None:
    for entry in repo.git[oid]:
        if entry.type_str == "tree":
            _walk(repo, str(entry.id), f"{prefix}{entry.name}/", entries)
        else:
            entries[prefix + entry.name] = str(entry.id)


def blob(repo: Repo, oid: str) -> bytes:
    """Return the content of a file."""
    if oid not in _blobs:
        if len(_blobs) > MOST_CACHED:
            _blobs.clear()
        _blobs[oid] = bytes(repo.git[oid].data)
    return _blobs[oid]


def files(repo: Repo, tree: str, below: str = "") -> dict[str, bytes]:
    """Return the files of a tree below a directory, by their path from the root."""
    start = f"{below}/" if below else ""
    return {path: blob(repo, oid) for path, oid in listing(repo, tree).items() if path.startswith(start)}


def text(repo: Repo, tree: str, below: str = "") -> bytes:
    """Return all files of a tree below a directory as one text."""
    return b"\n".join(files(repo, tree, below).values())


def root(repo: Repo, name: str) -> str:
    """Return the id of the root tree of a branch or commit."""
    return str(repo.git[repo.oid(name)].tree_id)


def merged(repo: Repo, source: str, into: str = "main") -> str | None:
    """Return the root tree that merging a branch with git gives; None where git finds conflicts."""
    index = repo.git.merge_commits(repo.oid(into), repo.oid(source))
    return None if index.conflicts else str(index.write_tree(repo.git))
