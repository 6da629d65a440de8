"""The digest of inputs: which facts count, and what happens to a lock whose digest is outdated."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import NODEFAULT
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
    BundleInput,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    InputKind,
    Install,
    InstallationType,
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
    Sharing,
    Values,
    VersionRange,
)
from reconciler.dependencies.versions import VersionPolicy, parse_strict
from reconciler.inventory.snapshot import StoredKind
from reconciler.names.ids import GroupKind
from reconciler.report.locks import lock_lines
from tests.support.dependency_manifests import install, needs, package, world_of
from tests.support.values import replace

DB, WEB = PackageId(Ecosystem.CARVEL, "db.io"), PackageId(Ecosystem.CARVEL, "web.io")
ANY = VersionRange(Dialect.CARVEL)
RANGE = VersionRange(Dialect.CARVEL, ">=1.0.0")
NEED, ONE, TWO = PackageNeed(DB, ANY), parse_strict("1.0.0"), parse_strict("2.0.0")
GVK, PAIRS = Gvk("g.io", "v1", "Thing"), (("a", "b"),)
SHAPED = {"outputs": PAIRS, "parameters": PAIRS, "credentials": PAIRS}
USED, ASKED = Candidate(DB, ONE), Install("prod", "web", Dialect.CARVEL, PackageNeed(DB, ANY))
INPUTS = ClusterInputs((ASKED,), build_catalogue([USED]))
DEFAULTS = Path(__file__).with_name("digest_defaults.json")


def digest(inputs: ClusterInputs) -> str:
    return InputDigests().of(inputs)


def asking(value: Install) -> ClusterInputs:
    return replace(INPUTS, installs=(value,), catalogue=build_catalogue([USED, Candidate(WEB, TWO)]))


def offering(value: Candidate) -> ClusterInputs:
    return replace(INPUTS, catalogue=build_catalogue([value, Candidate(DB, parse_strict("9.0.0"))]))


def requiring(value: Requirement) -> ClusterInputs:
    return offering(replace(USED, requires=(value,)))


class Facts(NamedTuple):
    """A value of a model, where it stands in the inputs, and another value for each of its fields."""

    value: Any
    inputs: Callable[[Any], ClusterInputs]
    others: dict[str, Any]
    ignored: frozenset[str] = frozenset({"location"})


STORED = StoredKind(GroupKind("g", "k"), ("v1",))
FACTS = [
    Facts(
        ASKED,
        asking,
        {
            "namespace": "x",
            "name": "x",
            "dialect": Dialect.KPT,
            "need": PackageNeed(WEB, ANY),
            "kind": "App",
            "api_version": "v1",
            "labels": PAIRS,
            "external": True,
            "interfaces": (Interface("i"),),
            "install_dependencies": False,
            "skip_dependencies": True,
            "overrides": (Override("db.io"),),
            "bindings": PAIRS,
            "values": (Values("db", "secret"),),
            "inherit": PAIRS,
            "policy": VersionPolicy.MIN,
            "origin": ONE,
            "allow_downgrade": True,
            "ignore_platforms": frozenset({Platform.KUBERNETES}),
            "revisions": RevisionPolicy(manual=True),
            "prune_dependencies": False,
            "gives": ("a",),
            "gives_credentials": True,
            "target": "prod/edge",
            "requested": PackageNeed(WEB, ANY),
        },
        frozenset({"label", "location", "tag", "_hash"}),
    ),
    Facts(
        Override("db.io"),
        lambda value: asking(replace(ASKED, overrides=(value,))),
        {"name": "x", "range": RANGE, "install": False},
    ),
    Facts(
        Values("db", "secret"),
        lambda value: asking(replace(ASKED, values=(value,))),
        {"name": "x", "secret": "x", "key": "x"},
    ),
    Facts(
        RevisionPolicy(),
        lambda value: asking(replace(ASKED, revisions=value)),
        {"manual": True, "history_limit": 0, "take_over": ("x",), "prune_kinds": True},
    ),
    Facts(
        ActivationRequest("R", "r", active=False),
        lambda value: replace(INPUTS, activations=(value,)),
        {"kind": "x", "name": "x", "active": True, "package": "x", "image": "x", "digest": "x"},
    ),
    Facts(
        USED,
        offering,
        {
            "id": PackageId(Ecosystem.CARVEL, "other.io"),
            "version": TWO,
            "digest": "x",
            "requires": (Requirement((NEED,)),),
            "provides": (GVK,),
            "defined": (GVK,),
            "interfaces": (Interface("i"),),
            "compositions": ("x",),
            "installation": InstallationType.ONE_PER_CLUSTER,
            "platforms": (PlatformNeed(Platform.KUBERNETES, RANGE),),
            "names": ("x",),
            "withdrawn": "x",
            "unavailable": True,
            "source": "x",
            "kind": "x",
            "inputs": (BundleInput(InputKind.PARAMETER, "x"),),
            "defaults": PAIRS,
            "has": (),
            "labels": PAIRS,
            "keywords": ("x",),
            "retain": True,
            "namespace": "prod",
        },
        frozenset({"location", "functions", "_hash"}),
    ),
    Facts(
        PlatformNeed(Platform.KUBERNETES, RANGE),
        lambda value: offering(replace(USED, platforms=(value,))),
        {"platform": Platform.CROSSPLANE, "range": ANY},
    ),
    Facts(
        Requirement((NEED,)),
        requiring,
        {
            "alternatives": (NEED, NEED),
            "alias": "x",
            "aliases": ("x",),
            "optional": True,
            "install": False,
            "share": Share(Sharing.GLOBAL),
            "actions": Actions(upgrade=False),
            "default": NEED,
            "wired": True,
            "after": ("x",),
            "gives": (BundleInput(InputKind.CREDENTIAL, "x"),),
            "parameters": PAIRS,
            "uses": ("x",),
            "declined": (0,),
        },
    ),
    Facts(
        Share(),
        lambda value: requiring(Requirement((NEED,), share=value)),
        {"scope": Sharing.EXCLUSIVE, "group": "x", "labels": PAIRS, "inputs": PAIRS},
    ),
    Facts(
        Actions(),
        lambda value: requiring(Requirement((NEED,), actions=value)),
        {"upgrade": False, "invoke": False, "uninstall": False},
    ),
    Facts(
        NEED,
        lambda value: requiring(Requirement((value,))),
        {"id": WEB, "range": RANGE},
        frozenset({"location", "kind"}),  # the kind counts as that of the candidates
    ),
    Facts(
        ApiNeed(GVK),
        lambda value: requiring(Requirement((value,))),
        {"gvk": GVK._replace(kind="x"), "provider": NEED},
    ),
    Facts(
        InterfaceNeed("i", ANY),
        lambda value: requiring(Requirement((value,))),
        {"id": "x", "range": RANGE, **SHAPED},
    ),
    Facts(
        RANGE,
        lambda value: requiring(Requirement((PackageNeed(DB, value),))),
        {"dialect": Dialect.KPT, "text": "", "prereleases": (), "releases_only": True},
        frozenset({"constraint", "selection"}),
    ),
    Facts(
        Interface("i"),
        lambda value: offering(replace(USED, interfaces=(value,))),
        {"id": "x", "version": ONE, "is_declared": True, **SHAPED},
    ),
    Facts(
        ClusterState(),
        lambda value: replace(INPUTS, presence=value),
        {
            "apis": frozenset({GVK}),
            "owners": ((GroupKind("g", "k"), DB),),
            "platforms": ((Platform.KUBERNETES, ONE),),
            "installations": (ObservedInstallation("x", "y", DB),),
            "closed": ("prod",),
            "stored": (STORED,),
        },
    ),
    Facts(
        STORED,
        lambda value: replace(INPUTS, presence=ClusterState(stored=(value,))),
        {"kind": GroupKind("g", "x"), "versions": (), "listed": 2, "is_complete": True},
    ),
    Facts(
        ObservedInstallation("x", "y", DB),
        lambda value: replace(INPUTS, presence=ClusterState(installations=(value,))),
        {
            "namespace": "",
            "name": "x",
            "id": WEB,
            "version": ONE,
            "digest": "x",
            "labels": PAIRS,
            "interfaces": (Interface("i"),),
            "target": "prod/edge",
        },
    ),
    Facts(
        ResolverSettings(),
        lambda value: replace(INPUTS, choices=value),
        {
            "allow_downgrade": True,
            "discovery": True,
            "reconsider": True,
            "upgrade": frozenset({"x"}),
            "forbid_cycles": frozenset(),
            "policies": ((Ecosystem.KPT, VersionPolicy.MIN),),
            "defaults": (("i", DB),),
            "shared_namespace": "x",
            "depth": 0,
            "budget": 1,
        },
        frozenset({"explain_steps"}),
    ),
    Facts(
        INPUTS,
        lambda value: value,
        {
            "installs": (),
            "catalogue": build_catalogue([USED, Candidate(DB, TWO)]),
            "presence": ClusterState(apis=frozenset({GVK})),
            "choices": ResolverSettings(depth=1),
            "activations": (ActivationRequest("R", "r", active=True),),
        },
        frozenset({"pins", "locked", "held", "observed", "cluster"}),
    ),
]


@pytest.mark.parametrize("facts", FACTS, ids=lambda facts: type(facts.value).__name__)
def test_every_field_of_a_model_counts_or_is_left_out_on_purpose(facts: Facts) -> None:
    assert {each.name for each in fields(facts.value)} - facts.ignored == facts.others.keys()
    digests = {digest(facts.inputs(replace(facts.value, **{name: x}))) for name, x in facts.others.items()}

    assert len(digests | {digest(facts.inputs(facts.value))}) == len(facts.others) + 1


def test_values_of_a_model_have_equal_encodings_exactly_if_they_are_equal() -> None:
    models = [facts for facts in FACTS if facts.value is not INPUTS]
    values = [
        [facts.value, *(replace(facts.value, **{name: x}) for name, x in facts.others.items())]
        for facts in models
    ]
    pairs = [pair for of_model in values for pair in product(of_model, of_model)]

    wrong = [(one, x) for one, x in pairs if (encodable(one) == encodable(x)) is not (one == x)]

    assert wrong == []


def test_defaults_are_those_of_the_digests_version() -> None:
    """What has its default is not encoded: another default needs another DIGEST_VERSION."""
    kinds = {type(facts.value) for facts in FACTS if facts.value is not INPUTS}
    defaults = {
        kind.__name__: {name: encodable(of) for name, of in compared_fields(kind) if of is not NODEFAULT}
        for kind in kinds
    }

    assert {"version": DIGEST_VERSION, "defaults": defaults} == json.loads(DEFAULTS.read_text())


def test_prerelease_rules_count_apart() -> None:
    rules = (None, (), ("rc",))
    ranges = [replace(RANGE, prereleases=rule) for rule in rules]

    assert len({digest(requiring(Requirement((PackageNeed(DB, own),)))) for own in ranges}) == 3


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

    unsure = update_locks(FleetInputs((NEWER,)), read_locks(files), sure=False)

    assert not unsure.scopes[0].is_outdated
