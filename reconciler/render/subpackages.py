"""Sub-packages with an upstream of their own: the revisions that variants set for them, and their list.

Each upstream side of a variant gets its sub-packages as the variant has them: the new one at the revision
that it sets, the old one at the revision that its package downstream has. All that follows, the merge with
people's edits above all, is that of any package.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import Inventory
from reconciler.krm.values import value_at
from reconciler.krm.yaml import SetValue
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import File, Files, tree_id
from reconciler.policy import OnConflict
from reconciler.records.state import SubpackageRecord
from reconciler.render.charts import BlockedSideError, ChartContents
from reconciler.render.conflicts import conflict_policy, policy_sources
from reconciler.render.kptfile import edit_kptfile, kptfile_value, strip_ownership
from reconciler.render.merging import Contents, base_not_found, merge_three_way, prepare_sides
from reconciler.render.rendered import Blocked
from reconciler.render.update import ConflictPolicy, UpstreamRef
from reconciler.render.update.identifiers import add_identifiers
from reconciler.resolve.resolution import Pin, ResolvedVariant, SubpackagePin, variant_trees


def list_subpackages(files: Files, main: Files) -> tuple[SubpackageRecord, ...]:
    """Return the sub-packages of a package that have an upstream, with the refs that main has them at."""
    before = {directory: ref for directory, _, _, ref, _ in _upstreams(main)} if main else {}
    return tuple(
        SubpackageRecord(directory, repo, package, ref, commit, before.get(directory, ""))
        for directory, repo, package, ref, commit in _upstreams(files)
    )


def _upstreams(files: Files) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield directory, repository, package, ref and commit of every sub-package with an upstream."""
    for path in sorted(path for path in files if path.endswith(f"/{KPTFILE}")):
        value = kptfile_value(files[path].data) if b"upstream" in files[path].data else {}
        texts = [value_at(value, "upstream", "git", name) for name in ("repo", "directory", "ref")]
        lock = [value_at(value, "upstreamLock", "git", name) for name in ("ref", "commit")]
        if all(isinstance(text, str) for text in texts[:2]):
            ref = next((text for text in (lock[0], texts[2]) if isinstance(text, str)), "")
            commit = lock[1] if isinstance(lock[1], str) else ""
            yield path.removesuffix(f"/{KPTFILE}"), texts[0], texts[1].strip("/"), ref, commit


class ComposedUpstreams(NamedTuple):
    """The variants with their upstreams as composed, those trees, and the variants that are blocked."""

    variants: tuple[ResolvedVariant, ...]
    contents: Contents
    blocked: Mapping[ObjectName, Blocked]


def compose_upstreams(
    variants: Sequence[ResolvedVariant], contents: Contents, inventory: Inventory
) -> ComposedUpstreams:
    """Return the variants with the sub-packages that they set in their upstreams; the others are kept."""
    composer = _Composer(contents, inventory)
    blocked: dict[ObjectName, Blocked] = {}
    done = []
    for resolved in variants:
        is_needed = resolved.subpackages and resolved.settled is None
        if is_needed and all(tree in contents for _, tree in variant_trees(resolved)):
            try:
                done.append(composer.compose(resolved))
                continue
            except BlockedSideError as error:
                blocked[resolved.variant.key] = error.why
        done.append(resolved)
    if not composer.made:
        return ComposedUpstreams(tuple(variants), contents, blocked)
    composed = ChartContents(contents)
    composed |= composer.made
    return ComposedUpstreams(tuple(done), composed, blocked)


class _Composer:
    """Composes each upstream once for all variants that have the same sub-packages in it."""

    def __init__(self, contents: Contents, inventory: Inventory) -> None:
        self._contents = contents
        self._inventory = inventory
        self._kept: dict[str, Files] = {}
        self.made: dict[Oid, Files] = {}

    def compose(self, resolved: ResolvedVariant) -> ResolvedVariant:
        """Return a variant with composed trees in place of those of its upstreams."""
        variant, draft = resolved.variant, resolved.draft
        main = self._contents[resolved.local] if resolved.local else {}
        drafted = self._contents[draft.tree] if draft is not None and draft.append_only else main
        sources = policy_sources(variant, self._inventory.policy)
        default = self._inventory.policy.on_conflict
        policy = conflict_policy(drafted, variant.annotations, default, sources)
        pin, base, draft_base = resolved.pin, resolved.base, resolved.draft_base
        former = self._contents.get((draft_base or base or pin).tree, {})
        # What upstream removed goes, whatever revision it would have.
        remaining = [s for s in resolved.subpackages if not _is_removed(s, former, self._contents[pin.tree])]
        new = self._tree(pin.tree, remaining, drafted, policy, is_new=True)
        changes: dict[str, Any] = {"pin": replace(pin, tree=new)}
        # An old side is as local was made from it: nobody is conflicts about it any more.
        is_asked = policy.default in (OnConflict.ASK, OnConflict.FAIL)
        decided = replace(policy, default=OnConflict.UPSTREAM) if is_asked else policy
        for name, side, local in (("base", base, main), ("draft_base", draft_base, drafted)):
            if side is not None and side.tree in self._contents:
                tree = self._tree(side.tree, resolved.subpackages, local, decided)
                changes[name] = replace(side, tree=tree)
        if resolved.asked_from is not None:
            changes["asked_from"] = self._tree(resolved.asked_from, resolved.subpackages, main, decided)
        return replace(resolved, **changes)

    def _tree(
        self,
        tree: Oid,
        subpackages: Sequence[SubpackagePin],
        local: Files,
        policy: ConflictPolicy,
        *,
        is_new: bool = False,
    ) -> Oid:
        """Return an upstream with its sub-packages as `local` has them, or at their pins if it is new."""
        files, key = self._contents[tree], repr((tree, is_new, policy))
        for subpackage in subpackages:
            local_kptfile = local.get(f"{subpackage.directory}/{KPTFILE}")
            key += repr((subpackage, local_kptfile and local_kptfile.oid))
            if key not in self._kept:
                self._kept[key] = self._with_revision(files, subpackage, local_kptfile, policy, is_new=is_new)
            files = self._kept[key]
        if files is self._contents[tree]:
            return tree
        oid = tree_id(files)
        self.made[oid] = files
        return oid

    def _with_revision(
        self,
        files: Files,
        subpackage: SubpackagePin,
        kptfile: File | None,
        policy: ConflictPolicy,
        *,
        is_new: bool,
    ) -> Files:
        prefix = f"{subpackage.directory}/"
        inside = {p.removeprefix(prefix): file for p, file in files.items() if p.startswith(prefix)}
        theirs, mine = _kptfile(inside.get(KPTFILE)), _kptfile(kptfile)
        if not mine and not (theirs and is_new):
            return files
        if mine and _upstream_address(theirs) != _upstream_address(mine):
            # Upstream has none there, or people let it follow another one: it is all local's.
            inside = {}
        pin = subpackage.pin if is_new else self._pin_of(subpackage, mine)
        done: Files = inside
        if not inside:
            upstream = mine["upstream"]
            git = {**upstream["git"], "ref": pin.ref}
            done = _with_fields(
                add_identifiers(self._stripped(pin)),
                {
                    "upstream": {**upstream, "git": git},
                    "upstreamLock": {"type": "git", "git": {**git, "commit": pin.commit.oid}},
                },
            )
        elif self._commit_of(theirs) != pin.commit.oid:
            done = self._merged(subpackage, self._pin_of(subpackage, theirs), pin, inside, policy)
        if not is_new:
            # It follows the upstream that local's follows, as that is written there.
            done = _with_fields(done, {name: mine[name] for name in ("upstream", "upstreamLock")})
        others = {path: file for path, file in files.items() if not path.startswith(prefix)}
        return {**others, **{f"{prefix}{path}": file for path, file in done.items()}}

    def _pin_of(self, subpackage: SubpackagePin, kptfile: Mapping[str, Any]) -> Pin:
        """Return the pin that the upstreamLock of a sub-package names."""
        commit = self._commit_of(kptfile)
        for base in (subpackage.pin, *subpackage.bases):
            if base.commit.oid == commit:
                return base
        what = (
            f"commit {commit}, which its upstreamLock names, cannot be found"
            if commit
            else "it has no upstreamLock"
        )
        raise BlockedSideError(base_not_found(f"sub-package {subpackage.directory}: {what}"))

    def _commit_of(self, kptfile: Mapping[str, Any]) -> str:
        """Return the commit of an upstreamLock; kpt writes the object of an annotated tag."""
        named = str(value_at(kptfile, "upstreamLock", "git", "commit") or "")
        return self._inventory.tag_objects.get(named, named)

    def _merged(
        self, subpackage: SubpackagePin, base: Pin, pin: Pin, inside: Files, policy: ConflictPolicy
    ) -> Files:
        """Return a sub-package of an upstream, with its edits there, at another revision."""
        git = _kptfile(inside[KPTFILE])["upstream"]["git"]
        merged = merge_three_way(
            prepare_sides(self._stripped(base), self._stripped(pin), inside, None),
            policy,
            new_upstream=UpstreamRef(git["repo"], git["directory"], pin.ref, pin.commit.oid),
        )
        if isinstance(merged, Blocked):
            raise BlockedSideError(merged)
        conflicts = [conflict for conflict, decision in merged.conflicts if decision is None]
        if conflicts:
            where = ", ".join(
                f"{subpackage.directory}/{c.path} {c.resource} {c.field}".strip() for c in conflicts
            )
            message = (
                f"The upstream package and {pin.ref} of its sub-package both changed {where}. "
                "Bring that revision into the upstream package, or set reconciler.dev/on-conflict-fields"
            )
            raise BlockedSideError(Blocked(Reason.MERGE_CONFLICT, message, conflicts=tuple(conflicts)))
        return merged.files

    def _stripped(self, pin: Pin) -> Files:
        files = strip_ownership(self._contents[pin.tree])
        if isinstance(files, Blocked):
            raise BlockedSideError(files)
        return files


def _is_removed(subpackage: SubpackagePin, former: Files, upstream: Files) -> bool:
    path = f"{subpackage.directory}/{KPTFILE}"
    return path in former and path not in upstream


def _kptfile(file: File | None) -> Mapping[str, Any]:
    """Return the Kptfile of a sub-package with an upstream, {} for any other."""
    value = kptfile_value(file.data) if file is not None else {}
    return value if all(isinstance(text, str) for text in _upstream_address(value)) else {}


def _upstream_address(kptfile: Mapping[str, Any]) -> tuple[object, object]:
    git = value_at(kptfile, "upstream", "git")
    return value_at(git, "repo"), value_at(git, "directory")


def _with_fields(files: Files, fields: Mapping[str, Any]) -> Files:
    done = edit_kptfile(
        files,
        lambda value: (SetValue((name,), new) for name, new in fields.items() if value.get(name) != new),
    )
    if isinstance(done, Blocked):
        raise BlockedSideError(done)
    return done
