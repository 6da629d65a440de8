"""What a variant does not ask for any more goes from a package that nobody edited."""

import pytest

from tests.support.git import Repo
from tests.support.small_world import app, manifest, published, variant
from tests.support.world import World, git

SEARCH_REPLACE = "ghcr.io/kptdev/krm-functions-catalog/search-replace:v0.2.0"
SET_LABELS = "ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.2.0"
CONTEXT = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\ndata:\n  name: web\n"


@pytest.fixture
def world() -> World:
    """One edge with `web` from a blueprint of which the third revision has a placeholder and a context."""
    world = published("edge-1")
    release(world, 3, "up")
    return world


def release(world: World, revision: int, value: str) -> None:
    with world.edit("blueprints", f"web v{revision}") as copy:
        (copy / "web/app.yaml").write_text(app("placeholder", revision))
        (copy / "web/package-context.yaml").write_text(f"{CONTEXT}  b: {value}\n")
    Repo(world.root / "blueprints.git").tag(f"web/v{revision}")


def ask(world: World, *more: str, revision: int = 3, name: str = "web-edge-1") -> str:
    """Publish what a manifest with these further lines of its spec asks for; return what the plan shows."""
    with world.edit("control", "ask") as copy:
        text = variant("edge-1", "web", revision=revision).replace("name: web-edge-1", f"name: {name}")
        (copy / manifest("edge-1", "web")).write_text(text + "".join(f"  {line}\n" for line in more))
    planned = world.run("plan").out
    for line in (("apply",), ("approve", "edge-1/web"), ("apply",)):
        done = world.run(*line)
        assert done.code == 0, done
    return planned


def package(world: World, but: str = "") -> dict[str, str]:
    """Return the published files, without the lines that have the word `but`."""
    names = git(world.root / "edge-1.git", "ls-tree", "-r", "--name-only", "main", "web").split()
    texts = {name: git(world.root / "edge-1.git", "show", f"main:{name}") for name in names}
    return {
        name: "\n".join(line for line in text.splitlines() if not but or but not in line)
        for name, text in texts.items()
    }


def search_replace(old: str, new: str) -> str:
    return f"- {{name: sr, image: {SEARCH_REPLACE}, configMap: {{by-value: {old}, put-value: {new}}}}}"


LABELS = f"- {{name: labels, image: {SET_LABELS}, configMap: {{team: red}}}}"
FUNCTIONS = ("pipeline:", "  mutators:")


def test_function_that_replaces_its_own_argument_keeps_it_and_gets_another(world: World) -> None:
    ask(world, *FUNCTIONS, f"  {search_replace('placeholder', 'prod')}")
    first = package(world)

    ask(world, *FUNCTIONS, f"  {search_replace('placeholder', 'dev')}")
    second = package(world)

    assert "by-value: placeholder" in first["web/Kptfile"]
    assert "name: prod\n" in first["web/app.yaml"]
    assert second == {path: text.replace("prod", "dev") for path, text in first.items()}, (
        "only the new value differs"
    )


@pytest.mark.parametrize("name", ["web-edge-1", "renamed"])
def test_metadata_that_functions_wrote_into_kptfile_and_context_goes_with_them(
    world: World, name: str
) -> None:
    ask(world)
    plain = package(world, but="reconciler.dev/owner")
    notes = (
        LABELS.replace("labels", "annotations").replace("team: red", "note: one").replace("0.2.0", "0.1.4")
    )
    ask(world, *FUNCTIONS, f"  {LABELS}", f"  {notes}")
    with world.edit("edge-1", "a label of a person") as copy:
        path = copy / "web/package-context.yaml"
        path.write_text(path.read_text().replace("    team: red\n", "    team: red\n    mine: kept\n"))
    assert "team: red" in package(world)["web/Kptfile"]
    assert "note: one" in package(world)["web/Kptfile"]

    ask(world, *FUNCTIONS, f"  {LABELS.replace('team', 'squad')}", name=name)
    changed = package(world)
    ask(world, name=name)

    assert "squad: red" in changed["web/Kptfile"]
    assert "team" not in changed["web/Kptfile"]
    done = package(world, but="reconciler.dev/owner")
    assert done["web/Kptfile"] == plain["web/Kptfile"]
    assert "team" not in done["web/package-context.yaml"]
    assert "note" not in done["web/package-context.yaml"]
    assert "mine: kept" in done["web/package-context.yaml"]


def test_data_that_a_function_wrote_into_a_context_goes_with_it(world: World) -> None:
    context = ("packageContext:", "  data: {region: east}")
    write = "- {name: zone, image: starlark:v0.5, configMap: {source: %s}}"
    source = (
        "\"for r in ctx.resource_list['items']:\\n  if r['kind'] == 'ConfigMap':\\n"
        "    r['data'].update(zone=r['data']['region'] + '-1')\""
    )
    ask(world, *context, *FUNCTIONS, f"  {write % source}", revision=1)
    with world.edit("edge-1", "a key of a person") as copy:
        path = copy / "web/package-context.yaml"
        path.write_text(f"{path.read_text()}  mine: kept\n")
    before = package(world)["web/package-context.yaml"]

    ask(world, *context, revision=1)

    after = package(world)["web/package-context.yaml"]
    assert set(before.splitlines()) - set(after.splitlines()) == {"  zone: east-1"}


def test_context_that_was_made_for_a_variant_alone_goes_with_its_keys(world: World) -> None:
    with world.edit("control", "not for deployment") as copy:
        path = copy / "manifests/repositories/edge-1.yaml"
        path.write_text(path.read_text().replace("deployment: true", "deployment: false"))
    with world.edit("edge-1", "without a context") as copy:
        (copy / "web/package-context.yaml").unlink()
    ask(world, "packageContext: {data: {zone: z1}}", revision=2)
    assert "  zone: z1" in package(world)["web/package-context.yaml"]

    ask(world, revision=2)

    assert "web/package-context.yaml" not in package(world)


def test_what_is_dropped_goes_from_a_draft_that_people_committed_to(world: World) -> None:
    lines = ("packageContext: {data: {region: east, zone: z1}}", *FUNCTIONS, f"  {LABELS}")
    with world.edit("control", "ask") as copy:
        text = variant("edge-1", "web", revision=3) + "".join(f"  {line}\n" for line in lines)
        (copy / manifest("edge-1", "web")).write_text(text)
    assert world.run("apply").code == 0
    (draft,) = (ref for ref in Repo(world.root / "edge-1.git").refs() if "/drafts/web/" in ref)
    repo = Repo(world.root / "edge-1.git")
    text = repo.read(draft, "web/package-context.yaml").decode()
    repo.commit({"web/package-context.yaml": text.replace("east", "mine")}, branch=draft.split("heads/")[1])

    ask(world)

    files = package(world)
    assert "  region: mine" in files["web/package-context.yaml"]
    assert not [path for path, text in files.items() if "zone" in text or "team: red" in text]
