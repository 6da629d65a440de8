"""Porch and we share repositories: ours is read by its rules, and one of its own is taken over by ours."""

import subprocess
from pathlib import Path

import pytest

from reconciler.api.kptfile import LOCATION, OWNER
from reconciler.git.commits import parse_annotations
from reconciler.names.ids import Lifecycle
from reconciler.names.refs import HEADS, TAGS, deletion_proposed_ref, draft_ref, parse_ref, tag_ref
from tests.support.conformance import require_file
from tests.support.git import Repo, kptfile, make_repository
from tests.support.identifiers import without_identifiers
from tests.support.small_world import manifest, repository, write_world
from tests.support.world import World, git

EDGE = "edge-1"
PROPOSED = f"{HEADS}proposed/web/packagevariant-1"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = write_world(tmp_path / "w", (EDGE,))
    assert world.run("apply", "--quiet").code == 0
    return world


@pytest.fixture
def edge(world: World) -> Repo:
    return Repo(world.root / f"{EDGE}.git")


def shown(edge: Repo) -> set[tuple[str, str, int, Lifecycle]]:
    """Return the package revisions that Porch discovers: what a ref names, if its Kptfile is there."""
    found = set()
    for ref in edge.refs():
        named = parse_ref(ref)
        if named and "Kptfile" in git(edge.path, "ls-tree", "--name-only", ref, f"{named.path}/"):
            found.add(tuple(named))
    return found


def annotation(edge: Repo, ref: str):
    """Return the last `kpt:` line of a ref's commit, as Porch reads it."""
    return parse_annotations(git(edge.path, "log", "-1", "--format=%B", ref))[-1]


def test_a_draft_is_porchs_draft(edge: Repo) -> None:
    ref = draft_ref("web", "packagevariant-1")

    assert ("web", "packagevariant-1", 0, Lifecycle.DRAFT) in shown(edge)
    assert git(edge.path, "rev-parse", f"{ref}^") == git(edge.path, "rev-parse", "main"), "one commit on main"
    said = annotation(edge, ref)
    assert (said.package, said.workspace, said.revision) == ("web", "packagevariant-1", "0")
    assert said.task is not None
    assert said.task["type"] == "clone"
    message = git(edge.path, "log", "-1", "--format=%B", ref)
    assert message.startswith("Creating new revision by cloning\n\n\nkpt:{")


def test_a_proposal_is_the_same_commit_under_another_name(world: World, edge: Repo) -> None:
    draft = edge.find(draft_ref("web", "packagevariant-1"))

    assert world.run("approve", "--propose-only", f"{EDGE}/web").code == 0

    assert edge.find(PROPOSED) == draft
    assert edge.find(draft_ref("web", "packagevariant-1")) is None
    assert ("web", "packagevariant-1", 0, Lifecycle.PROPOSED) in shown(edge)
    assert world.run("apply", "--quiet").code == 0
    assert edge.find(PROPOSED) == draft


def test_a_publication_has_two_parents_a_light_tag_and_no_draft(world: World, edge: Repo) -> None:
    main, draft = edge.oid("main"), edge.find(draft_ref("web", "packagevariant-1"))

    assert world.run("approve", f"{EDGE}/web").code == 0

    tag = tag_ref("web", 1)
    assert git(edge.path, "cat-file", "-t", tag) == "commit\n", "lightweight"
    assert git(edge.path, "log", "-1", "--format=%P", tag).split() == [main, draft]
    assert edge.find(f"{HEADS}main") == edge.find(tag)
    assert ("web", "v1", 1, Lifecycle.PUBLISHED) in shown(edge)
    assert not [named for named in shown(edge) if named[0] == "web" and named[3] is Lifecycle.DRAFT]
    message = git(edge.path, "log", "-1", "--format=%B", tag)
    assert message.startswith("Approving package revision web/1\n\nkpt:{")
    said = annotation(edge, tag)
    assert (said.package, said.workspace, said.revision) == ("web", "packagevariant-1", "1")


def test_a_deletion_is_proposed_where_porch_looks_for_it(world: World, edge: Repo) -> None:
    world.run("approve", f"{EDGE}/web")
    world.run("apply", "--quiet")
    with world.edit("control", "Remove web") as copy:
        (copy / manifest(EDGE, "web")).unlink()

    assert world.run("apply", "--quiet").code == 0

    ref = deletion_proposed_ref("web", 1)
    assert edge.find(ref) == edge.find(tag_ref("web", 1))
    assert ("web", "v1", 1, Lifecycle.DELETION_PROPOSED) in shown(edge)


VARIANT = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata: {{name: basens, namespace: default}}
spec:
  upstream: {{repo: blueprints, package: basens, revision: {revision}}}
  downstream: {{repo: porch, package: basens}}
  adoptionPolicy: adoptExisting
"""
LABEL = "    upgraded: yes-it-is\n"


def adopting(base: Path) -> World:
    """A repository that Porch wrote, and a variant that is to take one of its packages over."""
    (base / "extracted").mkdir(parents=True)
    archive = require_file("porch/fixtures/drafts-repository.tar")
    subprocess.run(["tar", "-xf", archive, "-C", base / "extracted", "--no-same-owner"], check=True)
    git(base, "clone", "-q", "--bare", str(base / "extracted" / ".git"), str(base / "porch.git"))
    git(base / "porch.git", "fetch", "-q", "origin", "+refs/*:refs/*")
    blueprints = make_repository(base / "blueprints.git")
    namespace = Repo(base / "porch.git").read("main", "basens/namespace.yaml").decode()
    for number, text in enumerate((namespace, namespace + LABEL), start=1):
        blueprints.commit({"basens/Kptfile": kptfile("basens"), "basens/namespace.yaml": text})
        blueprints.tag(f"basens/v{number}")
    registered = {f"manifests/repositories/{n}.yaml": repository(n) for n in ("blueprints", "porch")}
    configuration = "apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata: {name: fleet}\n"
    control = {"reconciler.yaml": f"{configuration}spec: {{manifests: [manifests]}}\n", **registered}
    make_repository(base / "control.git", {**control, "manifests/basens.yaml": VARIANT.format(revision=1)})
    return World(base)


def test_a_repository_of_porch_is_adopted_upgraded_and_published(tmp_path: Path) -> None:
    world = adopting(tmp_path / "w")
    porch = Repo(world.root / "porch.git")
    before = porch.refs()
    theirs = {ref: oid for ref, oid in before.items() if ref.startswith((f"{HEADS}drafts/", TAGS))}
    namespace = porch.read("main", "basens/namespace.yaml")

    said = world.run("apply")
    assert (said.code, "Adopted" in said.out) == (0, True), said
    adopted = world.draft_branch("porch", "basens")
    assert adopted == "drafts/basens/packagevariant-3", "numbered after the revisions that Porch published"
    assert without_identifiers(porch.read(adopted, "basens/namespace.yaml").decode()) == namespace.decode()
    assert world.run("approve", "porch/basens").code == 0
    text = porch.read("main", "basens/Kptfile").decode()
    assert f"{OWNER}: fleet/default/basens" in text
    assert f"{LOCATION}: porch/basens" in text
    assert porch.find(tag_ref("basens", 3)) == porch.oid("main")

    with world.edit("control", "Upgrade") as copy:
        (copy / "manifests/basens.yaml").write_text(VARIANT.format(revision=2))
    assert world.run("apply", "--quiet").code == 0
    draft = world.draft_branch("porch", "basens")
    assert annotation(porch, f"{HEADS}{draft}").task["type"] == "upgrade"
    upgraded = porch.read(draft, "basens/namespace.yaml").decode()
    assert "  labels:\n" in upgraded
    assert sorted(without_identifiers(upgraded).splitlines()) == sorted(
        (namespace + LABEL.encode()).decode().splitlines()
    )
    assert porch.read(draft, "basens/README.md") == porch.read("main", "basens/README.md"), (
        "Porch's own stays"
    )
    assert world.run("approve", "porch/basens").code == 0
    assert ("basens", "v4", 4, Lifecycle.PUBLISHED) in shown(porch)

    assert world.run("apply", "--quiet").code == 0
    after = world.all_refs()
    assert world.run("apply", "--quiet", cache="fresh").code == 0
    assert world.all_refs() == after, "a fixed point"
    assert theirs.items() <= porch.refs().items(), "other drafts and every tag stand where Porch left them"
