"""The life of locks as a state machine: what anything needs stays, and nothing else.

Every step is a change of the manifests, of a snapshot or of the published packages, or a run with other
options. After it both clusters are resolved, and a naive model (tests/property/needs.py) judges what changed.

`RECONCILER_FUZZ=N` in the environment plays N times as many lives as the test suite.
"""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import DEFAULT_OPTIONS, LockUpdate, ResolveOptions, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.cluster import Catalogue, ClusterInputs
from tests.property.needs import KINDS as PACKAGE_KINDS
from tests.property.needs import (
    NAMES,
    Ask,
    Cluster,
    Locked,
    catalogue_text,
    draw_catalogue,
    objections,
    orphans_of,
    read_locked,
    with_need,
)
from tests.support.dependency_manifests import world_of
from tests.support.values import replace

FUZZ = int(os.environ.get("RECONCILER_FUZZ", "1"))
CLUSTER = st.sampled_from(["one", "two"])
NAME = st.sampled_from(NAMES)
FEW = st.one_of(st.just(set[str]()), st.sets(NAME, max_size=2))
KINDS = st.sampled_from([frozenset(), frozenset({"Issuer"}), frozenset({"Issuer", "Queue"})])
PHASES = (Phase.explicit, Phase.generate)  # a life is shrunk for minutes, and read in seconds
MAKERS = {kind: name for name, kind in PACKAGE_KINDS.items()}
ALONE = ResolveOptions(dependencies=False)
Files = dict[str, bytes]


class NeedsMachine(RuleBasedStateMachine):
    """Two clusters with one catalogue, and the files of their locks."""

    @initialize(seed=st.integers(0, 10_000))
    def begin(self, seed: int) -> None:
        self.writes = bool(seed % 2)
        self.catalogue = draw_catalogue(seed)
        self.clusters = {"one": Cluster(), "two": Cluster()}
        self.files: Files = {}
        self.stalled: set[str] = set()
        self.staying: dict[str, frozenset[str]] = {"one": frozenset(), "two": frozenset()}
        self.publish()

    def publish(self) -> None:
        self.candidates: Catalogue = world_of(catalogue_text(self.catalogue)).catalogue

    # what people change

    @rule(cluster=CLUSTER, name=NAME, high=st.sampled_from([3, 3, 2, 1]), orphans=st.booleans(), declined=FEW)
    def install(self, cluster: str, name: str, high: int, declined: set[str], *, orphans: bool) -> None:
        self.clusters[cluster].asks[name] = Ask(name, high, frozenset(declined), orphans)
        self.staying[cluster] -= {name}
        self.step(cluster)

    @precondition(lambda self: any(cluster.asks for cluster in self.clusters.values()))
    @rule(cluster=CLUSTER, pick=st.integers(0, 5))
    def remove(self, cluster: str, pick: int) -> None:
        asks = self.clusters[cluster].asks
        if asks:
            ask = asks.pop(sorted(asks)[pick % len(asks)])
            self.staying[cluster] |= orphans_of(ask, self.locked(cluster), self.catalogue)
            was_solved = cluster not in self.stalled
            self.step(cluster)
            is_declined = any(ask.name in other.declined for other in asks.values())
            assert is_declined or not (was_solved and cluster in self.stalled), f"{ask} was needed"

    # lives that happen too rarely by chance

    @rule(cluster=CLUSTER, kind=st.sampled_from(sorted(MAKERS)), pick=st.integers(0, 5))
    def share_a_package_and_leave(self, cluster: str, kind: str, pick: int) -> None:
        """One install needs a package by name, another one only its API; the first one leaves."""
        users = with_need(self.catalogue, kind=kind)
        for first in with_need(self.catalogue, name=MAKERS[kind]):
            for second in [user for user in users if user != first][pick % 2 :][:1]:
                self.clear(cluster)
                self.install(cluster, first, 3, set(), orphans=False)
                self.install(cluster, second, 3, set(), orphans=False)
                self.remove(cluster, sorted(self.clusters[cluster].asks).index(first))

    @rule(cluster=CLUSTER, pick=st.integers(0, 5), how=st.sampled_from(["gone", "left alone", "broken"]))
    def leave_something_behind(self, cluster: str, pick: int, how: str) -> None:
        """An install leaves, and what it needed stays, in this run and in the next."""
        parents = with_need(self.catalogue)
        if parents:
            self.clear(cluster)
            self.install(cluster, "e", 3, set(), orphans=False)
            parent = parents[pick % len(parents)]
            self.install(cluster, parent, 3, set(), orphans=True)
            place = sorted(self.clusters[cluster].asks).index(parent)
            if how == "broken":
                self.break_a_manifest(cluster)
            elif how == "left alone":
                self.remove_and_leave_dependencies_alone(cluster, place)
            else:
                self.remove(cluster, place)
            self.step(cluster)

    def clear(self, cluster: str) -> None:
        self.clusters[cluster].asks, self.clusters[cluster].served = {}, frozenset()
        self.staying[cluster] = frozenset()
        self.files = {path: data for path, data in self.files.items() if path != f"locks/{cluster}.json"}

    @rule(cluster=CLUSTER, served=KINDS)
    def import_snapshot(self, cluster: str, served: frozenset[str]) -> None:
        self.clusters[cluster].served = served
        self.step(cluster)

    @rule(name=NAME)
    def release(self, name: str) -> None:
        newest = max((version for other, version in self.catalogue if other == name), default=0)
        if newest < 3:
            self.catalogue[name, newest + 1] = self.catalogue.get((name, newest), ())
            self.publish()
            self.step(*self.clusters)

    # runs with other options, and with inputs that are not understood

    @rule(name=NAME)
    def upgrade(self, name: str) -> None:
        if (name, 1) in self.catalogue:
            self.step(*self.clusters, options=ResolveOptions(frozenset({f"{name}.io"})), upgrade=name)

    @rule(cluster=CLUSTER)
    def break_a_manifest(self, cluster: str) -> None:
        before = self.locked(cluster)
        hidden = self.clusters[cluster].asks
        self.clusters[cluster].asks = dict(sorted(hidden.items())[1:])
        files = dict(self.decide(incomplete=frozenset({cluster})).files)
        self.clusters[cluster].asks = hidden
        kept = self.locked(cluster, files)
        assert before.versions.keys() <= kept.versions.keys(), "what is not understood removes nothing"
        self.files = files
        self.step(cluster)

    @precondition(lambda self: any(cluster.asks for cluster in self.clusters.values()))
    @rule(cluster=CLUSTER, pick=st.integers(0, 5))
    def remove_and_leave_dependencies_alone(self, cluster: str, pick: int) -> None:
        asks, before = self.clusters[cluster].asks, self.files
        if not asks:
            return
        ask = asks.pop(sorted(asks)[pick % len(asks)])
        self.staying[cluster] |= orphans_of(ask, self.locked(cluster), self.catalogue)
        expected = self.decide()
        alone = dict(self.decide(ALONE).files)
        generated = self.locked(cluster).generated
        assert generated - {ask.name} <= self.locked(cluster, alone).generated, "dependencies are left alone"
        self.files = alone
        solved, later = _resolutions(expected, solved=True), _resolutions(self.decide())
        assert solved.items() <= later.items(), "the next run is as if there was none"
        self.files = before
        self.step(cluster)

    # what a run decides

    def step(self, *changed: str, options: ResolveOptions = DEFAULT_OPTIONS, upgrade: str = "") -> None:
        """Resolve both clusters, and judge every change."""
        before = {cluster: self.locked(cluster) for cluster in self.clusters}
        decision = self.decide(options)
        self.files = dict(decision.files)
        self.stalled = {scope.cluster for scope in decision.scopes if not scope.finished}
        for cluster, model in self.clusters.items():
            after = self.locked(cluster)
            wrong = list(
                objections(
                    before[cluster],
                    after,
                    model,
                    self.catalogue,
                    solved=cluster not in self.stalled,
                    upgrade=upgrade,
                )
            )
            assert wrong == [], (cluster, before[cluster], after)
            missing = self.staying[cluster] - after.versions.keys()
            assert not missing, f"{missing} was to stay when its parent went"
            self.staying[cluster] &= after.unused  # who needs it now decides on it
            if cluster not in changed:
                assert after == before[cluster], "the other cluster is left as it was"
        second = self.decide()
        solved, again = _resolutions(decision, solved=not upgrade), _resolutions(second)
        assert solved.items() <= again.items(), "a second run decides the same"
        assert upgrade or _told(decision) == _told(second), "a second run tells the same"

    def decide(
        self, options: ResolveOptions = DEFAULT_OPTIONS, incomplete: frozenset[str] = frozenset()
    ) -> LockUpdate:
        worlds = tuple(self.world(cluster) for cluster, model in self.clusters.items() if model.asks)
        if options.upgrade and not worlds:
            options = DEFAULT_OPTIONS
        inputs, locks = FleetInputs(worlds, incomplete), read_locks(self.files)
        return update_locks(inputs, locks, options=options, writes=self.writes)

    def world(self, cluster: str) -> ClusterInputs:
        return replace(world_of(self.clusters[cluster].text()), catalogue=self.candidates, cluster=cluster)

    def locked(self, cluster: str, files: Files | None = None) -> Locked:
        lock = read_locks(self.files if files is None else files).by_cluster.get(cluster)
        if lock is None:
            return Locked()
        return read_locked(lock.resolution.packages, (i.name for i in lock.resolution.unused))


def _told(decision: LockUpdate) -> list[tuple[str, str]]:
    return [(problem.reason, problem.subject) for problem in decision.problems]


def _resolutions(decision: LockUpdate, *, solved: bool = False) -> dict[str, str]:
    scopes = (scope for scope in decision.scopes if scope.finished or not solved)
    return {scope.cluster: scope.after.resolution.digest for scope in scopes if scope.after}


NeedsMachine.TestCase.settings = settings(
    max_examples=15 * FUZZ,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=PHASES,
)
TestNeeds = NeedsMachine.TestCase
