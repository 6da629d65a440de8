"""The text of every kind of pull request, as reviewers read it, against fixtures/pull-requests."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.forge import body_marker
from tests.support.forges.server import Pull
from tests.support.forges.world import ORGANISATION, ForgeWorld, forge_world
from tests.support.git import Repo, kptfile
from tests.support.small_world import app, manifest, repository, variant

GOLDEN = Path(__file__).resolve().parents[2] / "fixtures/pull-requests"
EDGE = "edge"
KEPT = ("upgrade", "conflict", "edited", "deleted", "orphan", "moved", "retry")
KINDS = ("new", *KEPT, "rollback", "adopted")
DRAFT = "drafts/{}/packagevariant-{}"


def changed(world: ForgeWorld, files: dict[str, str | None]) -> None:
    world.repo("control").commit(files, message="Change\n")


def declared(package: str, revision: int, more: str = "", name: str = "") -> str:
    text = variant(EDGE, package, revision=revision) + more
    return text.replace(f"name: {package}-{EDGE}", f"name: {name}") if name else text


def host_blueprints(world: ForgeWorld) -> None:
    """Serve the upstream repository by the same forge, so that links lead there."""
    path = world.root / ORGANISATION / "blueprints.git"
    (world.root / "blueprints.git").rename(path)
    world.simulator.host(f"{ORGANISATION}/blueprints", Repo(path))
    address = world.simulator.url(f"{ORGANISATION}/blueprints")
    text = repository("blueprints").replace("../blueprints.git", address)
    changed(world, {"manifests/repositories/blueprints.yaml": text})


def merge_all(world: ForgeWorld) -> None:
    for pull in world.simulator.open_pulls(f"{ORGANISATION}/{EDGE}"):
        world.simulator.merge(f"{ORGANISATION}/{EDGE}", pull.number)


def shown(world: ForgeWorld, pull: Pull) -> str:
    """Return title and generated text without addresses and ids that differ from run to run."""
    text = f"# {pull.title}\n\n{body_marker.parse(pull.body).body}\n"
    text = text.replace(world.simulator.address, "https://forge.example").replace(str(world.root), "<world>")
    text = re.sub(r"\b[0-9a-f]{40}\b", "<oid>", text)
    text = re.sub(r"`[0-9a-f]{8}`\) \|", "`<oid>`) |", text)  # commits of main, which has the address
    return re.sub(r"\b[0-9a-f]{12}\b", "<oid>", text)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        root = tmp_path_factory.mktemp("texts")
        found = dict(single(root / "single", monkeypatch))
        found["group"] = group(root / "group", monkeypatch)
        found["lock"] = lock(root / "lock", monkeypatch)
        yield found


def single(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Play a package of each kind through its life on one repository."""
    with forge_world(
        "github", root, monkeypatch, edges=(EDGE,), packages=KINDS, hosted_control=True
    ) as world:
        host_blueprints(world)
        world.repo(EDGE).commit(
            {
                "adopted/Kptfile": kptfile("adopted"),
                "adopted/notes.md": "Ours.\n",
                "adopted/app.yaml": app("adopted", 7),
            }
        )
        changed(
            world,
            {
                manifest(EDGE, "new"): None,
                manifest(EDGE, "adopted"): None,
                manifest(EDGE, "rollback"): declared("rollback", 2),
            },
        )
        world.run()
        merge_all(world)
        world.run()
        edited = app("conflict", 1).replace("conflict:v1", "conflict:hotfix")
        world.repo(EDGE).commit({"conflict/app.yaml": edited, "upgrade/notes.md": "Ours.\n"})
        changed(
            world,
            {
                manifest(EDGE, "new"): declared("new", 1),
                manifest(EDGE, "adopted"): declared("adopted", 1, "  adoptionPolicy: adoptExisting\n"),
                manifest(EDGE, "rollback"): declared("rollback", 1),
                manifest(EDGE, "orphan"): declared("orphan", 1, "  deletionPolicy: orphan\n"),
                **{manifest(EDGE, p): declared(p, 2) for p in ("upgrade", "conflict", "edited", "retry")},
            },
        )
        world.run()
        world.repo(EDGE).commit({"edited/notes.md": "Ours.\n"}, branch=DRAFT.format("edited", 2))
        (rejected,) = [p for p in world.pulls(EDGE) if p.state == "open" and "/retry/" in p.head]
        world.simulator.close(f"{ORGANISATION}/{EDGE}", rejected.number)
        retry = declared("retry", 2).replace(
            "namespace: default\n", 'namespace: default\n  annotations: {reconciler.dev/retry: "1"}\n', 1
        )
        changed(
            world,
            {
                manifest(EDGE, "deleted"): None,
                manifest(EDGE, "orphan"): None,
                manifest(EDGE, "moved"): declared("moved", 1, name="renamed"),
            },
        )
        world.run()
        changed(world, {manifest(EDGE, "retry"): retry})
        world.run()
        for pull in world.simulator.open_pulls(f"{ORGANISATION}/{EDGE}"):
            (kind,) = (step for step in pull.head.split("/") if step in KINDS)
            yield kind, shown(world, pull)


def group(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    more = "  pullRequests: {groupBy: repository}\n"
    with forge_world(
        "gitea", root, monkeypatch, edges=(EDGE,), packages=("web", "db"), more=more, hosted_control=True
    ) as world:
        host_blueprints(world)
        world.run()
        merge_all(world)
        world.run()
        world.upgrade("web")
        world.upgrade("db")
        world.run()
        (pull,) = world.simulator.open_pulls(f"{ORGANISATION}/{EDGE}")
        return shown(world, pull)


def lock(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    more = "  lock: {mode: reviewed}\n"
    with forge_world(
        "gitlab", root, monkeypatch, edges=(EDGE,), packages=("web",), more=more, hosted_control=True
    ) as world:
        world.repo("blueprints").tag("web/stable", "web/v1")
        changed(world, {manifest(EDGE, "web"): declared("web", 1).replace("revision: 1", "tag: stable")})
        world.run()
        (pull,) = world.pulls("control")
        return shown(world, pull)


@pytest.mark.parametrize("kind", [*KINDS, "group", "lock"])
def test_text_tells_what_why_what_stays_and_what_to_do(
    kind: str, texts: dict[str, str], *, update_golden: bool
) -> None:
    golden = GOLDEN / f"{kind}.md"
    if update_golden:
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(texts[kind])

    assert texts[kind] == golden.read_text()


def test_every_golden_text_is_one_of_a_kind() -> None:
    assert {path.stem for path in GOLDEN.glob("*.md")} == {*KINDS, "group", "lock"}
