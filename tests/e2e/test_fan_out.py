"""What the packages of variants need, on real repositories: brought where it lacks, in nobody's way."""

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.dependencies.catalog.index import PublishedPackages
from reconciler.expand import expand
from reconciler.read.dependencies import read_dependencies
from reconciler.resolve.fleet import resolve_fleet
from reconciler.run.plan import RunOptions, read_inputs
from tests.support import records
from tests.support.values import replace
from tests.support.world import World, build_world, git

WORLDS = Path(__file__).resolve().parents[2] / "fixtures/worlds"
STATE = "refs/heads/reconciler/fleet/state"
VARIANTS = "manifests/variants"


@pytest.fixture
def edges(tmp_path: Path) -> World:
    """Three clusters: `web` in all, `portal` in the first, a `base` by hand in the second."""
    return build_world(WORLDS / "57-fan-out", tmp_path / "w")


@pytest.fixture
def contested(tmp_path: Path) -> World:
    """Two clusters: `web` in both needs `base` v2, a `base` v1 by hand in the first."""
    return build_world(WORLDS / "58-ownership-conflict", tmp_path / "w")


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
    edges.run("apply")

    drafts = [ref for ref in edges.all_refs()["edge-1.git"] if ref.startswith("refs/heads/drafts/")]
    assert [ref.split("/")[3] for ref in drafts] == ["base", "certs", "keys", "portal", "web"]
    assert list(record(edges, "requires-edge-1-base")["requestedBy"]) == [
        "default/portal",
        "default/web-edge-1-web",
    ]
    assert not record(edges, "web-edge-1-web")["requestedBy"]


def test_what_is_locked_stays_until_somebody_lets_it_move(edges: World) -> None:
    edges.run("apply")
    edges.lay(WORLDS / "57-fan-out/steps/release-base-v3")

    assert generated(edges)["edge-1"] == CHAIN
    edges.run("lock", "--upgrade", "base.example.com")
    assert generated(edges)["edge-1"] == ["base v3", "certs v1", "keys v1"]
    assert ops(edges)["edge-1/base"] == "update UpstreamChanged"


def test_the_variant_that_somebody_wrote_is_never_overwritten(contested: World) -> None:
    contested.lay(WORLDS / "58-ownership-conflict/steps/another-package")
    said = contested.run("apply")

    assert said.code == 3
    assert "PackageVariant default/base-by-hand (manifests/variants/base.yaml:1)" in said.out + said.err
    assert generated(contested) == {"edge-2": ["base v2"]}
    draft = git(contested.root / "edge-1.git", "show", "drafts/base/packagevariant-1:base/Kptfile")
    assert "base-by-hand" in draft
    assert "directory: wiki" in draft
    assert not any("/web/" in ref for ref in contested.all_refs()["edge-1.git"])


def test_what_is_desired_by_hand_serves_if_it_fits(contested: World) -> None:
    assert ops(contested)["edge-1/web"] == "block DependencyConflict"
    contested.lay(WORLDS / "58-ownership-conflict/steps/a-fitting-revision")

    assert ops(contested)["edge-1/web"] == "create New"
    assert generated(contested) == {"edge-2": ["base v2"]}


@pytest.mark.parametrize(
    "blind",
    ["a set that does not parse", "a set that is wrong", "no blueprints", "no manifests", "another variant"],
)
def test_ignorance_deletes_nothing_that_was_needed(edges: World, blind: str) -> None:
    edges.run("apply")
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


def test_nobody_needs_it_any_more(edges: World) -> None:
    edges.run("apply")
    with edges.edit("control", "Want nothing any more") as copy:
        (copy / VARIANTS / "portal.yaml").unlink()
        (copy / VARIANTS / "web.yaml").unlink()

    after = ops(edges)
    assert {name for name, op in after.items() if op == "delete NotDesired"} == {
        *(f"edge-{n}/{p}" for n in (1, 3) for p in ("base", "certs", "keys", "web")),
        "edge-1/portal",
        "edge-2/web",
    }
    edges.run("apply")
    edges.run("apply")
    files = " ".join(records.recorded(edges.control, STATE))
    assert "requires-" not in files
    assert "locks/edge-" not in files


def test_without_its_record_what_was_generated_is_nobodys_to_delete(edges: World) -> None:
    edges.run("apply")
    for package in ("base", "certs", "keys", "web"):
        edges.run("approve", f"edge-3/{package}")
    edges.run("apply")
    git(edges.control, "update-ref", "-d", STATE)
    edges.lay(WORLDS / "57-fan-out/steps/leave-edge-3")

    assert {op for name, op in ops(edges).items() if name.startswith("edge-3/")} == {"keep OwnerUnknown"}


def test_a_followed_branch_counts_with_what_it_says_now(edges: World) -> None:
    with edges.edit("control", "Follow main") as copy:
        (copy / VARIANTS / "web.yaml").unlink()
        (copy / VARIANTS / "portal.yaml").write_text(variant("portal", "edge-3", "portal", "branch: main"))
    assert generated(edges) == {"edge-3": CHAIN}
    with edges.edit("blueprints", "Need only certs") as copy:
        text = (copy / "portal/package.yaml").read_text()
        (copy / "portal/package.yaml").write_text(
            text.replace('base.example.com, version: ">=2.0.0"', "certs.example.com")
        )

    assert generated(edges) == {"edge-3": ["certs v1", "keys v1"]}


def test_what_may_stand_once_in_a_cluster_is_shared_by_its_namespaces(edges: World) -> None:
    with edges.edit("control", "A second tenant in the first cluster") as copy:
        (copy / VARIANTS / "base.yaml").unlink()
        repositories = (copy / "manifests/repositories.yaml").read_text().split("---\n")
        tenant = [one.replace("metadata:\n", "metadata:\n  namespace: tenant\n") for one in repositories[:2]]
        tenant[1] = tenant[1].replace("labels:", "annotations: {reconciler.dev/cluster: edge-1}\n  labels:")
        tenant[1] = tenant[1].replace("edge-1\n  annotations", "rented\n  annotations")
        tenant[1] = tenant[1].replace("../edge-1.git", "../edge-2.git\n    directory: rented")
        (copy / "manifests/tenant.yaml").write_text("---\n".join(tenant))
        wish = variant("portal", "rented", "portal", "revision: 1").replace(
            "portal}", "portal, namespace: tenant}", 1
        )
        (copy / VARIANTS / "tenant.yaml").write_text(wish)

    own = ["default/requires-edge-1-base", "default/requires-edge-2-base", "default/requires-edge-3-base"]
    assert _bases(edges) == [*own, "tenant/requires-rented-base"]
    with edges.edit("blueprints", "Allow one base") as copy:
        text = (copy / "base/package.yaml").read_text()
        (copy / "base/package.yaml").write_text(text + "  installationType: onePerCluster\n")
    for number in (1, 2):
        edges.tag("blueprints", f"base/v{number}", "main")
    assert _bases(edges) == own


def _bases(world: World) -> list[str]:
    expanded = json.loads(world.run("expand", "-o", "json").out)["variants"]
    named = ((one["metadata"], one["spec"]["upstream"]["package"]) for one in expanded)
    return [f"{meta['namespace']}/{meta['name']}" for meta, package in named if package == "base"]


def test_the_order_of_maps_and_lists_does_not_matter(contested: World) -> None:
    world = read_inputs(RunOptions(str(contested.control), contested.root / "cache"))
    inventory, known = world.inventory, read_dependencies(world.inventory, world.mirrors)
    turned = replace(
        inventory,
        variants=inventory.variants[::-1],
        sets=inventory.sets[::-1],
        repositories=dict(reversed(inventory.repositories.items())),
    )
    published = known.published
    backwards = PublishedPackages(
        published.candidates[::-1], dict(reversed(published.revisions.items())), published.warnings
    )

    here = resolve_fleet(inventory, expand(inventory), known)
    there = resolve_fleet(turned, expand(turned), replace(known, published=backwards))

    assert here.desired.variants == there.desired.variants
    assert here.locks.files == there.locks.files
    assert here.locks.problems == there.locks.problems != ()
    assert here.resolution.variants == there.resolution.variants


@pytest.mark.parametrize("way", ["deleted", "upgraded"])
def test_what_stands_on_main_keeps_what_it_needs(edges: World, way: str) -> None:
    edges.run("apply")
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


def test_what_a_variant_needs_of_another_ecosystem_is_delivered_to_its_cluster(edges: World) -> None:
    header = "apiVersion: reconciler.dev/v1alpha1\nkind: PackageVersion\nsource: db.io\nversion: 1.0.0\n"
    package = "apiVersion: data.packaging.carvel.dev/v1alpha1\nkind: Package\n"
    package += "spec: {refName: db.io, version: 1.0.0}\n"
    with edges.edit("blueprints", "portal needs a database") as copy:
        manifest = copy / "portal/package.yaml"
        manifest.write_text(
            f"{manifest.read_text()}  - {{package: {{refName: db.io, version: '>=1.0.0'}}}}\n"
        )
    edges.tag("blueprints", "portal/v1", "main")
    with edges.edit("control", "Add it to the index") as copy:
        (copy / "index/db").mkdir(parents=True)
        (copy / "index/db/package.yaml").write_text(f"{header}---\n{package}")
    assert "names a service account" in edges.run("plan").out
    with edges.edit("control", "Name who installs it") as copy:
        text = (copy / VARIANTS / "portal.yaml").read_text()
        note = "metadata:\n  annotations: {reconciler.dev/service-account: installer}\n"
        (copy / VARIANTS / "portal.yaml").write_text(text.replace("metadata:\n", note))

    assert edges.run("apply").code == 0
    drafts = [ref for ref in edges.all_refs()["edge-1.git"] if "/drafts/dependencies/" in ref]
    files = git(
        edges.root / "edge-1.git", "grep", "-h", "-e", "serviceAccountName", "-e", "refName", drafts[0]
    )
    assert sorted(line.strip() for line in files.splitlines()) == [
        "refName: db.io",
        "serviceAccountName: installer",
    ]
