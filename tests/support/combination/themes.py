"""Themes: fleets and weights of steps under which a life meets one kind of trouble again and again."""

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from tests.support.combination.blueprints import corpus_names
from tests.support.combination.manifest_steps import ALL_STEPS, draw_variant
from tests.support.combination.spec import FleetSpec, VariantSpec
from tests.support.values import replace

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


RENDERING = ("rename", "labels", "namespace", "search")
"""Pipelines that change every resource."""


class Theme(NamedTuple):
    """How fleets are drawn, and how often each step is chosen."""

    fleet: Callable[[Random], FleetSpec]
    weights: Mapping[str, int]


def _calm_variant(name: str, package: str, repository: str) -> VariantSpec:
    return VariantSpec(name=name, package=package, repository=repository, paths=[f"apps/{name}"])


def _conflicting_fleet(random: Random) -> FleetSpec:
    """Draw a fleet that asks people about every conflict, and has nothing else to stall it."""
    layout = random.choice(["many", "single", "mono"])
    spec = FleetSpec(layout=layout, deployment=random.random() < 0.4)
    spec.variants = [_calm_variant(name, "web", "edge-1") for name in ("a0", "a1")]
    return spec


def _crowded_fleet(random: Random) -> FleetSpec:
    """Draw a fleet of many small variants with a strict guard of deletions."""
    spec = FleetSpec(layout=random.choice(["many", "single"]), guard={"minimum": 6, "share": 0.4})
    spec.variants = [
        replace(_calm_variant(f"a{n}", "web", "edge-1"), deletion=random.choice(["delete", "orphan"]))
        for n in range(random.randint(6, 7))
    ]
    return spec


def _rendered_fleet(random: Random) -> FleetSpec:
    """Draw a fleet in which functions change every resource of every package."""
    spec = FleetSpec(layout=random.choice(["many", "single", "mono"]))
    spec.variants = [
        replace(_calm_variant(f"a{n}", "web", "edge-1"), pipeline=random.choice(RENDERING)) for n in range(2)
    ]
    return spec


THEMES: dict[str, Theme] = {
    "anything": Theme(draw_fleet, {name: step.weight for name, step in ALL_STEPS.items()}),
    "conflicts": Theme(_conflicting_fleet,
        {"contradict": 6, "edit_draft": 6, "answer_conflict": 3, "merge": 2, "approve": 3, "bump": 2}),
    "refusals": Theme(_conflicting_fleet,
        {"decline_the_next_push": 5, "hide_a_repository": 4, "contradict": 6, "bump": 2, "look": 3,
        "approve_all": 3, "choose_upstream": 3, "add_variant": 2, "close": 1}),
    "deletions": Theme(_crowded_fleet,
        {"approve_all": 6, "remove_several": 5, "choose_deletion": 1, "look": 1, "consent": 1}),
    "repositories": Theme(draw_fleet,
        {"mistake_a_repository": 8, "approve_all": 5, "bump": 3, "edit_main": 2, "rename_variant": 1,
        "look": 1}),
    "pipelines": Theme(_rendered_fleet,
        {"bump": 8, "approve_all": 5, "merge": 3, "edit_main": 2, "move_file": 1, "look": 1}),
}  # fmt: skip
