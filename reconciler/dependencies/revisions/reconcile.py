"""Reconcile the active revisions and the ownership of CRDs and compositions of one cluster."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from reconciler.dependencies.dialects.crossplane import TAKE_OVER
from reconciler.dependencies.lock.format import (
    ActivationBlocker,
    DesiredState,
    LockedPackage,
    LockedRevision,
    OwnershipEntry,
    Resolution,
    keeps_ownership,
    package_name,
)
from reconciler.dependencies.lock.write import USER
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.model.installs import ActivationRequest, Install
from reconciler.dependencies.model.packages import LABEL_LENGTH
from reconciler.dependencies.revisions.ownership import (
    OwnedResource,
    OwnedResources,
    OwnershipClaim,
    OwnershipTable,
    RefusedClaim,
    owned_resources,
    refuse_claims,
    transfer_ownership,
)
from reconciler.dependencies.solve.solution import Solution
from reconciler.errors import Location, Problem
from reconciler.reasons import Reason

_NAME_LENGTH, _DIGEST_LENGTH = 50, 12


@dataclass(frozen=True, slots=True)
class RevisionHistory:
    """The revisions of one package object before a run, and the greatest number that was ever given."""

    revisions: tuple[LockedRevision, ...] = ()
    last: int = 0

    @property
    def active(self) -> LockedRevision | None:
        """The revision that runs, if one does."""
        return next((one for one in self.revisions if one.is_active), None)


@dataclass(frozen=True, slots=True)
class RevisionInput:
    """What one package asks of its revisions.

    `package` is its object (`Provider/aws`), `image` has the tag. Unless `automatic`, what is new
    waits. `wishes` are what people say about its revisions. `limit` is how many inactive ones stay; 0 is all.
    `needs` are the instances that meet what this version requires.
    """

    package: str
    image: str
    digest: str = ""
    automatic: bool = True
    limit: int = 1
    wishes: tuple[ActivationRequest, ...] = ()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ActivationProposal:
    """What the revisions would be: all that there are, and the one that would be active, by name.

    `rivals` are what people say who want two revisions at once; the one that runs stays then.
    `unknown` are what they say about revisions that do not exist.
    """

    asked: RevisionInput
    history: RevisionHistory
    revisions: tuple[LockedRevision, ...]
    active: str = ""
    rivals: tuple[ActivationRequest, ...] = ()
    unknown: tuple[ActivationRequest, ...] = ()

    @property
    def current(self) -> LockedRevision:
        """The revision that the package asks for, active or not."""
        return next(one for one in self.revisions if one.current)

    @property
    def running(self) -> str:
        """The revision that was active before, by name; empty if none was or it is gone."""
        before = self.history.active
        return before.name if before is not None else ""

    def held_back(self) -> "ActivationProposal":
        """Return the proposal in which nothing is activated: what runs keeps running."""
        return replace(self, active=self.running)


def revision_name(package: str, digest: str, image: str = "") -> str:
    """Return what a revision is called: its package's name, and the first digits of its content's digest.

    Where no digest is known, that of the image's name stands for it.

    Source: crossplane internal/xpkg, FriendlyID. Newer versions of it hash the digest together with
    the generation of the package; such names are kept where they are found.
    """
    content = digest.rpartition(":")[2] or hashlib.sha256(image.encode()).hexdigest()
    name = package.rpartition("/")[2][:_NAME_LENGTH]
    return f"{name}-{content[:_DIGEST_LENGTH]}"[:LABEL_LENGTH]


def propose_activation(history: RevisionHistory, asked: RevisionInput) -> ActivationProposal:
    """Return what the revisions of a package would be. Total, deterministic; order of wishes does not matter.

    New content is a new revision with the next number; content that there is already is the same
    revision again. An automatic package runs what it asks for, a manual one what it ran before,
    and either runs what a person says instead.
    """
    current = next((one for one in history.revisions if _is_content(one, asked)), None)
    if current is None:
        current = _new(history, asked)
    else:
        learned = {"digest": current.digest or asked.digest, "image": asked.image, "needs": asked.needs}
        current = current.model_copy(update=learned)
    others = [_as_current(one, is_current=False) for one in history.revisions if one.name != current.name]
    revisions = tuple(sorted((*others, _as_current(current, is_current=True)), key=_number))
    known = [(wish, _meant(wish, revisions, asked.package)) for wish in sorted(asked.wishes, key=str)]
    unknown = tuple(wish for wish, meant in known if meant is None)
    stopped = {meant.name for wish, meant in known if meant is not None and not wish.active}
    wanted = {meant.name: wish for wish, meant in known if meant is not None and wish.active}
    proposal = ActivationProposal(asked, history, revisions, unknown=unknown)
    if len(wanted) > 1:
        return replace(proposal, active=proposal.running, rivals=tuple(wanted.values()))
    if wanted:
        return replace(proposal, active=next(iter(wanted)))
    if asked.automatic:
        return replace(proposal, active=current.name)
    return replace(proposal, active="" if proposal.running in stopped else proposal.running)


def apply_proposal(proposal: ActivationProposal) -> tuple[LockedRevision, ...]:
    """Return the revisions after a run: at most one active, numbered, without those beyond the limit.

    A revision that becomes active again gets a number above all others. The active and the current
    one always stay; of the others as many as the limit says, those with the greatest numbers.
    """
    greatest = max((proposal.history.last, *(one.revision for one in proposal.revisions)))
    found = [_activated(one, proposal, greatest) for one in proposal.revisions]
    return tuple(_within(proposal.asked.limit, sorted(found, key=_number)))


def _activated(one: LockedRevision, proposal: ActivationProposal, greatest: int) -> LockedRevision:
    if one.name != proposal.active:
        return one.model_copy(update={"desired_state": DesiredState.INACTIVE})
    number = one.revision if one.is_active or one.revision == greatest else greatest + 1
    return one.model_copy(update={"desired_state": DesiredState.ACTIVE, "revision": number})


def _within(limit: int, revisions: list[LockedRevision]) -> Iterable[LockedRevision]:
    """Leave out the oldest of those that neither run nor wait for it.

    Source: the packages-v2 design, garbage collecting old PackageRevisions.
    Differs: crossplane deletes one per reconcile, the lowest number, which may be the active one.
    """
    spare = [one.name for one in revisions if not one.is_active and not one.current]
    gone = set(spare[:-limit]) if limit else set()
    return (one for one in revisions if one.name not in gone)


def _new(history: RevisionHistory, asked: RevisionInput) -> LockedRevision:
    last = max((history.last, *(one.revision for one in history.revisions)))
    return LockedRevision(
        package=asked.package,
        name=revision_name(asked.package, asked.digest, asked.image),
        revision=last + 1,
        desired_state=DesiredState.INACTIVE,
        image=asked.image,
        digest=asked.digest,
        needs=asked.needs,
    )


def _is_content(one: LockedRevision, asked: RevisionInput) -> bool:
    if one.digest and asked.digest:
        return one.digest == asked.digest
    return one.image == asked.image


def _as_current(one: LockedRevision, *, is_current: bool) -> LockedRevision:
    return one if one.current is is_current else one.model_copy(update={"current": is_current})


def _number(one: LockedRevision) -> tuple[int, str]:
    return (one.revision, one.name)


def _meant(
    wish: ActivationRequest, revisions: Iterable[LockedRevision], package: str
) -> LockedRevision | None:
    """Return the revision that a person means: by name, else by package and content."""
    several = tuple(revisions)
    named = next((one for one in several if one.name == wish.name), None)
    if named is not None or wish.package != package.rpartition("/")[2]:
        return named
    by_digest = (one for one in several if wish.digest and one.digest == wish.digest)
    by_image = (one for one in several if wish.image and one.image == wish.image)
    return next(iter((*by_digest, *by_image)), None)


@dataclass(frozen=True, slots=True)
class RevisionUpdate:
    """The resolution with whose everything is, the revisions of the cluster, and what is wrong."""

    resolution: Resolution
    revisions: tuple[LockedRevision, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def still_needed(self) -> frozenset[str]:
        """The instances that revisions need which run though something else is asked for."""
        old = (one for one in self.revisions if one.is_active and not one.current)
        return frozenset(name for one in old for name in one.needs)


@dataclass(frozen=True, slots=True)
class PreviousLock:
    """What stood in the cluster: the resolution and the revisions that the lock has."""

    resolution: Resolution
    revisions: tuple[LockedRevision, ...] = ()

    def history(self, one: LockedPackage) -> RevisionHistory:
        """Return the revisions of a package's object. One that is renamed starts anew, but counts on."""
        held = next((other for other in self.resolution.packages if other.instance == one.instance), one)
        known = held.object
        own = tuple(r for r in self.revisions if r.package == known)
        last = max((r.revision for r in own), default=0)
        return RevisionHistory(own, last) if known == one.object else RevisionHistory((), last)


def reconcile_revisions(
    world: ClusterInputs,
    solution: Solution,
    resolution: Resolution,
    before: PreviousLock,
    *,
    forget: bool = False,
) -> RevisionUpdate:
    """Decide which revisions run and who controls what they have, all in one step. Order-free.

    Resolution, revisions and ownership change together: what one package lets go of, another may
    claim at once. A package that cannot get all of what its new revision has keeps the revision that
    runs. With `forget`, kinds that packages left behind which are gone now are nobody's.
    """
    cluster = _Reconciler(world, solution, resolution, before)
    proposals = cluster.proposals()
    claimants = [cluster.claimant(one, proposals.get(str(one.instance))) for one in resolution.packages]
    refused = refuse_claims(cluster.ledger, claimants)
    settled = {
        instance: cluster.settled(instance, one, is_refused=instance in refused)
        for instance, one in proposals.items()
    }
    ledger = transfer_ownership(
        cluster.ledger, claimants, refused, cluster.kept(settled), cluster.prunes(forget=forget)
    )
    revisions = sorted((one for several in settled.values() for one in several), key=_order)
    return RevisionUpdate(
        resolution.model_copy(update=_written(ledger)),
        tuple(revisions),
        tuple(sorted({*cluster.refusals(refused), *cluster.rivals(proposals)})),
        tuple(sorted(cluster.idle(proposals))),
    )


def ownership_table(resolution: Resolution) -> dict[OwnedResource, OwnershipEntry]:
    """Return whose everything is, as a resolution says."""
    kinds = {
        OwnedResource(False, name): entry for name, entry in resolution.custom_resource_definitions.items()
    }
    return kinds | {OwnedResource(True, name): entry for name, entry in resolution.compositions.items()}


def _written(ledger: OwnershipTable) -> dict[str, dict[str, OwnershipEntry]]:
    def part(*, is_composition: bool) -> dict[str, OwnershipEntry]:
        return {thing.name: one for thing, one in ledger.items() if thing.is_composition is is_composition}

    return {
        "custom_resource_definitions": part(is_composition=False),
        "compositions": part(is_composition=True),
    }


def _order(one: LockedRevision) -> tuple[str, int]:
    return (one.package, one.revision)


@dataclass(slots=True)
class _Reconciler:
    """One cluster in one step, looked up often."""

    world: ClusterInputs
    solution: Solution
    resolution: Resolution
    before: PreviousLock
    ledger: OwnershipTable = field(init=False)
    installs: dict[str, Install] = field(init=False)
    has: dict[str, OwnedResources] = field(init=False)
    owned: dict[str, set[OwnedResource]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        world = self.world
        self.ledger = ownership_table(self.before.resolution)
        own = (install for install in world.installs if not install.external)
        self.installs = {str(world.instance_of(install)): install for install in own}
        found = self.solution.resolved.items()
        self.has = {str(instance): owned_resources(one.candidate) for instance, one in found}
        for thing, entry in self.ledger.items():
            for owner in entry.owners:
                self.owned.setdefault(owner, set()).add(thing)

    def proposals(self) -> dict[str, ActivationProposal]:
        """Return what the revisions of every Crossplane package would be, by instance.

        What is installed for others runs as soon as one of those who need it runs what needs it:
        dependencies of a package that waits to be activated wait with it.
        """
        packages = {str(one.instance): one for one in self.resolution.packages}
        found = {
            instance: propose_activation(self.before.history(one), self._asked(instance, one))
            for instance, one in packages.items()
            if keeps_ownership(instance)
        }
        waiting = [instance for instance in found if instance not in self.installs]
        moved = True
        while moved:
            moved = False
            for instance in waiting:
                one, parents = found[instance], packages[instance].requested_by
                if not one.asked.automatic and any(_runs(found, parent) for parent in parents):
                    found[instance] = propose_activation(one.history, replace(one.asked, automatic=True))
                    moved = True
        return found

    def settled(
        self, instance: str, proposal: ActivationProposal, *, is_refused: bool
    ) -> tuple[LockedRevision, ...]:
        """Return the revisions of a package after the step, with what the current one waits for."""
        awaits = ActivationBlocker.PERSON if instance in self.installs else ActivationBlocker.PARENTS
        awaits = ActivationBlocker.KINDS if is_refused else awaits
        found = apply_proposal(proposal.held_back() if is_refused else proposal)
        return tuple(one.model_copy(update={"awaits": _awaits(one, awaits)}) for one in found)

    def _asked(self, instance: str, one: LockedPackage) -> RevisionInput:
        install = self.installs.get(instance)
        wishes = tuple(wish for wish in self.world.wishes if wish.kind == f"{one.kind}Revision")
        image = f"{one.source or one.instance.name}:{one.version}"
        needs = sorted({str(d.resolved) for d in one.dependencies if d.resolved is not None and d.active})
        asked = RevisionInput(one.object, image, one.digest, wishes=wishes, needs=tuple(needs))
        if install is None:
            return replace(asked, automatic=False, limit=0 if one.owner == USER else asked.limit)
        policy = install.revisions
        return replace(asked, automatic=not policy.manual, limit=policy.history_limit)

    def claimant(self, one: LockedPackage, proposal: ActivationProposal | None) -> OwnershipClaim:
        """Return what a package claims; without revisions it is its own."""
        instance = str(one.instance)
        install = self.installs.get(instance)
        running, wanted = (instance, instance) if proposal is None else (proposal.running, proposal.active)
        known = {instance} if proposal is None else {one.name for one in proposal.revisions}
        current = instance if proposal is None else proposal.current.name
        has = {revision: frozenset(self.owned.get(revision, ())) for revision in known}
        fresh = self.has.get(instance)
        if fresh is not None:
            has[current] = fresh if proposal is None else has[current] | fresh
        return OwnershipClaim(
            package=instance,
            order=(one.kind, one.name or one.instance.name),
            is_user=install is not None,
            running=running,
            wanted=wanted,
            has=has,
            take_over=frozenset(install.revisions.take_over if install else ()),
        )

    def kept(self, settled: Mapping[str, Iterable[LockedRevision]]) -> dict[str, frozenset[str]]:
        """Return which revisions of each package are there after the step."""
        found = {instance: frozenset(one.name for one in several) for instance, several in settled.items()}
        everything = (str(one.instance) for one in self.resolution.packages)
        return {instance: found.get(instance, frozenset({instance})) for instance in everything}

    def prunes(self, *, forget: bool) -> frozenset[str]:
        """Return the packages whose kinds may go, as their manifests say or last said."""
        before = {str(one.instance): one.prune_kinds for one in self.before.resolution.packages}
        now = {str(one.instance): one.prune_kinds for one in self.resolution.packages}
        consent = {instance for instance, prunes in {**before, **now}.items() if prunes}
        gone = {entry.package for entry in self.ledger.values()} - now.keys() if forget else frozenset()
        return frozenset(consent | gone)

    def refusals(self, refused: Mapping[str, RefusedClaim]) -> Iterator[Problem]:
        """Yield what each package that is refused is told, at the manifest that it is there for."""
        for instance, why in refused.items():
            install = self._asker(instance)
            where = install.location if install else Location("")
            held = package_name(why.holder)
            message = (
                f"{package_name(instance)} does not get {why.thing}, which {held} has; it stays as it was"
            )
            hint = (
                f"Remove one of them; or let {held} go of it, and annotate this one with {TAKE_OVER}: {held}."
            )
            subject = str(install) if install else instance
            yield Problem(where, Reason.OWNERSHIP_CONFLICT, message, hint, subject)

    def _asker(self, instance: str) -> Install | None:
        """Return the user's install that a package is there for, the nearest and lowest of several."""
        parents = {str(one.instance): one.requested_by for one in self.resolution.packages}
        queue = [instance]
        for one in queue:
            if one in self.installs:
                return self.installs[one]
            queue += sorted(parent for parent in parents.get(one, ()) if parent not in queue)
        return None

    def rivals(self, proposals: Mapping[str, ActivationProposal]) -> Iterator[Problem]:
        """Yield at each place of a wish for a revision which other one is wished for too."""
        for one in proposals.values():
            for wish in one.rivals:
                others = ", ".join(f"{w.name} ({w.location})" for w in one.rivals if w != wish)
                message = f"{one.asked.package} can run one revision; {others} is to be active too"
                hint = "Set desiredState to Inactive in all but one of them; until then nothing changes."
                yield Problem(wish.location, Reason.REVISION_CONFLICT, message, hint, str(wish))

    def idle(self, proposals: Mapping[str, ActivationProposal]) -> Iterator[Problem]:
        """Yield a warning for each wish that names no revision that there is."""
        known = {wish for one in proposals.values() for wish in one.asked.wishes if wish not in one.unknown}
        for wish in set(self.world.wishes) - known:
            message = f"There is no revision {wish.name}, so what is said about it has no effect"
            yield Problem(wish.location, Reason.NOT_FOUND, message, _known(wish, proposals), str(wish))


def _awaits(one: LockedRevision, what: ActivationBlocker) -> ActivationBlocker:
    return what if one.current and not one.is_active else ActivationBlocker.NOTHING


def _known(wish: ActivationRequest, proposals: Mapping[str, ActivationProposal]) -> str:
    own = (one for one in proposals.values() if one.asked.package.rpartition("/")[2] == wish.package)
    names = sorted(revision.name for one in own for revision in one.revisions)
    return f"There are {', '.join(names)}." if names else ""


def _runs(found: Mapping[str, ActivationProposal], parent: str) -> bool:
    """Tell whether a parent runs the version that has this need; those without revisions do."""
    proposal = found.get(parent)
    return proposal is None or proposal.active == proposal.current.name
