"""Fleets drawn at random."""

from random import Random

from tests.support.combination.blueprints import corpus_names
from tests.support.combination.manifest_steps import draw_variant
from tests.support.combination.spec import FleetSpec, VariantSpec

NEIGHBOURS = (
    "package:web/inner",
    "package:solo",
    "files:web",
    "files:apps/db",
    "file:apps",
    "branch:drafts",
    "package:apps",
)
GUARDS = ({}, {}, {"minimum": 4, "share": 0.5}, {"minimum": 1, "share": 0.5})


def draw_fleet(random: Random) -> FleetSpec:
    """Draw a fleet of a few variants."""
    corpus = random.sample(corpus_names(), k=min(len(corpus_names()), random.choice([0, 0, 1, 2])))
    spec = FleetSpec(
        layout=random.choice(["many", "many", "single", "mono"]),
        snapshot=random.choice(["none", "yaml", "json", "ndjson", "import"]),
        on_conflict=random.choice(["ask", "ask", "ask", "upstream", "local"]),
        deployment=random.random() < 0.4,
        guard=dict(random.choice(GUARDS)),
        clusters=random.choice([[], [], ["edge-1", "edge-2"]]),
        neighbours=random.sample(NEIGHBOURS, k=random.choice([0, 0, 1, 2])),
        corpus=corpus,
    )
    names = [f"a{number}" for number in range(random.randint(2, 4))]
    spec.variants = [VariantSpec(**draw_variant(random, name, spec.repositories(), corpus)) for name in names]
    return spec
