"""Kinds that a snapshot must have: selected, injected, and those of dependencies."""

from typing import Any

import pytest

from reconciler.api.porch import InjectionSelector, PackageVariantSpec
from reconciler.base.errors import Location
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.inventory.inventory import Source, SourcedDocument
from reconciler.names.ids import GroupKind
from reconciler.policy import Policy, RolloutPolicy
from reconciler.policy.rollouts import Gates, ObjectGate, Wave
from reconciler.render.injection import needed_kinds
from reconciler.resolve.resolution import ResolvedVariant
from tests.support.plan_values import WEB, a_desired_variant, a_resolved
from tests.support.sets import package_set, select, world
from tests.support.values import replace

CLUSTER = GroupKind("example.dev", "Cluster")
REPOSITORIES = {"objectSelector": {"apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "Repository"}}


@pytest.mark.parametrize(
    ("target", "kinds"),
    [
        (select(), (CLUSTER,)),
        ({"objectSelector": {"apiVersion": "v1", "kind": "Node"}}, (GroupKind("", "Node"),)),
        ({"objectSelector": {"kind": "Node"}}, (GroupKind("", "Node"),)),
        ({"objectSelector": {"apiVersion": "v1"}}, ()),
        (REPOSITORIES, ()),
        ({"repositories": [{"name": "edge"}]}, ()),
        (
            {"repositories": [], "template": {"injectors": [{"group": "g", "kind": "K", "name": "a"}]}},
            (GroupKind("g", "K"),),
        ),
    ],
)
def test_kinds_that_sets_select_are_needed(target: dict[str, Any], kinds: tuple[GroupKind, ...]) -> None:
    assert needed_kinds(world(package_set(targets=[target])), (), {}) == kinds


@pytest.mark.parametrize(
    ("selector", "kinds"),
    [
        ({"group": "g", "kind": "K"}, (GroupKind("g", "K"),)),
        ({"group": "", "kind": "K"}, (GroupKind("", "K"),)),
        ({"kind": "K"}, ()),
        ({"group": "g"}, ()),
    ],
)
def test_kinds_that_injectors_name_with_their_group_are_needed(selector, kinds) -> None:
    assert needed_kinds(world(), [injected(**selector)], {}) == kinds


def injected(**selector: str) -> ResolvedVariant:
    spec = PackageVariantSpec(injectors=[InjectionSelector(name="a", **selector)])
    return a_resolved(variant=a_desired_variant(spec=spec, source=Source(Location("web.yaml"))), view=WEB)


CRDS = "CustomResourceDefinition.apiextensions.k8s.io"
CARVEL = f"{CRDS},Package.data.packaging.carvel.dev,PackageInstall.packaging.carvel.dev"
CROSSPLANE = ",".join(
    [
        CRDS,
        *(
            f"{kind}.pkg.crossplane.io"
            for kind in (
                "Configuration",
                "ConfigurationRevision",
                "Function",
                "FunctionRevision",
                "Lock",
                "Provider",
                "ProviderRevision",
            )
        ),
    ]
)


@pytest.mark.parametrize(
    ("manifest", "path", "kinds"),
    [
        ({"apiVersion": "pkg.crossplane.io/v1", "kind": "Provider"}, "a.yaml", CROSSPLANE),
        ({"apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall"}, "a.yaml", CARVEL),
        ({"schemaType": "Installation", "name": "a"}, "a.yaml", "Installation.getporter.org"),
        ({"apiVersion": "meta.pkg.crossplane.io/v1", "kind": "Provider"}, "index/a/crossplane.yaml", ""),
        ({"apiVersion": "v1"}, "a.yaml", ""),
        ({"kind": "Provider"}, "a.yaml", ""),
    ],
)
def test_all_kinds_that_are_read_of_the_tool_of_a_manifest_are_needed(manifest, path, kinds) -> None:
    documents = (SourcedDocument(manifest, Source(Location(path))),)

    assert ",".join(map(str, needed_kinds(replace(world(), documents=documents), (), {}))) == kinds


def test_kinds_of_what_variants_need_are_needed() -> None:
    assert ",".join(map(str, needed_kinds(world(), (), {}, [Ecosystem.KPT, Ecosystem.CARVEL]))) == CARVEL


def test_kinds_that_gates_of_any_wave_read_are_needed() -> None:
    gates = [Gates(objects=(ObjectGate(f"{group}/v1", "K", name="a"),)) for group in ("b", "a")]
    rollout = RolloutPolicy(waves=tuple(Wave(str(n), gates=gate) for n, gate in enumerate(gates)))

    kinds = needed_kinds(world(policy=Policy(rollouts=(rollout,))), (), {})

    assert kinds == (GroupKind("a", "K"), GroupKind("b", "K"))
