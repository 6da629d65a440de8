"""The digest of inputs: which facts count, and what happens to a lock whose digest is outdated."""

import json
from pathlib import Path

import pytest
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.digest import DIGEST_VERSION, InputDigests, compared_fields, encodable
from reconciler.dependencies.lock.format import read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.cluster import (
    ClusterInputs,
    ClusterState,
    ObservedInstallation,
    ResolverSettings,
    build_catalogue,
)
from reconciler.dependencies.model.packages import (
    Actions,
    ActivationRequest,
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    Interface,
    InterfaceNeed,
    Override,
    PackageId,
    PackageNeed,
    Platform,
    PlatformNeed,
    Requirement,
    RevisionPolicy,
    Share,
    Values,
    VersionRange,
)
from reconciler.dependencies.versions import parse_strict
from reconciler.inventory.snapshot import StoredKind
from reconciler.report.locks import lock_lines
from tests.support.dependency_manifests import install, needs, package, world_of
from tests.support.values import replace

DB, WEB = PackageId(Ecosystem.CARVEL, "db.io"), PackageId(Ecosystem.CARVEL, "web.io")
ANY = VersionRange(Dialect.CARVEL)
NEED, ONE, TWO = PackageNeed(DB, ANY), parse_strict("1.0.0"), parse_strict("2.0.0")
GVK, PAIRS = Gvk("g.io", "v1", "Thing"), (("a", "b"),)
USED, ASKED = Candidate(DB, ONE), Install("prod", "web", Dialect.CARVEL, PackageNeed(DB, ANY))
INPUTS = ClusterInputs((ASKED,), build_catalogue([USED]))
DEFAULTS = Path(__file__).with_name("digest_defaults.json")


def digest(inputs: ClusterInputs) -> str:
    return InputDigests().of(inputs)


def offering(value: Candidate) -> ClusterInputs:
    return replace(INPUTS, catalogue=build_catalogue([value, Candidate(DB, parse_strict("9.0.0"))]))


LEFT_OUT = {
    Install: {"label", "location", "tag", "_hash"},
    Candidate: {"location", "functions", "_hash"},
    PackageNeed: {"location", "kind"},  # the kind counts as that of the candidates
    VersionRange: {"constraint"},
    ResolverSettings: {"explain_steps"},
    **{kind: {"location"} for kind in (Override, ActivationRequest, PlatformNeed, Requirement, ApiNeed)},
    **{kind: set[str]() for kind in (Values, RevisionPolicy, Share, Actions, InterfaceNeed, Interface)},
    **{kind: set[str]() for kind in (ClusterState, StoredKind, ObservedInstallation)},
}
"""The models that are encoded, with the fields that change no solution."""


@pytest.mark.parametrize("kind", LEFT_OUT)
def test_every_field_of_a_model_counts_or_is_left_out_on_purpose(kind: type[Struct]) -> None:
    compared = {name for name, _ in compared_fields(kind)}

    assert {each.name for each in fields(kind)} - compared == LEFT_OUT[kind]


OTHERS = {
    "no install": replace(INPUTS, installs=()),
    "a version": replace(INPUTS, catalogue=build_catalogue([USED, Candidate(DB, TWO)])),
    "an API": replace(INPUTS, presence=ClusterState(apis=frozenset({GVK}))),
    "a setting": replace(INPUTS, choices=ResolverSettings(depth=1)),
    "an activation": replace(INPUTS, activations=(ActivationRequest("R", "r", active=True),)),
    "a requirement": offering(replace(USED, requires=(Requirement((NEED,)),))),
    "a rule for pre-releases": offering(
        replace(USED, requires=(Requirement((PackageNeed(DB, replace(ANY, prereleases=())),)),))
    ),
    "a namespace": offering(replace(USED, namespace="prod")),
}


def test_whatever_decides_is_part_of_the_digest() -> None:
    assert len({digest(INPUTS), *map(digest, OTHERS.values())}) == len(OTHERS) + 1


def test_names_of_clusters_and_what_was_decided_are_no_part_of_it() -> None:
    assert digest(replace(INPUTS, cluster="edge", held=(("a", DB),))) == digest(INPUTS)


def test_encoding_has_what_differs_from_a_default_and_sets_in_order() -> None:
    state = ClusterState(
        apis=frozenset({GVK, GVK._replace(kind="Other")}), platforms=((Platform.KUBERNETES, ONE),)
    )

    assert encodable(state) == {
        "apis": [["g.io", "v1", "Other"], ["g.io", "v1", "Thing"]],
        "platforms": [["kubernetes", "1.0.0"]],
    }


def test_defaults_are_those_of_the_digests_version() -> None:
    """What has its default is not encoded: another default needs another DIGEST_VERSION."""
    defaults = {
        kind.__name__: {name: encodable(of) for name, of in compared_fields(kind) if of is not NODEFAULT}
        for kind in LEFT_OUT
    }

    assert {"version": DIGEST_VERSION, "defaults": defaults} == json.loads(DEFAULTS.read_text())


TEXT = install("shop", "web.io", ">=1.0.0") + package("web.io", "1.0.0", needs("db.io", "1.0.0"))
EDGE = replace(world_of(TEXT + package("db.io", "1.0.0")), cluster="edge")
NEWER = replace(world_of(TEXT + package("db.io", "1.0.0") + package("db.io", "2.0.0")), cluster="edge")


def test_digest_is_the_same_in_every_release_until_its_version_is_raised() -> None:
    """Another digest resolves every lock of every fleet once more: raise DIGEST_VERSION, and say it."""
    assert digest(EDGE) == "sha256:96a07c50669286dbe62b77baa34731fcabb583b0dfbdb6aeaa3d510faafd0293"


def test_outdated_digest_changes_nothing_alone_and_is_refreshed_by_a_run_that_writes() -> None:
    files = update_locks(FleetInputs((EDGE,)), read_locks({})).files

    idle = update_locks(FleetInputs((NEWER,)), read_locks(files))
    assert idle.files == files
    assert not idle.changed
    assert list(lock_lines(idle))[-1].endswith("1 resolved again until the next change is written")

    writing = update_locks(FleetInputs((NEWER,)), read_locks(files), writes=True)
    assert writing.files != files
    assert not writing.changed
    assert not writing.scopes[0].is_outdated

    again = update_locks(FleetInputs((NEWER,)), read_locks(writing.files))
    assert again.files == writing.files
    assert list(lock_lines(again))[-1] == "1 cluster, 0 changed, 0 dependency pins changed"


def test_cluster_that_may_lack_a_manifest_is_not_called_outdated() -> None:
    files = update_locks(FleetInputs((EDGE,)), read_locks({})).files

    assert not update_locks(FleetInputs((NEWER,)), read_locks(files), sure=False).scopes[0].is_outdated
