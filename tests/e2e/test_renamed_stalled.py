"""PackageVariants that are renamed and stall in one commit keep their package, and their draft is seen."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.combination.fleet import Fleet
from tests.support.combination.life import Life
from tests.support.combination.oracles import Observation
from tests.support.combination.spec import FleetSpec, VariantSpec

STALLS = {
    "annotation": {"annotations": {"reconciler.dev/paused": "yes"}},
    "upstream": {"number": 77},
    "adoption": {"adoption": "adoptSome"},
}


@pytest.fixture
def life(tmp_path: Path) -> Life:
    spec = FleetSpec(variants=[VariantSpec("web", "web", "edge-1", ["web"])])
    life = Life(Fleet(tmp_path / "w", spec).build())
    life.settle()
    return life


def rename(life: Life, **fields: Any) -> Observation:
    """Rename the variant and change fields of it in one commit; return what the next run shows."""
    (variant,) = life.fleet.spec.variants
    life.fleet.commit_control({"manifests/web.yaml": None})
    variant.name = "web2"
    for name, value in fields.items():
        setattr(variant, name, value)
    life.fleet.write_variant(variant)
    life.settle()
    return life.observation


@pytest.mark.parametrize("stall", STALLS)
def test_draft_of_renamed_stalled_variant_stays_and_is_seen(life: Life, stall: str) -> None:
    observed = rename(life, **STALLS[stall])

    assert observed.conditions("web2")["DraftExists"] == "True"
    assert observed.conditions("web2")["Stalled"] == "True"
    assert [pull.head for pull in life.fleet.pulls("edge-1")] == ["drafts/web/packagevariant-1"]


@pytest.mark.parametrize("stall", STALLS)
def test_package_of_renamed_stalled_variant_is_not_proposed_for_deletion(life: Life, stall: str) -> None:
    life.play("merge", {"repository": "edge-1", "head": "drafts/web/packagevariant-1", "how": "merge"})

    observed = rename(life, **STALLS[stall])

    change = observed.change("edge-1", "web")
    assert change is not None
    assert (change["op"], change["reason"]) == ("keep", "OwnerStalled")
    assert life.fleet.pulls("edge-1") == []
