"""Desired variants as manifests that Porch would create."""

import pytest

from reconciler.expand import expand
from tests.support.sets import blueprints, package_set, repository, variant, world


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
