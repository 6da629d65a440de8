"""Rollouts of a set over three clusters as real repositories: ways back, failures, renames, orders."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.git import Repo, kptfile, make_repository
from tests.support.signing import make_key, signing_options
from tests.support.small_world import app, repository
from tests.support.world import World, git

EDGES = ("ap1", "eu1", "us1")
WAVES = """\
  rollouts:
  - waves:
    - name: canary
      size: 1
    - name: main
"""
CONFIGURATION = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata: {name: fleet}
spec:
  manifests: [manifests]
"""
ROLL_BACK, SKIP, FOLLOW = (
    f"reconciler.dev/{name}" for name in ("rollout-rollback", "rollout-skip", "follow-moved-tag")
)


def blueprint(revision: int, folder: str = "") -> dict[str, str]:
    return {f"{folder}web/Kptfile": kptfile("web"), f"{folder}web/app.yaml": app("web", revision)}


def the_set(revision: int, notes: Mapping[str, str], name: str = "web") -> str:
    value = {
        "apiVersion": "config.porch.kpt.dev/v1alpha2",
        "kind": "PackageVariantSet",
        "metadata": {"name": "web", "namespace": "default", "annotations": dict(notes)},
        "spec": {
            "upstream": {"repo": "blueprints", "package": "web", "revision": revision},
            "targets": [
                {
                    "repositories": [{"name": edge} for edge in EDGES],
                    "template": {"downstream": {"package": name}},
                }
            ],
        },
    }
    return json.dumps(value, indent=1)


class Fleet(World):
    """The world, and what people do in it."""

    def want(self, revision: int, notes: Mapping[str, str] | None = None, name: str = "web") -> None:
        Repo(self.control).commit({"manifests/set.json": the_set(revision, notes or {}, name)})

    def configure(self, more: str = WAVES) -> None:
        Repo(self.control).commit({"reconciler.yaml": CONFIGURATION + more})

    def settle(self) -> None:
        """Apply and approve until nothing is left to do."""
        self.run("apply")
        while "approved" in self.run("approve", "--all").out:
            self.run("apply")

    def is_quiet(self) -> bool:
        """Whether one more run writes nothing, also from a fresh clone."""
        self.run("apply")
        before = self.all_refs()
        self.run("apply", cache="fresh")
        return self.all_refs() == before

    def image(self, edge: str, name: str = "web") -> str:
        """Return the revision that the package on main runs, "" without a package."""
        try:
            text = self.repo(edge).read("main", f"{self.folder(edge)}{name}/app.yaml").decode()
        except KeyError:
            return ""
        return text.partition("web:")[2].split()[0]

    def images(self, name: str = "web") -> list[str]:
        return [self.image(edge, name) for edge in EDGES]

    def repo(self, edge: str) -> Repo:
        own = self.root / f"{edge}.git"
        return Repo(own if own.exists() else self.root / "fleet.git")

    def folder(self, edge: str) -> str:
        return "" if (self.root / f"{edge}.git").exists() else f"clusters/{edge}/"


def make(root: Path, more: str = WAVES) -> Fleet:
    """Return the fleet with the first revision everywhere."""
    root.mkdir()
    upstream = make_repository(root / "blueprints.git", blueprint(1))
    upstream.tag("web/v1")
    upstream.commit(blueprint(2), message="web v2\n")
    upstream.tag("web/v2")
    for edge in EDGES:
        make_repository(root / f"{edge}.git", {"README.md": f"{edge}\n"})
    files = {f"manifests/{name}.yaml": repository(name) for name in ("blueprints", *EDGES)}
    make_repository(root / "control.git", {"reconciler.yaml": CONFIGURATION, **files})
    return started(Fleet(root), more)


def make_monorepo(root: Path) -> Fleet:
    """Return the fleet as directories of one repository, with the blueprints beside them."""
    root.mkdir()
    fleet = make_repository(
        root / "fleet.git", {**blueprint(1, "blueprints/"), "clusters/README.md": "clusters\n"}
    )
    fleet.tag("blueprints/web/v1")
    fleet.commit(blueprint(2, "blueprints/"), message="web v2\n")
    fleet.tag("blueprints/web/v2")
    folders = {"blueprints": "blueprints", **{edge: f"clusters/{edge}" for edge in EDGES}}
    files = {
        f"manifests/{name}.yaml": repository(name).replace(f"../{name}.git", "../fleet.git")
        + f"    directory: {folder}\n"
        for name, folder in folders.items()
    }
    make_repository(root / "control.git", {"reconciler.yaml": CONFIGURATION, **files})
    return started(Fleet(root))


def started(world: Fleet, more: str = WAVES) -> Fleet:
    world.want(1)
    world.settle()
    assert world.images() == ["v1"] * 3
    world.configure(more)
    return world


@pytest.mark.parametrize("layout", ["repositories", "monorepo"])
def test_a_rollback_reaches_every_package_and_leaves_nothing_to_do(tmp_path: Path, layout: str) -> None:
    world = make(tmp_path / "w") if layout == "repositories" else make_monorepo(tmp_path / "w")
    revision = "web/v2" if layout == "repositories" else "blueprints/web/v2"
    world.want(2)
    first = world.run("apply").out
    assert f"{revision.replace('2', '1')} -> {revision}" in first
    world.settle()
    assert world.images() == ["v2"] * 3

    world.want(2, {ROLL_BACK: revision})
    world.settle()

    assert world.images() == ["v1"] * 3
    assert world.is_quiet()
    told = world.run("explain", "ap1/web").out
    assert "manifests/set.json" in told
    assert "is rolled back" in told


@pytest.mark.parametrize("lost", ["state", "policy", "unread"])
def test_a_rollback_knows_what_main_had_before(tmp_path: Path, lost: str) -> None:
    world = make(tmp_path / "w")
    world.want(2)
    if lost == "unread":
        (world.root / "eu1.git").rename(world.root / "away")
    world.run("apply")
    world.run("approve", "--all")
    if lost == "unread":
        (world.root / "away").rename(world.root / "eu1.git")
    elif lost == "policy":
        world.configure("")
        world.run("apply")
        world.configure()
    world.settle()
    assert world.images() == ["v2"] * 3
    if lost == "state":
        for branch in ("state", "status"):
            Repo(world.control).delete(f"refs/heads/reconciler/fleet/{branch}")

    world.want(2, {ROLL_BACK: "web/v2"})
    world.settle()

    assert world.images() == ["v1"] * 3
    assert world.is_quiet()


def test_a_rollback_takes_no_revision_that_is_not_verified(tmp_path: Path) -> None:
    world = make(tmp_path / "w")
    world.want(2)
    world.settle()
    key = make_key(tmp_path / "key")
    signed = ("tag", "-s", "-f", "-m", "web/v2", "web/v2", "web/v2^{commit}")
    git(world.root / "blueprints.git", *signing_options(key), *signed)
    public = key.private.with_suffix(".pub").read_text().strip()
    prefix = world.root / "blueprints.git"
    world.configure(f'{WAVES}  verify:\n  - prefix: {prefix}\n    sshKeys: ["{public}"]\n')

    world.want(2, {ROLL_BACK: "web/v2"})
    ran = world.run("apply")
    world.settle()

    assert ran.code == Exit.INVALID_INPUT
    assert "UpstreamNotVerified" in ran.out
    assert "wave canary: rolled back, 1 of 1 published, 1 cannot go back (ap1/web: Upstream web/v1" in ran.out
    assert world.images() == ["v2"] * 3


def test_a_set_that_renames_its_package_leaves_no_cluster_without_it(tmp_path: Path) -> None:
    world = make(tmp_path / "w")
    world.want(1, name="shop")
    for _ in range(8):
        ran = world.run("apply")
        world.run("approve", "--all")
        assert all(old or new for old, new in zip(world.images(), world.images("shop"), strict=True)), ran.out

    assert world.images() == [""] * 3
    assert world.images("shop") == ["v1"] * 3
    assert world.is_quiet()


def test_a_set_follows_a_moved_tag_by_one_annotation(tmp_path: Path) -> None:
    world = make(tmp_path / "w")
    world.want(2)
    world.run("apply")
    world.run("approve", "--all")
    world.run("apply")
    upstream = Repo(world.root / "blueprints.git")
    moved = upstream.commit(blueprint(9), message="web v2, again\n")
    git(upstream.path, "tag", "--force", "web/v2", moved)

    told = world.run("apply").out
    assert f"annotate PackageVariantSet default/web with {FOLLOW}: {moved}" in told
    assert "1 to move (ap1/web: tag web/v2 of blueprints moved" in told
    world.want(2, {FOLLOW: moved[:12]})
    world.settle()

    assert world.images() == ["v9"] * 3
    assert world.is_quiet()


@pytest.mark.parametrize(
    ("order", "hint"),
    [
        ({ROLL_BACK: "v2"}, 'write "web/v2"'),
        ({SKIP: "web/v2/canary, web/v2/main"}, "Separate several with semicolons"),
        ({SKIP: "web/v2/canari"}, "Did you mean canary?"),
    ],
)
def test_an_order_that_is_not_understood_is_refused_by_line(
    tmp_path: Path, order: dict[str, str], hint: str
) -> None:
    world = make(tmp_path / "w")
    world.want(2, order)

    ran = world.run("apply")

    assert ran.code == Exit.INVALID_INPUT
    assert "manifests/set.json:8:" in ran.out
    assert hint in ran.out
    assert "drafts" not in "".join(world.all_refs()["ap1.git"])


def test_a_closed_pull_request_fails_its_wave_without_its_branch(tmp_path: Path) -> None:
    world = make(tmp_path / "w")
    world.want(2)
    world.run("apply")
    world.run("pr", "close", "ap1#2")
    branch = world.draft_branch("ap1", "web")
    Repo(world.root / "ap1.git").delete(f"refs/heads/{branch}")

    ran = world.run("apply")

    assert ran.code == Exit.WAITING
    assert "wave canary: failed, 0 of 1 published, 1 failed (ap1/web: pull request 2 was closed)" in ran.out
    assert f'{SKIP}: "web/v2/canary"' in ran.out
    assert world.is_quiet()


@pytest.mark.parametrize("group_by", ["repository", "wave"])
def test_every_command_names_a_pull_request_of_a_monorepo_alike(tmp_path: Path, group_by: str) -> None:
    world = make_monorepo(tmp_path / "w")
    world.configure(f"  pullRequests: {{groupBy: {group_by}}}\n{WAVES if group_by == 'wave' else ''}")
    world.want(2)
    world.run("apply")
    rows = world.run("status", "--output", "csv").out.splitlines()[1:]
    named = {row.split(",")[6] for row in rows} - {""}
    listed = {line.split()[0]: line for line in world.run("pr", "list").out.splitlines()[1:]}

    assert listed.keys() == named
    assert all("in review" in line for line in listed.values())
    assert all(world.run("pr", "show", name).code == Exit.DONE for name in named)
