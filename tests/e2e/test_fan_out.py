"""What the packages of variants need, on real repositories: brought where it lacks, in nobody's way."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import records
from tests.support.world import World, build_world, git, restored

WORLDS = Path(__file__).resolve().parents[2] / "fixtures/worlds"
STATE = "refs/heads/reconciler/fleet/state"
VARIANTS = "manifests/variants"


def make_edges(root: Path) -> World:
    world = build_world(WORLDS / "57-fan-out", root)
    world.run("apply")
    return world


@pytest.fixture
def edges() -> World:
    """Three clusters, applied: `web` in all, `portal` in the first, a `base` by hand in the second."""
    return restored("fan-out", make_edges)


def generated(world: World) -> dict[str, list[str]]:
    """Return the packages that nobody declared by repository, as `expand` prints them."""
    found: dict[str, list[str]] = {}
    for variant in json.loads(world.run("expand", "-o", "json").out)["variants"]:
        if "reconciler.dev/requested-by" in variant["metadata"].get("annotations", {}):
            upstream, downstream = variant["spec"]["upstream"], variant["spec"]["downstream"]
            made = f"{downstream['package']} v{upstream.get('revision', upstream.get('tag'))}"
            found.setdefault(downstream["repo"], []).append(made)
    return {repo: sorted(several) for repo, several in found.items()}


def ops(world: World, *more: str) -> dict[str, str]:
    """Return what the plan does to each package."""
    plan = json.loads(world.run("plan", "-o", "json", *more).out)
    return {
        f"{c['repository']['name']}/{c['package']['path']}": f"{c['op']} {c['reason']}"
        for c in plan["changes"]
    }


def record(world: World, name: str) -> dict[str, Any]:
    return records.record(world.control, name, STATE)


def variant(name: str, repo: str, package: str, selector: str, downstream: str = "") -> str:
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata: {{name: {name}}}
spec:
  upstream: {{repo: blueprints, package: {package}, {selector}}}
  downstream: {{repo: {repo}, package: {downstream or package}}}
"""


CHAIN = ["base v2", "certs v1", "keys v1"]


def test_what_a_package_needs_is_brought_to_every_cluster_that_lacks_it(edges: World) -> None:
    assert generated(edges) == {"edge-1": CHAIN, "edge-3": CHAIN}

    drafts = [ref for ref in edges.all_refs()["edge-1.git"] if ref.startswith("refs/heads/drafts/")]
    assert [ref.split("/")[3] for ref in drafts] == ["base", "certs", "keys", "portal", "web"]
    assert list(record(edges, "requires-edge-1-base")["requestedBy"]) == [
        "default/portal",
        "default/web-edge-1-web",
    ]
    assert not record(edges, "web-edge-1-web")["requestedBy"]


@pytest.mark.parametrize(
    "blind",
    ["a set that does not parse", "a set that is wrong", "no blueprints", "no manifests", "another variant"],
)
def test_ignorance_deletes_nothing_that_was_needed(edges: World, blind: str) -> None:
    with edges.edit("control", "Want nothing any more") as copy:
        (copy / VARIANTS / "portal.yaml").unlink()
        match blind:
            case "a set that does not parse":
                (copy / VARIANTS / "web.yaml").write_text("kind: [\n")
            case "a set that is wrong":
                text = (copy / VARIANTS / "web.yaml").read_text()
                (copy / VARIANTS / "web.yaml").write_text(text.replace("package: web", "package: gone"))
            case "no manifests":
                text = (copy / "reconciler.yaml").read_text()
                (copy / "reconciler.yaml").write_text(
                    text.replace("- manifests", "- manifests/repositories.yaml")
                )
            case "another variant":
                (copy / VARIANTS / "web.yaml").unlink()
                (copy / VARIANTS / "broken.yaml").write_text("kind: PackageVariant\nmetadata: [\n")
    if blind == "no blueprints":
        (edges.root / "blueprints.git").rename(edges.root / "away")

    after = ops(edges)

    kept = {name: op for name, op in after.items() if name.rpartition("/")[2] in ("base", "certs", "keys")}
    assert kept
    # One package less needs it, so the text of its pull request may change; its content does not.
    assert all(op.startswith("keep") or op == "update PullRequestOutdated" for op in kept.values()), kept


@pytest.mark.parametrize("way", ["deleted", "upgraded"])
def test_what_stands_on_main_keeps_what_it_needs(edges: World, way: str) -> None:
    for package in ("web", "base", "certs"):
        edges.run("approve", f"edge-3/{package}")
    edges.run("apply")
    if way == "deleted":
        edges.lay(WORLDS / "57-fan-out/steps/leave-edge-3")
    else:
        with edges.edit("blueprints", "web does without base") as copy:
            text = (copy / "web/package.yaml").read_text()
            (copy / "web/package.yaml").write_text(text.partition("  dependencies:")[0])
        edges.tag("blueprints", "web/v2", "main")
        with edges.edit("control", "Take it") as copy:
            text = (copy / VARIANTS / "web.yaml").read_text()
            (copy / VARIANTS / "web.yaml").write_text(text.replace("revision: 1", "revision: 2"))
    needed = [f"edge-3/{name}" for name in ("base", "certs", "keys")]

    before = ops(edges)
    assert [before[name] for name in needed] == ["keep StillNeeded"] * 3
    edges.run("apply")
    waiting = edges.all_refs()
    edges.run("apply")
    assert edges.all_refs() == waiting
    edges.run("approve", "edge-3/web")

    after = ops(edges)
    assert [after[name] for name in needed] == ["delete NotDesired"] * 3


def test_without_its_record_what_was_generated_is_nobodys_to_delete(edges: World) -> None:
    for package in ("base", "certs", "keys", "web"):
        edges.run("approve", f"edge-3/{package}")
    edges.run("apply")
    git(edges.control, "update-ref", "-d", STATE)
    edges.lay(WORLDS / "57-fan-out/steps/leave-edge-3")

    assert {op for name, op in ops(edges).items() if name.startswith("edge-3/")} == {"keep OwnerUnknown"}
