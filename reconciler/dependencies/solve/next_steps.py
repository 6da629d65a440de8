"""The next step after a conflict: one for each code, with names from the facts; nothing is tried."""

from collections.abc import Container, Iterable, Iterator

from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.model.instances import Instance
from reconciler.dependencies.model.packages import Ecosystem, Install, PackageId
from reconciler.dependencies.solve.build_problem import owned_names
from reconciler.dependencies.solve.problem import (
    Cause,
    CauseKind,
    ConflictCode,
    InstanceRequirement,
    ResolutionProblem,
    within_reach,
)

NEXT_STEPS = {
    ConflictCode.CYCLE: "Name versions that do not need one another, or remove one of these manifests",
    ConflictCode.OWN_CRD: (
        "Remove all but one of these manifests, or name versions of which one alone brings it"
    ),
    ConflictCode.OWN_COMPOSITION: (
        "Remove all of these manifests but one, or name a version without the composition"
    ),
    ConflictCode.CARD_CLUSTER: "Remove all of these manifests but one",
    ConflictCode.CARD_NAMESPACE: "Remove all of these manifests but one in each namespace",
    ConflictCode.FOREIGN: (
        "Write a manifest for {name} with the name that it has in the cluster: then it is yours"
    ),
    ConflictCode.PLATFORM: (
        "Name a version that runs on this cluster; or upgrade the cluster, and import its snapshot with"
        " `reconciler snapshot import --cluster CLUSTER --platform NAME=VERSION`"
    ),
    ConflictCode.BIND: (
        "Correct `reconciler.dev/dependencies` in `custom` of the Installation: name a dependency"
        " of its bundle, and an installation of what that needs"
    ),
    ConflictCode.INTERFACE: (
        "Choose what implements it: `reconciler index set-default {name} ECOSYSTEM:NAME`,"
        " with `--cluster CLUSTER` where that cluster has a default of its own"
    ),
    ConflictCode.API: (
        "Write a manifest that installs a package which brings it. If the cluster serves it, import its"
        " snapshot with `reconciler snapshot import --cluster CLUSTER --api-resources FILE`"
    ),
    ConflictCode.DECLINED: (
        "Write a manifest that installs {name}, or let it be installed: remove `install: false`"
    ),
    ConflictCode.INVALID: (
        "Correct the manifest of {name} at the place above, or name a version that is valid"
    ),
    ConflictCode.NO_CANDIDATE: (
        "Add {name} to the index, with `reconciler index sync` or `reconciler index add {command}`;"
        " `reconciler index missing` lists all that is missing"
    ),
    ConflictCode.NO_VERSION: (
        "Add a version of {name} that fits to the index, with `reconciler index sync` or"
        " `reconciler index add {command}`; or name another range of it in a manifest of yours"
    ),
    ConflictCode.UNPUBLISHED: "Publish {name} with a package.yaml, in a version that is asked for",
    ConflictCode.DOWNGRADE: (
        "Write `allowDowngrade: true` below `dependencies` in reconciler.yaml; for one PackageInstall alone"
        ' the annotation `packaging.carvel.dev/downgradable: ""`'
    ),
    ConflictCode.SELECTION: (
        "Name a version within that policy, or change the policy: `select` below `dependencies` in"
        " reconciler.yaml, `reconciler.dev/version-strategy` in `custom` of an Installation"
    ),
    ConflictCode.WITHDRAWN: "Name a version that is not withdrawn, or remove its `withdrawn` in the index",
    ConflictCode.VERSION: (
        "Name another version or range in one of these manifests; a PackageInstall has `override` below"
        " `spec.dependencies` for what its package needs"
    ),
}
"""A sentence for each code. It holds for every conflict of that code."""


class NextStep:
    """The next step after one conflict of a problem. Deterministic."""

    def __init__(self, inputs: ClusterInputs, problem: ResolutionProblem, causes: tuple[Cause, ...]) -> None:
        self.inputs = inputs
        self.problem = within_reach(problem)
        self.causes = causes
        self.installs = {str(install): install for install in inputs.installs}

    def after(self, code: ConflictCode, subject: PackageId | str) -> str:
        """Return the step: what takes over or moves along where a kind is held, else that of the code.

        `subject` is the package, interface or API that is missing or there already; "" for none.
        """
        if code.is_ownership and (text := next(self._of_owners(), "")):
            return text
        if not isinstance(subject, PackageId):
            return NEXT_STEPS[code].format(name=subject)
        is_xpkg = subject.ecosystem is Ecosystem.XPKG
        prefix, suffix = ("", " --manifest crossplane.yaml") if is_xpkg else (f"{subject.ecosystem}:", "")
        return NEXT_STEPS[code].format(name=subject.name, command=f"{prefix}{subject.name} VERSION{suffix}")

    # Kinds that another package has

    def _of_owners(self) -> Iterator[str]:
        for cause in self.causes:
            if cause.kind is CauseKind.HELD and cause.owner is not None:
                yield from self._take_over(cause.subject, cause.owner)
            elif cause.kind is CauseKind.OWNER:
                yield from self._move_along(cause)

    def _take_over(self, package: object, owner: PackageId) -> Iterator[str]:
        """Yield consent to take over all that the manifest brings of what others have.

        If other manifests bring the owners still, they have to go or to move along.
        """
        takers = self._installs_of(package) or self._leading_to(package)
        if owner.ecosystem is not Ecosystem.XPKG:
            yield f"Remove what needs {owner.name}, if anything does, and run `reconciler lock --prune`"
            return
        if not takers:
            return
        taker = takers[0]
        held = [cause for cause in self._held() if taker in self._leading_to(cause.subject)]
        owners = sorted({cause.owner for cause in held if cause.owner is not None} | {owner})
        consents = sorted({owner.name for owner in owners} | set(taker.revisions.take_over))
        names = {cause.resource for cause in held}
        still = [package for package in owners if self._brings_still(package, names)]
        removed = {i: None for former in still for i in self._installs_of(former) if i != taker}
        moved = self._along(still, {taker, *removed})
        text = f"Write `reconciler.dev/take-over: {', '.join(consents)}` into the annotations of {taker}"
        text += f" ({taker.location})"
        text += "".join(f", and remove {install} ({install.location})" for install in removed)
        yield text + "".join(f", and move {install} ({install.location}) along" for install in moved)

    def _move_along(self, cause: Cause) -> Iterator[str]:
        """Yield the move of the manifests that need the owner still, where another one may take over."""
        owner = dict(self.inputs.held).get(str(cause.subject))
        consented = {name for install in self.inputs.installs for name in install.revisions.take_over}
        if owner is not None and owner.name in consented:
            moved = self._along([owner], ())
            listed = " and ".join(f"{install} ({install.location})" for install in moved)
            if listed:
                yield f"Move {listed} along, or remove what needs {owner.name}"

    def _held(self) -> Iterator[Cause]:
        """Yield what keeps versions within reach from what another package has."""
        for node in self.problem.nodes.values():
            for place in node.order:
                yield from (cause for cause in node.banned.get(place, ()) if cause.kind is CauseKind.HELD)

    def _brings_still(self, package: PackageId, names: set[str]) -> bool:
        """Tell whether every version of a package that is within reach brings one of these things."""
        nodes = (node for node in self.problem.nodes.values() if node.instance.package == package)
        versions = [node.candidates[place] for node in nodes for place in node.order]
        return bool(versions) and not any(names.isdisjoint(owned_names(version)) for version in versions)

    def _along(self, owners: Iterable[PackageId], others: Container[Install]) -> list[Install]:
        """Return the further installs that need packages from which something is taken over."""
        leading = (install for owner in owners for install in self._leading_to(owner))
        return [install for install in dict.fromkeys(leading) if install not in others]

    def _installs_of(self, package: object) -> list[Install]:
        installs = self.inputs.installs
        return [install for install in installs if self.inputs.instance_of(install).package == package]

    def _leading_to(self, package: object) -> list[Install]:
        """Return the installs that may need a package, or install it."""
        leading = (d for d in self.problem.roots if any(i.package == package for i in self._below(d)))
        return [self.installs[str(demand.cause.subject)] for demand in leading]

    def _below(self, root: InstanceRequirement) -> Iterable[Instance]:
        """Return the instances that an install may need, directly or not."""
        reached: dict[Instance, None] = {}
        queue = [root]
        for demand in queue:
            for instance in (way.instance for way in demand.alternatives):
                if instance is not None and instance not in reached:
                    reached[instance] = None
                    queue += [d for group in self.problem.nodes[instance].requirements for d in group]
        return reached
