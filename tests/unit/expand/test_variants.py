"""Desired variants as manifests that Porch would create."""

import pytest

from reconciler.api.porch import PACKAGE_VARIANT_SET, PackageVariant
from reconciler.expand import expand
from reconciler.expand.variants import MUTATORS, spec_data, to_manifest, written_spec
from reconciler.inventory.inventory import MovedMarks
from reconciler.krm.yaml import load_documents
from tests.support.sets import blueprints, package_set, repository, source, variant, world
from tests.support.values import replace


def test_generated_variant_names_its_set() -> None:
    inventory = world(package_set(targets=[{"repositories": [{"name": "edge"}]}], uid="u-1"))
    (generated,) = expand(inventory).variants

    manifest = to_manifest(generated, inventory)

    assert manifest["metadata"]["labels"] == {"config.porch.kpt.dev/packagevariantset": "u-1"}
    assert manifest["metadata"]["ownerReferences"] == [
        {
            "apiVersion": PACKAGE_VARIANT_SET,
            "kind": "PackageVariantSet",
            "name": "fleet",
            "uid": "u-1",
            "controller": True,
        }
    ]
    assert PackageVariant.model_validate(manifest).spec == generated.spec


def test_authored_variant_has_no_owner_reference() -> None:
    inventory = world(variant())
    (generated,) = expand(inventory).variants

    assert set(to_manifest(generated, inventory)["metadata"]) == {"name", "namespace", "uid"}


@pytest.mark.parametrize("text", ["true", "false", "True", "yes", ""])
@pytest.mark.parametrize("paused", ["variant", "set", "repository"])
def test_only_the_text_true_pauses(paused: str, text: str) -> None:
    note = {"annotations": {"reconciler.dev/paused": text}}
    of_owner = {"metadata": note} if paused == "variant" else {}
    views = (blueprints(), repository("edge", **(note if paused == "repository" else {})))
    targets = [{"repositories": [{"name": "edge"}]}]
    fleet = package_set(targets=targets, **(note if paused == "set" else {}))

    (generated,) = expand(world(fleet, views=views)).variants
    (authored,) = expand(world(variant(**of_owner), views=views)).variants

    assert generated.paused is (text == "true" and paused != "variant")
    assert authored.paused is (text == "true" and paused != "set")


@pytest.mark.parametrize("is_alias", [True, False])
def test_functions_are_written_where_the_manifest_has_them(*, is_alias: bool) -> None:
    at = source("variants.yaml")
    at = replace(at, marks=MovedMarks(load_documents(b"{}")[0], *MUTATORS)) if is_alias else at
    mine = variant(pipeline={"mutators": [{"image": "x"}]}, at=at)
    (made,) = expand(world(mine)).variants

    written = written_spec(made, spec_data(made))

    assert ("mutators" in written, "mutators" in written["pipeline"]) == (is_alias, not is_alias)
