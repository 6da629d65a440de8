"""Find the commits that removed manifests: the evidence of deletions (D17, D28)."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import NamedTuple

from reconciler.api.porch import PackageVariant, PackageVariantSet
from reconciler.expand.variants import set_key, variant_key
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.standing import Removal, Removals, Standing
from reconciler.names.ids import ObjectKey, Oid
from reconciler.policy import Policy
from reconciler.read.control import ControlHistory
from reconciler.read.files import is_below
from reconciler.read.manifests import SUFFIXES, declared_objects, parse_manifests


class Declaration(NamedTuple):
    """An object that a file declares."""

    path: str
    key: ObjectKey


def find_removals(
    history: ControlHistory,
    commit: Oid,
    absent: Iterable[tuple[str, ObjectKey]],
    standing: Standing,
    policy: Policy,
) -> Removals:
    """Return the commits that removed recorded objects, which no manifest declares at `commit`.

    A commit removes an object if its parent declares it and it does not, in any file. An object that the
    commit applied last declares was removed after that; the deletion of any other was refused before.

    `absent` are the objects, each after the file that declared it when it was recorded.
    """
    declarations = {Declaration(*item) for item in absent}
    search = _Search(history, policy)
    reference = standing.applied or (None if standing.contains_applied else standing.newest)
    later = search.declared_at(reference, declarations)
    removals: dict[ObjectKey, Removal] = {}
    if later:
        removals |= search.find(commit, later, history.ancestry(reference) if reference else frozenset())
    if standing.was_moved:
        return Removals(removals)  # consent replaces the evidence
    if earlier := declarations - later:
        removals |= search.find(commit, earlier, frozenset())
    missing = {declaration for declaration in declarations if declaration.key not in removals}
    return Removals(removals, {item.key: _unproven(item, is_shallow=history.is_shallow) for item in missing})


def _unproven(declaration: Declaration, *, is_shallow: bool) -> str:
    subject, path = declaration.key.subject, declaration.path
    if is_shallow:
        return (
            f"The history of the control repository is cut off before a commit that removed {subject} from "
            f"{path}. Fetch all of it: `git fetch --unshallow`, or `fetch-depth: 0` in a workflow"
        )
    return (
        f"No commit removed {subject} from {path}, so nothing proves that it may go. "
        "To delete it, declare it again and remove it in a commit of its own"
    )


class _Search:
    """Searches the history for removals; each version of a file is parsed once."""

    def __init__(self, history: ControlHistory, policy: Policy) -> None:
        self._history, self._policy = history, policy
        self._declared: dict[tuple[str, Oid], frozenset[ObjectKey] | None] = {}
        self._added: dict[tuple[Oid, Oid], dict[ObjectKey, str]] = {}

    def declared_at(self, commit: Oid | None, declarations: Iterable[Declaration]) -> set[Declaration]:
        """Return the objects that a commit declares in their files."""
        if commit is None:
            return set()
        declarations = set(declarations)
        self._fetch(commit, {item.path for item in declarations})
        return {item for item in declarations if self._declares(commit, item)}

    def find(
        self, tip: Oid, declarations: Collection[Declaration], hidden: Container[Oid]
    ) -> dict[ObjectKey, Removal]:
        """Return the last removal of each object in the history of `tip` outside of `hidden`."""
        self._prefetch(tip, declarations, hidden)
        transitions = self._transitions(tip, declarations, hidden, self._declares)
        removals: dict[ObjectKey, Removal] = {}
        moved: dict[Oid, set[Declaration]] = defaultdict(set)
        for declaration, (parent, commit) in transitions.items():
            if (parent, commit) not in self._added:
                trees = (self._history.commit(oid).tree for oid in (parent, commit))
                changed = [path for path in self._history.changed_files(*trees) if self._may_declare(path)]
                self._fetch(commit, changed)
                declared = ((path, key) for path in changed for key in self._declared_in(commit, path) or ())
                self._added[parent, commit] = {key: path for path, key in declared}
            path = self._added[parent, commit].get(declaration.key, "")
            if path:
                moved[commit].add(Declaration(path, declaration.key))
            else:
                gone = self._history.blob_at(commit, declaration.path) is None
                last = self._declared_last(parent, declaration)
                removal = Removal(declaration.path, commit, is_file=gone, last=last)
                removals[declaration.key] = self._followed(tip, removal, self._added[parent, commit])
        for commit, elsewhere in moved.items():
            removals |= self.find(tip, elsewhere, self._history.ancestry(commit))
        return removals

    def _followed(self, tip: Oid, removal: Removal, added: Mapping[ObjectKey, str]) -> Removal:
        """Return the removal of the variant that took over the package of a removed one in its commit.

        That one was renamed; without a removal of its new name it is the one of the old name.
        """
        if not isinstance(removal.last, PackageVariant):
            return removal
        for key, path in added.items():
            declaration = Declaration(path, key)
            heir = self._declared_last(removal.commit, declaration)
            if isinstance(heir, PackageVariant) and heir.spec.downstream == removal.last.spec.downstream:
                later = self.find(tip, [declaration], self._history.ancestry(removal.commit))
                return later.get(key, removal)
        return removal

    def _transitions(
        self,
        tip: Oid,
        declarations: Iterable[Declaration],
        hidden: Container[Oid],
        declares: Callable[[Oid, Declaration], bool],
    ) -> dict[Declaration, tuple[Oid, Oid]]:
        """Return for each object the last pair of a commit that declares it and a child that does not.

        A merge removed it only if no parent is without it, or none of those ever had it.
        """
        certain: dict[Declaration, tuple[int, Oid, Oid]] = {}
        merged: dict[Declaration, tuple[int, Oid, Oid]] = {}
        pending: dict[Oid, set[Declaration]] = {} if tip in hidden else {tip: set(declarations)}
        # By time for speed only: a parent that is popped too early is pushed again by its other children.
        heap = [(0, tip)]
        while heap:
            _, oid = heapq.heappop(heap)
            here, commit = pending.pop(oid, set()), self._history.find_commit(oid)
            if not here or commit is None:
                continue
            without: set[Declaration] = set()
            last: dict[Declaration, tuple[int, Oid, Oid]] = {}
            for parent in filter(None, map(self._history.find_commit, commit.parents)):
                changed = self._history.changed_paths(parent.tree, commit.tree, {item.path for item in here})
                had = {item for item in here if item.path in changed and declares(parent.oid, item)}
                last |= dict.fromkeys(had, (commit.committer.time, commit.oid, parent.oid))
                lacking = here - had
                without |= lacking
                if lacking and parent.oid not in hidden:
                    pending.setdefault(parent.oid, set()).update(lacking)
                    heapq.heappush(heap, (-parent.committer.time, parent.oid))
            for item, pair in last.items():
                into = merged if item in without else certain
                into[item] = max(pair, into.get(item, pair))
        return {item: (parent, child) for item, (_, child, parent) in (merged | certain).items()}

    def _may_declare(self, path: str) -> bool:
        return path.endswith(SUFFIXES) and any(is_below(path, below) for below in self._policy.manifests)

    def _declares(self, commit: Oid, declaration: Declaration) -> bool:
        """Tell whether a commit declares an object in its file; a file that cannot be read may."""
        declared = self._declared_in(commit, declaration.path)
        return declared is None or declaration.key in declared

    def _declared_in(self, commit: Oid, path: str) -> frozenset[ObjectKey] | None:
        blob = self._history.blob_at(commit, path)
        if blob is None:
            return frozenset()
        if (path, blob) not in self._declared:
            self._declared[path, blob] = self._parse(path, blob)
        return self._declared[path, blob]

    def _parse(self, path: str, blob: Oid) -> frozenset[ObjectKey] | None:
        self._history.ensure([blob])
        try:
            data = self._history.blob(blob, self._policy.limits.manifest_bytes)
        except PackageRefusedError:
            return None
        return declared_objects(path, data, self._policy)

    def _declared_last(
        self, commit: Oid, declaration: Declaration
    ) -> PackageVariant | PackageVariantSet | None:
        """Return a variant or a set as a commit declares it, None if its manifest is not valid there."""
        blob = self._history.blob_at(commit, declaration.path)
        if blob is None or self._parse(declaration.path, blob) is None:
            return None
        data = self._history.blob(blob, self._policy.limits.manifest_bytes)
        manifests = parse_manifests({declaration.path: data}, self._policy)
        sets = {set_key(declared.key): declared.manifest for declared in manifests.sets}
        variants = {variant_key(declared.key): declared.manifest for declared in manifests.variants}
        return sets.get(declaration.key) or variants.get(declaration.key)

    def _fetch(self, commit: Oid, paths: Iterable[str]) -> None:
        self._history.ensure(filter(None, (self._history.blob_at(commit, path) for path in paths)))

    def _prefetch(self, tip: Oid, declarations: Iterable[Declaration], hidden: Container[Oid]) -> None:
        """Fetch in one batch what the search will most likely parse: the last version of each file."""
        if self._history.is_local:
            return
        there = self._transitions(
            tip,
            declarations,
            hidden,
            lambda commit, declaration: self._history.blob_at(commit, declaration.path) is not None,
        )
        pairs = ((parent, declaration.path) for declaration, (parent, _) in there.items())
        self._history.ensure(filter(None, (self._history.blob_at(*pair) for pair in pairs)))
