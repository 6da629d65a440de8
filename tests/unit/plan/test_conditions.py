"""The truth tables of docs/reasons.md, row by row; and that the page names every reason."""

from pathlib import Path

import pytest

from reconciler.api.porch import Downstream, PackageContext, PackageVariantSpec, Upstream
from reconciler.base.reasons import Reason
from reconciler.names.ids import ObjectKey
from reconciler.plan.changes import Plan
from tests.support.model import MAIN, ModelWorld, blueprint


def spec(**more: object) -> PackageVariantSpec:
    given: dict[str, object] = {
        "upstream": Upstream(repo="blueprints", package="web", revision=1),
        "downstream": Downstream(repo="edge", package="web"),
        **more,
    }
    return PackageVariantSpec(**given)


@pytest.fixture
def world() -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    world.publish("blueprints", "web", blueprint("web"), 1)
    return world


def conditions(plan: Plan) -> dict[str, tuple[str, str]]:
    found = plan.conditions[ObjectKey("config.porch.kpt.dev", "PackageVariant", "default", "web")]
    assert [c.type for c in found] == sorted(c.type for c in found)
    return {c.type: (c.status, c.reason) for c in found}


def test_a_new_variant_is_ready_with_a_draft(world: ModelWorld) -> None:
    world.variants["web"] = spec()

    assert conditions(world.run()) == {
        "ConfigInjected": ("True", "NoInjectionPoints"),
        "ContextInjected": ("False", "NotRequested"),
        "DownstreamEnsured": ("True", "NoErrors"),
        "DraftExists": ("True", "DraftExists"),
        "Ready": ("True", "NoErrors"),
        "Stalled": ("False", "Valid"),
        "Valid": ("True", "Valid"),
    }


def test_a_published_variant_has_no_draft(world: ModelWorld) -> None:
    world.variants["web"] = spec()
    world.run()
    world.merge("edge", world.drafts("edge")[0])

    assert conditions(world.run())["DraftExists"] == ("False", "NoDraft")


def test_an_upstream_that_is_not_found_stalls(world: ModelWorld) -> None:
    world.variants["web"] = spec(upstream=Upstream(repo="blueprints", package="web", revision=9))

    found = conditions(world.run())

    assert found["Stalled"] == ("True", "ValidationError")
    assert found["Ready"] == ("False", "Error")
    assert found["Valid"] == ("False", "UpstreamNotFound")


def test_a_stalled_variant_has_every_condition_too_and_knows_its_draft(world: ModelWorld) -> None:
    world.variants["web"] = spec()
    world.run()
    for wrong in (
        spec(upstream=Upstream(repo="blueprints", package="web", revision=9)),
        spec(adoption_policy="perhaps"),
    ):
        world.variants["web"] = wrong

        found = conditions(world.run())

        assert found.pop("Valid")[0] == "False"
        assert found == {
            "ConfigInjected": ("False", "Stalled"),
            "ContextInjected": ("False", "Stalled"),
            "DownstreamEnsured": ("False", "Stalled"),
            "DraftExists": ("True", "DraftExists"),
            "Ready": ("False", "Error"),
            "Stalled": ("True", "ValidationError"),
        }


def test_a_package_of_somebody_else_is_not_ensured(world: ModelWorld) -> None:
    world.push("edge", {"web": blueprint("web")})
    world.variants["web"] = spec()

    found = conditions(world.run())

    assert found["Stalled"] == ("False", "Valid")
    assert found["DownstreamEnsured"] == ("False", "PackageExists")
    assert found["Ready"] == ("False", "Error")


def test_a_context_is_injected_or_prevents_readiness(world: ModelWorld) -> None:
    world.variants["web"] = spec(package_context=PackageContext(data={"a": "b"}))
    assert conditions(world.run())["ContextInjected"] == ("True", "ContextInjected")
    broken = blueprint("web", **{"package-context_yaml": "kind: ConfigMap\n"})
    world.publish("blueprints", "web", broken, 2)
    world.variants["web"] = spec(
        upstream=Upstream(repo="blueprints", package="web", revision=2),
        package_context=PackageContext(data={"a": "b"}),
    )

    found = conditions(world.run())

    assert found["ContextInjected"] == ("False", "ContextNotInjected")
    assert found["DownstreamEnsured"] == ("False", "ContextNotInjected")
    assert world.repositories["edge"].at(MAIN).packages == {}


def test_every_reason_is_explained() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reasons.md").read_text(encoding="utf-8")

    assert [reason for reason in Reason if f"`{reason}`" not in page] == []
