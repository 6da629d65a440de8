"""Reconcile the active revisions of packages and the ownership of CRDs and compositions of one cluster."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.values import reachable
from reconciler.dependencies.dialects.crossplane import TAKE_OVER
from reconciler.dependencies.lock.format import keeps_ownership
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.model.instances import (
    ActivationBlocker,
    DesiredState,
    Instance,
    LockedRevision,
    OwnedResource,
    OwnershipEntry,
    Resolution,
    Resolved,
)
from reconciler.dependencies.model.packages import LABEL_LENGTH, ActivationRequest, Candidate, Install
from reconciler.dependencies.solve.problem import Solution
from reconciler.names.problems import Problem

OwnedResources = frozenset[OwnedResource]

OwnershipTable = Mapping[OwnedResource, OwnershipEntry]
"""Owner of every owned resource; a missing resource has none."""


class OwnershipClaim(Struct, frozen=True):
    """Claim of a package to control all resources of its active revision.

    `package` is its instance and `order` breaks ties. `running` is the revision that controls now,
    `target` the revision that should; either may be missing. `resources` are those of each revision.
    `take_over` are the names of packages that hand over their resources to this one.
    """

    package: Instance
    order: tuple[str, str]
    is_user: bool
    running: str
    target: str
    resources: Mapping[str, OwnedResources]
    take_over: frozenset[str] = frozenset()

    def resources_of(self, revision: str) -> OwnedResources:
        """Return the resources of a revision of this package."""
        return self.resources.get(revision, frozenset())


class RefusedClaim(NamedTuple):
    """A refused claim: the contested resource and its current owner."""

    package: Instance
    resource: OwnedResource
    holder: Instance


def owned_resources(candidate: Candidate) -> OwnedResources:
    """Return the resources of a version of a package: the kinds that it serves, and its compositions."""
    kinds = {OwnedResource(False, str(gvk.group_kind)) for gvk in candidate.provides if gvk.version}
    return frozenset(kinds | {OwnedResource(True, name) for name in candidate.compositions})


def refuse_claims(table: OwnershipTable, claims: Iterable[OwnershipClaim]) -> dict[Instance, RefusedClaim]:
    """Return the claims that conflict, by package; all others are granted. Order-free.

    A claim is for all resources of a revision or for none. An owner keeps its resources, unless the
    claiming package takes over from it and it releases them in the same step. Of two claims for a free
    resource, a user's package wins, then the lowest kind and name. A refused package keeps its running
    revision with all resources of that.

    Source: crossplane, packages-v2 design, PackageLock: of two packages exactly one gets all.
    """
    by_rank = sorted(claims, key=lambda claim: (claim.order, claim.package))
    ordered = {claim.package: claim for claim in by_rank}
    refused: dict[Instance, RefusedClaim] = {}
    while (conflict := next(_conflicts(table, ordered, refused), None)) is not None:
        refused[conflict.package] = conflict
    return refused


def _conflicts(
    table: OwnershipTable, claims: Mapping[Instance, OwnershipClaim], refused: Mapping[Instance, RefusedClaim]
) -> Iterator[RefusedClaim]:
    """Yield the claims that conflict, given the claims that are already refused."""
    active = _active(claims, refused)
    for package, claim in claims.items():
        if package not in refused:
            for resource in sorted(active[package]):
                entry = table.get(resource)
                holder = entry.holder if entry is not None else None
                if holder is None or holder == package:
                    continue
                lets_go = resource not in active.get(holder, frozenset())
                consents = not keeps_ownership(holder) or holder.name in claim.take_over
                if not (lets_go and consents):
                    yield RefusedClaim(package, resource, holder)
    # Of two packages that claim one resource the lower-ranked claim is refused.
    winners: dict[OwnedResource, Instance] = {}
    ranked = sorted(claims.values(), key=lambda claim: (claim.package not in refused, not claim.is_user))
    for claim in ranked:
        for resource in sorted(active[claim.package]):
            winner = winners.setdefault(resource, claim.package)
            if winner != claim.package and claim.package not in refused:
                yield RefusedClaim(claim.package, resource, winner)


def _active(
    claims: Mapping[Instance, OwnershipClaim], refused: Mapping[Instance, RefusedClaim]
) -> dict[Instance, OwnedResources]:
    return {
        package: claim.resources_of(claim.running if package in refused else claim.target)
        for package, claim in claims.items()
    }


def transfer_ownership(
    table: OwnershipTable,
    claims: Iterable[OwnershipClaim],
    refused: Mapping[Instance, RefusedClaim],
    retained: Mapping[Instance, Iterable[str]],
    prunes: frozenset[Instance],
) -> dict[OwnedResource, OwnershipEntry]:
    """Apply all releases and claims to the ownership table atomically. Order-free.

    Packages that are `refused` keep their running revision, `retained` has the retained ones of each, and
    `prunes` are packages with CRDs that are removed together with the last revision that has them.

    A kind goes with the object that installed its package, whatever that installs now; the entry of one that
    is gone keeps others from taking it unasked.

    Source: crossplane, internal/controller/pkg/revision, Establisher: kinds outlive their revisions, as
    their package owns them, too.
    """
    by_package = {claim.package: claim for claim in claims}
    active = _active(by_package, refused)
    controls = {resource: package for package, things in active.items() for resource in things}
    owners: dict[OwnedResource, set[str]] = {}
    for package, claim in by_package.items():
        for revision in retained.get(package, ()):
            for resource in claim.resources_of(revision):
                owners.setdefault(resource, set()).add(revision)
    after: dict[OwnedResource, OwnershipEntry] = {}
    for resource in sorted({*table, *controls, *owners}):
        before, mine = table.get(resource), sorted(owners.get(resource, ()))
        holder = controls.get(resource, before.holder if before is not None else None)
        # What no revision has any more stays as long as its package does: that owns it, too.
        may_stay = not resource.is_composition and keeps_ownership(holder) and holder not in prunes
        if resource in controls:
            package = controls[resource]
            claim = by_package[package]
            controller = claim.running if package in refused else claim.target
            after[resource] = OwnershipEntry(package=package, controller=controller, owners=tuple(mine))
        elif mine or may_stay:
            stays = holder is not None
            after[resource] = OwnershipEntry(package=holder, owners=tuple(mine), retained=stays)
    return after


def _former_objects(before: Resolution, after: Resolution) -> dict[Instance, str]:
    """Return the objects of packages that are gone, by instance, which installed other packages since."""
    there = {package.object for package in after.packages}
    objects = {package.instance: package.object for package in before.packages if package.object in there}
    objects |= {e.package: e.object for _, e in before.ownership() if e.object and e.package}
    now = {package.instance for package in after.packages}
    return {instance: of for instance, of in objects.items() if instance not in now}


_NAME_LENGTH, _DIGEST_LENGTH = 50, 12


class RevisionInput(Struct, frozen=True):
    """Inputs for the revisions of one package.

    `package` is its object (`Provider/aws`), `image` has the tag. Unless `automatic`, a new revision waits
    for activation. `activations` are requested activations. `limit` is the number of inactive revisions that
    stay; 0 keeps all. `needs` are the instances that satisfy the requirements of this version. `history` are
    its revisions before the run, and `last` the greatest number that was ever assigned.
    """

    package: str
    image: str
    digest: str = ""
    automatic: bool = True
    limit: int = 1
    activations: tuple[ActivationRequest, ...] = ()
    needs: tuple[Instance, ...] = ()
    history: tuple[LockedRevision, ...] = ()
    last: int = 0

    @property
    def running(self) -> str:
        """The revision that was active before, by name; empty if none was or it is gone."""
        return next((revision.name for revision in self.history if revision.is_active), "")


class ActivationProposal(Struct, frozen=True):
    """Proposed revisions of a package, and the name of the one to be active.

    `conflicting` are requests to activate two revisions at once; the running one stays then. `unmatched`
    are requests about revisions that do not exist.
    """

    input: RevisionInput
    revisions: tuple[LockedRevision, ...]
    active: str = ""
    conflicting: tuple[ActivationRequest, ...] = ()
    unmatched: tuple[ActivationRequest, ...] = ()

    @property
    def current(self) -> LockedRevision:
        """The revision that the package asks for, active or not."""
        return next(revision for revision in self.revisions if revision.current)

    @property
    def is_current_active(self) -> bool:
        """Whether the revision that the package asks for is to be active."""
        return self.active == self.current.name


def revision_name(package: str, digest: str, image: str = "") -> str:
    """Return the name of a revision: its package's name, and the first digits of its content's digest.

    Without a digest, the hash of the image's name replaces it.

    Source: crossplane internal/xpkg, FriendlyID. Newer versions of it hash the digest together with
    the generation of the package; such names are kept if a snapshot shows them.
    """
    content = digest.rpartition(":")[2] or hashlib.sha256(image.encode()).hexdigest()
    name = package.rpartition("/")[2][:_NAME_LENGTH]
    return f"{name}-{content[:_DIGEST_LENGTH]}"[:LABEL_LENGTH]


def propose_activation(package: RevisionInput) -> ActivationProposal:
    """Propose the revisions of a package. Total, deterministic, independent of the order of requests.

    New content is a new revision with the next number; known content is the same revision again. An
    automatic package activates its requested version, a manual one keeps the running revision, and an
    activation request overrides both.
    """
    current = next((revision for revision in package.history if _has_content(revision, package)), None)
    if current is None:
        current = LockedRevision(
            package=package.package,
            name=revision_name(package.package, package.digest, package.image),
            revision=max((package.last, *(revision.revision for revision in package.history))) + 1,
            desired_state=DesiredState.INACTIVE,
            image=package.image,
            digest=package.digest,
            needs=package.needs,
        )
    else:
        learned = {"digest": current.digest or package.digest, "image": package.image, "needs": package.needs}
        current = replace(current, **learned)
    by_name = {revision.name: revision for revision in package.history} | {current.name: current}
    marked = (replace(revision, current=name == current.name) for name, revision in by_name.items())
    revisions = tuple(sorted(marked, key=_number))
    targets = [
        (request, _requested_revision(request, revisions, package.package))
        for request in sorted(package.activations, key=str)
    ]
    unknown = tuple(request for request, meant in targets if meant is None)
    stopped = {meant.name for request, meant in targets if meant is not None and not request.active}
    requested = {meant.name: request for request, meant in targets if meant is not None and request.active}
    conflicting = tuple(requested.values()) if len(requested) > 1 else ()
    active = "" if package.running in stopped and not conflicting else package.running
    if not conflicting and (requested or package.automatic):
        active = next(iter(requested), current.name)
    return ActivationProposal(package, revisions, active, conflicting, unknown)


def apply_proposal(proposal: ActivationProposal) -> tuple[LockedRevision, ...]:
    """Return the revisions after a run: at most one active, numbered, without those beyond the limit.

    A revision that becomes active again gets a number above all others. The active and the current
    one always stay; of the others as many as the limit allows, those with the greatest numbers.

    Source: the packages-v2 design, garbage collecting old PackageRevisions.
    Differs: crossplane deletes one per reconcile, the lowest number, which may be the active one.
    """
    greatest = max((proposal.input.last, *(revision.revision for revision in proposal.revisions)))
    revisions = []
    for revision in proposal.revisions:
        if revision.name == proposal.active:
            number = revision.revision
            number = number if revision.is_active or number == greatest else greatest + 1
            revisions.append(replace(revision, desired_state=DesiredState.ACTIVE, revision=number))
        else:
            revisions.append(replace(revision, desired_state=DesiredState.INACTIVE))
    revisions.sort(key=_number)
    inactive = [revision.name for revision in revisions if not revision.is_active and not revision.current]
    limit = proposal.input.limit
    removed = set(inactive[:-limit]) if limit else set()
    return tuple(revision for revision in revisions if revision.name not in removed)


def _has_content(revision: LockedRevision, package: RevisionInput) -> bool:
    if revision.digest and package.digest:
        return revision.digest == package.digest
    return revision.image == package.image


def _number(revision: LockedRevision) -> tuple[int, str]:
    return (revision.revision, revision.name)


def _requested_revision(
    request: ActivationRequest, revisions: Iterable[LockedRevision], package: str
) -> LockedRevision | None:
    """Return the revision of an activation request: by name, else by package and content."""
    ordered = tuple(revisions)
    named = next((revision for revision in ordered if revision.name == request.name), None)
    if named is not None or request.package != package.rpartition("/")[2]:
        return named
    by_digest = (revision for revision in ordered if request.digest and revision.digest == request.digest)
    by_image = (revision for revision in ordered if request.image and revision.image == request.image)
    return next(iter((*by_digest, *by_image)), None)


class PreviousLock(Struct, frozen=True):
    """The locked resolution and revisions of a cluster before a run."""

    resolution: Resolution
    revisions: tuple[LockedRevision, ...] = ()

    @property
    def running(self) -> dict[str, str]:
        """The objects of packages that are in the cluster, `Provider/aws`, each with its package if known."""
        active = {revision.package: "" for revision in self.revisions if revision.is_active}
        return active | {package.object: package.instance.name for package in self.resolution.packages}

    def history(self, package: Resolved) -> tuple[tuple[LockedRevision, ...], int]:
        """Return the revisions of a package's object, and the last number; a renamed one counts on."""
        former = (other for other in self.resolution.packages if other.instance == package.instance)
        previous_object = next(former, package).object
        own_revisions = tuple(r for r in self.revisions if r.package == previous_object)
        # The object may have had another package before: its numbers count on, too.
        objects = {previous_object, package.object}
        last = max((r.revision for r in self.revisions if r.package in objects), default=0)
        return own_revisions if previous_object == package.object else (), last


class RevisionUpdate(PreviousLock, frozen=True):
    """The resolution with ownership, the revisions of the cluster, and problems: a lock for the next run."""

    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def still_needed(self) -> frozenset[Instance]:
        """The instances that active but outdated revisions need."""
        old = (revision for revision in self.revisions if revision.is_active and not revision.current)
        return frozenset(name for revision in old for name in revision.needs)


def reconcile_revisions(
    inputs: ClusterInputs,
    solution: Solution,
    resolution: Resolution,
    before: PreviousLock,
    *,
    forget: bool = False,
) -> RevisionUpdate:
    """Reconcile active revisions and CRD ownership of one cluster in one step. Order-free.

    Resolution, revisions and ownership change together: a CRD that one package releases, another can claim
    at once. A package that cannot get all CRDs of its new revision keeps the running one. With `forget`,
    CRDs of packages that are gone have no owner any more.
    """
    cluster = _Reconciler(inputs, solution, resolution, before)
    proposals = cluster.proposals()
    claimants = [cluster.claim(item, proposals.get(item.instance)) for item in resolution.packages]
    refused = refuse_claims(cluster.table, claimants)
    updated = {
        instance: cluster.updated(instance, item, is_refused=instance in refused)
        for instance, item in proposals.items()
    }
    former = _former_objects(before.resolution, resolution)
    # Without revisions the instance itself is the revision.
    retained = {package.instance: {str(package.instance)} for package in resolution.packages}
    retained |= {instance: {item.name for item in group} for instance, group in updated.items()}
    ledger = transfer_ownership(
        cluster.table, claimants, refused, retained, cluster.prunes(former, forget=forget)
    )
    objects = dict[Instance | None, str](former.items())
    ledger = {r: replace(entry, object=objects.get(entry.package, "")) for r, entry in ledger.items()}
    revisions = [revision for group in updated.values() for revision in group]
    revisions.sort(key=lambda revision: (revision.package, revision.revision))
    return RevisionUpdate(
        replace(
            resolution,
            custom_resource_definitions={r.name: e for r, e in ledger.items() if not r.is_composition},
            compositions={r.name: e for r, e in ledger.items() if r.is_composition},
        ),
        tuple(revisions),
        tuple(sorted({*cluster.refusals(refused), *cluster.conflicting(proposals)})),
        tuple(sorted(cluster.idle(proposals))),
    )


def nearest_install(
    instance: Instance, installs: Mapping[Instance, Install], packages: Mapping[Instance, Resolved]
) -> Install | None:
    """Return the user's install that a package is there for, the nearest and lowest of several."""

    def parents(item: Instance) -> list[Instance]:
        return sorted(packages[item].requested_by if item in packages else (), key=str)

    return next((installs[item] for item in reachable([instance], parents) if item in installs), None)


@dataclass(slots=True)
class _Reconciler:
    """One cluster in one step, looked up often."""

    inputs: ClusterInputs
    solution: Solution
    resolution: Resolution
    before: PreviousLock
    table: dict[OwnedResource, OwnershipEntry] = field(init=False)
    installs: dict[Instance, Install] = field(init=False)
    resources: dict[Instance, OwnedResources] = field(init=False)
    owned: dict[str, set[OwnedResource]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.table = dict(self.before.resolution.ownership())
        self.installs = self.inputs.installs_by_instance()
        self.resources = {
            instance: frozenset() if instance.slot.target else owned_resources(candidate)
            for instance, candidate in self.solution.candidates.items()
        }
        for resource, entry in self.table.items():
            for owner in entry.owners:
                self.owned.setdefault(owner, set()).add(resource)

    def proposals(self) -> dict[Instance, ActivationProposal]:
        """Return the proposed revisions of every Crossplane package, by instance.

        A generated package runs as soon as one of its parents runs the version that needs it: dependencies
        of a package that waits for activation wait with it.
        """
        packages = {package.instance: package for package in self.resolution.packages}
        proposals = {
            instance: propose_activation(self._asked(instance, package))
            for instance, package in packages.items()
            if keeps_ownership(instance)
        }
        waiting = [instance for instance in proposals if instance not in self.installs]
        moved = True
        while moved:
            moved = False
            for instance in waiting:
                package = proposals[instance]
                parents = [proposals.get(parent) for parent in packages[instance].requested_by]
                # Parents without revisions run their version.
                runs = packages[instance].by_user or any(p is None or p.is_current_active for p in parents)
                if runs and not package.input.automatic:
                    proposals[instance] = propose_activation(replace(package.input, automatic=True))
                    moved = True
        return proposals

    def updated(
        self, instance: Instance, proposal: ActivationProposal, *, is_refused: bool
    ) -> tuple[LockedRevision, ...]:
        awaits = ActivationBlocker.PERSON if instance in self.installs else ActivationBlocker.PARENTS
        awaits = ActivationBlocker.KINDS if is_refused else awaits
        active = proposal.input.running if is_refused else proposal.active
        revisions = apply_proposal(replace(proposal, active=active))
        return tuple(
            replace(r, awaits=awaits if r.current and not r.is_active else ActivationBlocker.NOTHING)
            for r in revisions
        )

    def _asked(self, instance: Instance, package: Resolved) -> RevisionInput:
        install = self.installs.get(instance)
        activations = tuple(a for a in self.inputs.activations if a.kind == f"{package.kind}Revision")
        image = f"{package.source or package.instance.name}:{package.version}"
        needs = sorted({d.resolved for d in package.dependencies if d.resolved is not None})
        policy, history = install.revisions if install else None, self.before.history(package)
        limit = policy.history_limit if policy else 0 if package.by_user else 1
        automatic = policy is not None and not policy.manual
        return RevisionInput(
            package.object, image, package.digest, automatic, limit, activations, tuple(needs), *history
        )

    def claim(self, package: Resolved, proposal: ActivationProposal | None) -> OwnershipClaim:
        """Return the claim of a package; without revisions the instance itself is the revision."""
        instance, alone = package.instance, str(package.instance)
        install = self.installs.get(instance)
        running, target = (alone, alone) if proposal is None else (proposal.input.running, proposal.active)
        names = {alone} if proposal is None else {package.name for package in proposal.revisions}
        current = alone if proposal is None else proposal.current.name
        resources = {revision: frozenset(self.owned.get(revision, ())) for revision in names}
        fresh = self.resources.get(instance)
        if fresh is not None:
            resources[current] = fresh if proposal is None else resources[current] | fresh
        return OwnershipClaim(
            package=instance,
            order=(package.kind, package.name or package.instance.name),
            is_user=install is not None,
            running=running,
            target=target,
            resources=resources,
            take_over=self.inputs.may_take_over(instance.package, install),
        )

    def prunes(self, former: Mapping[Instance, str], *, forget: bool) -> frozenset[Instance]:
        """Return the packages with CRDs that may be removed, as their present or last manifests consent.

        What the objects of `former` packages have stays as long as they do.
        """
        packages = self.resolution.packages
        consents = {p.instance: p.prune_kinds for p in (*self.before.resolution.packages, *packages)}
        present = {package.instance for package in packages}
        there = {package.object for package in packages}
        owners = {entry.package for entry in self.table.values() if entry.package and forget} - present
        gone = {owner for owner in owners if former.get(owner) not in there}
        return frozenset(gone.union(instance for instance, prunes in consents.items() if prunes))

    def refusals(self, refused: Mapping[Instance, RefusedClaim]) -> Iterator[Problem]:
        packages = {package.instance: package for package in self.resolution.packages}
        for instance, why in refused.items():
            install = nearest_install(instance, self.installs, packages)
            where = install.location if install else Location("")
            held = why.holder.name
            message = f"{instance.name} does not get {why.resource}, which {held} has; it stays as it was"
            hint = f"Remove one of them. Or take it out of {held}, and write {TAKE_OVER}: {held} on this one."
            subject = str(install or instance)
            yield Problem(where, Reason.OWNERSHIP_CONFLICT, message, hint, subject)

    def conflicting(self, proposals: Mapping[Instance, ActivationProposal]) -> Iterator[Problem]:
        for proposal in proposals.values():
            for request in proposal.conflicting:
                others = ", ".join(f"{w.name} ({w.location})" for w in proposal.conflicting if w != request)
                message = f"{proposal.input.package} can run one revision; {others} is to be active too"
                hint = "Set desiredState to Inactive in all but one of them; until then nothing changes."
                yield Problem(request.location, Reason.REVISION_CONFLICT, message, hint, str(request))

    def idle(self, proposals: Mapping[Instance, ActivationProposal]) -> Iterator[Problem]:
        matched = {
            request
            for proposal in proposals.values()
            for request in proposal.input.activations
            if request not in proposal.unmatched
        }
        for request in set(self.inputs.activations) - matched:
            message = f"There is no revision {request.name}, so what is said about it has no effect"
            there = (p for p in proposals.values() if p.input.package.rpartition("/")[2] == request.package)
            names = ", ".join(sorted(revision.name for p in there for revision in p.revisions))
            hint = f"There are {names}." if names else ""
            yield Problem(request.location, Reason.NOT_FOUND, message, hint, str(request))
