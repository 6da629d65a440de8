"""Records of unsolved clusters: a pure cache, which any other input or byte makes useless."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest

from reconciler.base.errors import Location, Problem
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import ClusterLock, Resolution, next_lock
from reconciler.dependencies.lock.read import FleetLocks, read_locks
from reconciler.dependencies.model.cluster import (
    ClusterInputs,
    LockedChoice,
    ObservedRevision,
    Pin,
    RefusedVersion,
    build_catalogue,
)
from reconciler.dependencies.model.packages import ActivationRequest, Candidate, Ecosystem, Gvk, PackageId
from reconciler.dependencies.solve import resolve
from reconciler.dependencies.update.fleet import record_unsolved, update_locks
from reconciler.dependencies.update.locks import LockUpdate
from reconciler.dependencies.update.unsolved import UnsolvedCluster, UnsolvedClusters
from reconciler.dependencies.versions import parse_strict
from tests.support.dependency_manifests import install, needs, package, world_of
from tests.support.values import replace

TEXT = (
    install("shop", "web.io", ">=1.0.0")
    + install("mail", "smtp.io", ">=1.0.0")
    + package("web.io", "1.0.0", needs("db.io", ">=2.0.0"))
    + package("db.io", "1.0.0")
    + package("smtp.io", "1.0.0", needs("queue.io"))
    + package("queue.io", "1.0.0")
)
EDGE = replace(world_of(TEXT), cluster="edge")


def lock(
    inputs: ClusterInputs,
    files: dict[str, bytes],
    unsolved: dict[str, bytes] | None = None,
    *,
    sure: bool = True,
) -> LockUpdate:
    records = UnsolvedClusters(unsolved or {})
    return update_locks(FleetInputs((inputs,)), read_locks(files), sure=sure, unsolved=records)


def settled(inputs: ClusterInputs = EDGE) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the locks and the records that a first run leaves."""
    first = lock(inputs, {})
    return first.files, record_unsolved(FleetInputs((inputs,)), first, keeps_locks=False)


@pytest.fixture
def resolutions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the clusters that are resolved from here on, one for each time."""
    calls: list[str] = []
    original = resolve.resolve_cluster

    def counting(inputs: ClusterInputs) -> resolve.Solution:
        calls.append(inputs.cluster)
        return original(inputs)

    monkeypatch.setattr(resolve, "resolve_cluster", counting)
    return calls


def test_second_run_of_an_unsolved_cluster_solves_nothing(resolutions: list[str]) -> None:
    files, records = settled()
    resolutions.clear()

    second = lock(EDGE, files, records)

    assert resolutions == []
    assert second == lock(EDGE, files)
    assert [problem.subject for problem in second.problems] == ["PackageInstall prod/shop"]
    assert second.scopes[0].explanations
    assert not second.changed
    assert record_unsolved(FleetInputs((EDGE,)), second, keeps_locks=False) == records


def test_reviewed_lock_that_waits_for_its_merge_is_not_computed_again(resolutions: list[str]) -> None:
    first = lock(EDGE, {})
    records = record_unsolved(FleetInputs((EDGE,)), first, keeps_locks=True)
    resolutions.clear()

    second = lock(EDGE, {}, records)

    assert resolutions == []
    assert second == first
    assert second.files == first.files


def test_cluster_that_may_lack_a_manifest_is_recorded_too(resolutions: list[str]) -> None:
    fleet = FleetInputs((replace(world_of(TEXT.replace(">=2.0.0", ">=1.0.0")), cluster="edge"),))
    first = update_locks(fleet, FleetLocks(), sure=False)
    records = record_unsolved(fleet, first, keeps_locks=False, sure=False)
    resolutions.clear()

    second = lock(fleet.worlds[0], first.files, records, sure=False)

    assert resolutions == []
    assert second == lock(fleet.worlds[0], first.files, sure=False)


class Change(NamedTuple):
    """A change of what a resolution reads."""

    what: str
    change: Callable[[ClusterInputs], ClusterInputs]


def catalogue(inputs: ClusterInputs, *more: Candidate, refused: bool = False) -> ClusterInputs:
    everything = [c for versions in inputs.catalogue.packages.values() for c in versions]
    wrong = (
        {"db.io": (RefusedVersion("1.0.0", Problem(Location("db.yaml"), "InvalidVersion", "bad")),)}
        if refused
        else {}
    )
    return replace(inputs, catalogue=build_catalogue([*more, *everything], wrong))


def moved(inputs: ClusterInputs) -> ClusterInputs:
    first, *others = inputs.installs
    return replace(inputs, installs=(replace(first, location=Location("moved.yaml", 1)), *others))


OTHER = PackageId(Ecosystem.CARVEL, "other.io")
VERSION = Candidate(OTHER, parse_strict("1.0.0"))
CHANGES = [
    Change("the place of a manifest", moved),
    Change("a package that nothing can reach", lambda w: catalogue(w, VERSION)),
    Change("a manifest that is refused", lambda w: catalogue(w, refused=True)),
    Change(
        "the place of a version",
        lambda w: catalogue(
            w,
            *(replace(c, location=Location("x.yaml")) for c in w.catalogue.candidates(w.installs[0].need.id)),
        ),
    ),
    Change(
        "an API", lambda w: replace(w, presence=replace(w.presence, apis=frozenset({Gvk("a", "b", "C")})))
    ),
    Change("a setting", lambda w: replace(w, choices=replace(w.choices, reconsider=True))),
    Change("the steps of explanations", lambda w: replace(w, choices=replace(w.choices, explain_steps=1))),
    Change("a request", lambda w: replace(w, activations=(ActivationRequest("R", "r", active=True),))),
    Change("a revision", lambda w: replace(w, observed=(ObservedRevision("P/p", "p-1", 1, is_active=True),))),
    Change("a rehearsal", lambda w: replace(w, assumed=((OTHER, "1.0.0"),))),
    Change("an imported pin", lambda w: replace(w, pins=(Pin(w.instance_of(w.installs[0]), VERSION),))),
    Change("an owner", lambda w: replace(w, held=(("crd", OTHER),))),
    Change(
        "a choice", lambda w: replace(w, chosen=(LockedChoice(w.instance_of(w.installs[0]), "signature", 0),))
    ),
    Change("the cluster", lambda w: replace(w, cluster="core")),
]


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case.what)
def test_record_counts_for_nothing_when_an_input_changes(case: Change) -> None:
    files, records = settled()
    before = read_locks(files).by_cluster["edge"]
    renamed = {"unsolved/core.json": records["unsolved/edge.json"], **records}
    reader = UnsolvedClusters(renamed)

    assert reader.find(EDGE, before, keeps=False) is not None
    assert reader.find(case.change(EDGE), before, keeps=False) is None


def test_record_counts_for_nothing_with_another_lock_or_doubt() -> None:
    files, records = settled()
    before = read_locks(files).by_cluster["edge"]
    later = replace(before, lock=msgspec.structs.replace(before.lock, generation=9))
    reader = UnsolvedClusters(records)

    assert reader.find(EDGE, later, keeps=False) is None
    assert reader.find(EDGE, None, keeps=False) is None
    assert reader.find(EDGE, before, keeps=True) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"db.io", b"my.io"), (b"UnsolvedCluster", b"Other"), (b"{", b"{{"), (b'"problems"', b'"wrong"')],
)
def test_record_that_somebody_changed_counts_for_nothing(old: bytes, new: bytes) -> None:
    files, records = settled()
    edited = {path: data.replace(old, new) for path, data in records.items()}

    assert edited != records
    assert lock(EDGE, files, edited) == lock(EDGE, files)
    assert UnsolvedClusters(edited).find(EDGE, read_locks(files).by_cluster["edge"], keeps=False) is None


def test_solved_cluster_has_no_record() -> None:
    _, records = settled(replace(world_of(TEXT.replace(">=2.0.0", ">=1.0.0")), cluster="edge"))

    assert records == {}


def test_record_has_a_new_lock_if_it_has_lock_and_resolution() -> None:
    resolution = Resolution()
    lock_ = next_lock("edge", input_digest="", resolution=resolution)
    both = UnsolvedCluster(cluster="edge", lock=lock_, resolution=resolution)

    assert both.new_lock == ClusterLock(lock_, resolution)
    assert both.path == "unsolved/edge.json"
    partial = [{"lock": None}, {"resolution": None}, {"lock": None, "resolution": None}]
    assert [msgspec.structs.replace(both, **without).new_lock for without in partial] == [None] * 3
