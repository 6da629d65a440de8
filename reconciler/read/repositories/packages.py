"""The packages of one view: what main, drafts and tags say of each, brought together."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from reconciler.git.commits import CommitData
from reconciler.git.repository import Mirror
from reconciler.ids import Lifecycle, Oid
from reconciler.inventory import Commit, Draft, PackageRevision, PackageState, UnpublishedRevision
from reconciler.policy import Policy
from reconciler.read.repositories.discovery import (
    PackageAtRef,
    PackageDirectory,
    Survey,
    annotated_workspaces,
    find_package,
    published_revision,
)
from reconciler.read.repositories.drafts import read_deletion, read_draft
from reconciler.read.repositories.kptfiles import HeaderIndex
from reconciler.refs import deletion_ref


@dataclass(frozen=True, slots=True)
class ViewContent:
    """What was found for one view: main's head, the packages on it, the refs that name packages."""

    head: CommitData | None
    survey: Survey
    refs: tuple[PackageAtRef, ...]

    @property
    def mains(self) -> tuple[PackageDirectory, ...]:
        """The packages on main."""
        return self.survey.packages

    def kptfiles(self) -> Iterator[Oid | None]:
        """Yield the Kptfiles whose headers the view shows: those on main and in drafts."""
        yield from (found.kptfile for found in self.mains)
        yield from (found.package.kptfile for found in self.refs if _is_draft(found))


def read_packages(
    mirror: Mirror, material: ViewContent, policy: Policy, index: HeaderIndex
) -> Mapping[str, PackageState]:
    """Return the packages of a view by full path, sorted; the headers of `material` are loaded.

    Raises: UnavailableError if an object that must be here cannot be read.
    """
    mains = {found.path: found for found in material.mains}
    drafts: dict[str, list[Draft]] = {}
    tags: dict[str, list[PackageRevision]] = {}
    main = material.head.oid if material.head else None
    for found in material.refs:
        if _is_draft(found):
            header = index.header(found.package.kptfile)
            draft = read_draft(mirror, found, main, header, policy.commits)
            drafts.setdefault(found.named.path, []).append(draft)
        else:
            tags.setdefault(found.named.path, []).append(published_revision(mirror, found))
    unpublished = _unpublished(mirror, material, tags, policy, index)
    return {
        path: PackageState(
            path,
            main_tree=mains[path].tree if path in mains else None,
            main_header=index.header(mains[path].kptfile) if path in mains else None,
            drafts=tuple(sorted(drafts.get(path, ()), key=lambda d: d.ref)),
            published=tuple(sorted(tags.get(path, ()), key=lambda r: (r.revision, r.ref))),
            unpublished=unpublished.get(path, ()),
            deletion=read_deletion(mirror, deletion_ref(policy.instance, path), main, path, policy.commits),
        )
        for path in sorted({*mains, *drafts, *tags})
    }


def _unpublished(
    mirror: Mirror,
    material: ViewContent,
    tags: Mapping[str, list[PackageRevision]],
    policy: Policy,
    index: HeaderIndex,
) -> Mapping[str, tuple[UnpublishedRevision, ...]]:
    if material.head is None:
        return {}
    ours = f"{policy.instance}/"
    searched = {
        found.path: [(revision.commit.oid, revision.tree) for revision in tags.get(found.path, ())]
        for found in material.mains
        if index.header(found.kptfile).owner.startswith(ours) and found.tree != _latest(tags, found.path)
    }
    states = find_unpublished(mirror, material.head.oid, searched)
    index.load(mirror, (found.kptfile for several in states.values() for _, found in several))
    return {
        path: tuple(
            UnpublishedRevision(
                commit=Commit(c.oid, c.committer.time),
                tree=found.tree,
                header=index.header(found.kptfile),
                workspaces=annotated_workspaces(c, path),
            )
            for c, found in several
        )
        for path, several in states.items()
    }


def _latest(tags: Mapping[str, list[PackageRevision]], path: str) -> Oid | None:
    latest = PackageState(path, published=tuple(tags.get(path, ()))).latest
    return latest.tree if latest else None


def _is_draft(found: PackageAtRef) -> bool:
    return found.named.lifecycle in {Lifecycle.DRAFT, Lifecycle.PROPOSED}


@dataclass(slots=True)
class _Search:
    """One package on its way back through history.

    `stop` is the position of its newest tag on main's first-parent line; `elsewhere` are the
    trees of its tags beside that line: a squashed draft that was tagged on its branch, say.
    """

    stop: int
    elsewhere: frozenset[Oid]
    states: list[tuple[CommitData, PackageDirectory]] = field(default_factory=list)


def find_unpublished(
    mirror: Mirror, head: Oid, tagged: Mapping[str, Iterable[tuple[Oid, Oid]]]
) -> dict[str, list[tuple[CommitData, PackageDirectory]]]:
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
