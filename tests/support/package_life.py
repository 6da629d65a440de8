"""The life of the packages of one cluster: what is published, what people ask for, what is locked."""

from dataclasses import dataclass, field
from typing import Any

from reconciler.base.errors import Location
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import (
    ClusterLock,
    LockScope,
    LockUpdate,
    PackageLock,
    ResolveOptions,
    read_locks,
)
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue
from reconciler.dependencies.model.instances import LockedRevision, Resolution
from reconciler.dependencies.model.packages import (
    DEFAULT_ACTIONS,
    Actions,
    ActivationRequest,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    PackageId,
    PackageNeed,
    Requirement,
    RevisionPolicy,
    exact_range,
    version_range,
)
from reconciler.dependencies.versions import parse_loose
from tests.support.values import replace

CLUSTER = "one"
AUTOMATIC = RevisionPolicy()


def source(name: str) -> str:
    return f"x.io/{name}"


def digest(name: str, version: int) -> str:
    return "sha256:" + f"{name.encode().hex()}{version:02d}".ljust(64, "0")


@dataclass
class Life:
    """One cluster, people who change what it asks for, and runs that decide."""

    published: dict[tuple[str, int], Candidate] = field(default_factory=dict)
    installs: dict[str, Install] = field(default_factory=dict)
    activations: dict[str, ActivationRequest] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def publish(
        self,
        name: str,
        version: int,
        kinds: frozenset[str],
        needs: frozenset[str] = frozenset(),
        actions: Actions = DEFAULT_ACTIONS,
    ) -> None:
        """Publish a version that brings kinds and needs packages."""
        requires = tuple(
            Requirement((PackageNeed(PackageId(Ecosystem.XPKG, source(one)), _ANY),), actions=actions)
            for one in sorted(needs)
        )
        self.published[name, version] = Candidate(
            PackageId(Ecosystem.XPKG, source(name)),
            parse_loose(f"v{version}.0.0"),
            digest=digest(name, version),
            requires=requires,
            provides=tuple(Gvk("x.io", "v1", kind) for kind in sorted(kinds)),
            source=source(name),
            kind="Provider",
        )

    def ask(self, name: str, version: int, policy: RevisionPolicy = AUTOMATIC, *, package: str = "") -> None:
        """Write a manifest for the package of the same or another name, or change the one that there is."""
        need = PackageNeed(
            PackageId(Ecosystem.XPKG, source(package or name)),
            exact_range(Dialect.CROSSPLANE, f"v{version}.0.0"),
        )
        self.installs[name] = Install(
            "",
            name,
            Dialect.CROSSPLANE,
            need,
            kind="Provider",
            api_version="pkg.crossplane.io/v1",
            revisions=policy,
            location=Location(f"clusters/one/{name}.yaml", 1),
        )

    def world(self) -> ClusterInputs:
        installs = tuple(self.installs[name] for name in sorted(self.installs))
        activations = tuple(self.activations[name] for name in sorted(self.activations))
        return ClusterInputs(
            installs, build_catalogue(self.published.values()), activations=activations, cluster=CLUSTER
        )

    def decide(self, *, sure: bool = True, **more: Any) -> LockUpdate:
        """Decide, and write nothing: so does a run that is killed."""
        world = self.world()
        scopes = FleetInputs((world,) if world.installs else ())
        return update_locks(scopes, read_locks(self.files), sure=sure, options=ResolveOptions(**more))

    def run(self, *, sure: bool = True, **more: Any) -> LockUpdate:
        """Decide and write."""
        decision = self.decide(sure=sure, **more)
        self.files = dict(decision.files)
        return decision

    @property
    def locked(self) -> ClusterLock:
        found = read_locks(self.files)
        assert found.problems == ()
        return found.by_cluster.get(CLUSTER, NOTHING)

    def revisions(self, name: str) -> tuple[LockedRevision, ...]:
        return tuple(one for one in self.locked.lock.revisions if one.package == f"Provider/{name}")

    def owners(self) -> dict[str, str]:
        """Return who controls each kind, `-` for what is only kept."""
        found = self.locked.resolution.ownership()
        return {
            thing.name: entry.controller or "-"
            for thing, entry in found
            if entry.controller or entry.retained
        }

    def policy(self, name: str, **changes: object) -> None:
        install = self.installs[name]
        self.installs[name] = replace(install, revisions=replace(install.revisions, **changes))


_ANY = version_range(Dialect.CROSSPLANE, "")
NOTHING = ClusterLock(
    PackageLock(scope=LockScope(cluster=CLUSTER), generation=0, input_digest="", resolution=""), Resolution()
)
