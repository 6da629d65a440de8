"""Revisions that were merged and not tagged yet: states of packages on main's first-parent history."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.git.commits import CommitData
from reconciler.git.repository import Mirror
from reconciler.ids import Oid
from reconciler.read.discovery import Found, find_package


@dataclass(slots=True)
class _Search:
    """One package on its way back through history.

    `stop` is the position of its newest tag on main's first-parent line; `elsewhere` are the
    trees of its tags beside that line: a squashed draft that was tagged on its branch, say.
    """

    stop: int
    elsewhere: frozenset[Oid]
    states: list[tuple[CommitData, Found]] = field(default_factory=list)


def find_untagged(
    mirror: Mirror, head: Oid, tagged: Mapping[str, Iterable[tuple[Oid, Oid]]]
) -> dict[str, list[tuple[CommitData, Found]]]:
    """Return for each package its states on main since its newest tag, oldest first.

    However a draft was merged (merge, squash, rebase, plain push), main's first-parent line has
    a commit at which the package's tree changed: that commit is the state. A removal ends the
    search: what was before it is another life of the package.

    Args:
        mirror: The repository.
        head: Main's head.
        tagged: The packages to search, and for each the commit and package tree of its tags.
    """
    line = list(mirror.first_parents(head)) if tagged else []
    positions = {commit.oid: index for index, commit in enumerate(line)}
    searches = {path: _start(tags, positions) for path, tags in tagged.items()}
    active = dict(searches)
    for index, commit in enumerate(line):
        active = {path: search for path, search in active.items() if index < search.stop}
        if not active:
            break
        before = line[index + 1] if index + 1 < len(line) else None
        for path in mirror.changed_paths(before.tree if before else None, commit.tree, active):
            found = find_package(mirror, commit.tree, path)
            if found is None or found.tree in active[path].elsewhere:
                del active[path]
                continue
            active[path].states.append((commit, found))
            if before is None or mirror.subtree(before.tree, path) is None:
                del active[path]
    return {path: search.states[::-1] for path, search in searches.items()}


def _start(tags: Iterable[tuple[Oid, Oid]], positions: Mapping[Oid, int]) -> _Search:
    known = list(tags)
    on_line = [positions[commit] for commit, _ in known if commit in positions]
    elsewhere = frozenset(tree for commit, tree in known if commit not in positions)
    return _Search(min(on_line, default=len(positions)), elsewhere)
