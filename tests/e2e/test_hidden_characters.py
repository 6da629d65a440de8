"""Branches, tags, paths, names and messages with invisible characters: no output has them as they are."""

import json

import pytest

from tests.support.git import Repo
from tests.support.small_world import app, manifest, variant, write_world
from tests.support.world import World, git

EDGE, NAME = "edge-1", "edge-1/web"
HIDDEN = "\u202e\ufe0f\u3164\u034f\U000e0041\U000e0101\u2066"
"""An override, a selector, a filler that is a letter, a joiner, a tag, another selector, an isolate."""
FORMS = (
    *(f"plan -o {form}" for form in ("text", "json", "markdown", "sarif")),
    *(
        "plan --diff --all",
        "plan --verbose",
        "apply --quiet",
        "apply -o markdown",
        "doctor",
        "expand -o json",
    ),
    *(f"explain {NAME}", f"explain {NAME} -o json", f"explain {NAME} --why-not newest --history"),
    *(f"status -o {form}" for form in ("text", "wide", "csv", "json", "jsonl", "yaml")),
    *("graph", "pr list", "pr list -o json", f"pr show {NAME}", f"pr show {NAME} -o json"),
    *(f"check --head proposal -o {form}" for form in ("text", "json", "markdown", "sarif")),
    "check --head proposal --diff",
)


def spell(world: World) -> None:
    """Put the characters wherever somebody who may push to one repository can."""
    upstream, edge = world.root / "blueprints.git", world.root / f"{EDGE}.git"
    with world.edit("blueprints", f"web {HIDDEN}") as copy:
        (copy / "web/app.yaml").write_text(app("web", 9))
    git(upstream, "branch", f"rel{HIDDEN}", "main")
    git(upstream, "tag", f"db/x{HIDDEN}", "main")
    with world.edit("control", f"ask {HIDDEN}") as copy:
        web = variant(EDGE, "web").replace("revision: 1", f'branch: "rel{HIDDEN}"')
        (copy / manifest(EDGE, "web")).write_text(web)
        db = variant(EDGE, "db").replace("revision: 1", f'tag: "db/x{HIDDEN}"')
        (copy / manifest(EDGE, "db")).write_text(db)
        wrong = variant("edge-9", "db").replace("db-edge-9", f"db{HIDDEN}")
        (copy / f"manifests/na{HIDDEN}me.yaml").write_text(wrong)
    world.run("apply", "--quiet")
    draft = world.draft_branch(EDGE, "web")
    for name in (f"drafts/web/foreign{HIDDEN}", f"drafts/we{HIDDEN}b/packagevariant-1", f"other{HIDDEN}"):
        git(edge, "branch", name, draft)
    with world.edit(EDGE, f"mine {HIDDEN}\n\nKeep: {HIDDEN} x y", branch=draft) as copy:
        (copy / "web/app.yaml").write_text(app("web", 7))
        (copy / f"web/f{HIDDEN}.yaml").write_text("a: 1\n")
        (copy / "web/readme.md").write_text(f"text {HIDDEN}\n")
    with world.edit(EDGE, f"main {HIDDEN}") as copy:
        (copy / f"x{HIDDEN}").mkdir()
        (copy / f"x{HIDDEN}/Kptfile").write_text(
            "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {name: x}\n"
        )
    git(world.control, "branch", "proposal", "main")
    with world.edit("control", f"propose {HIDDEN}", branch="proposal") as copy:
        (copy / f"manifests/more{HIDDEN}.yaml").write_text(wrong.replace("name: db", "name: other"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = write_world(tmp_path_factory.mktemp("hidden") / "w", (EDGE,))
    world.run("apply", "--quiet")
    world.run("approve", NAME)
    spell(world)
    return world


@pytest.mark.parametrize("line", FORMS)
def test_no_output_has_an_invisible_character(world: World, line: str) -> None:
    said = world.run(*line.split())

    assert said.code not in (1, 2), said
    assert [part for part in (said.out + said.err).splitlines() if set(part) & set(HIDDEN)] == []


def test_json_keeps_the_names_that_its_text_spells_out(world: World) -> None:
    told = json.loads(world.run("plan", "-o", "json").out)

    assert f"manifests/na{HIDDEN}me.yaml" in {problem["location"]["path"] for problem in told["problems"]}


def test_page_has_no_invisible_character(world: World) -> None:
    page = world.root / "page.html"
    world.run("plan", "--html", str(page))

    assert not set(page.read_text()) & set(HIDDEN)


def test_messages_and_requests_of_ours_have_no_invisible_character(world: World) -> None:
    world.run("apply", "--quiet")

    for repository in (world.root / f"{EDGE}.git", world.control):
        log = git(repository, "log", "--all", "--format=%an%x00%s%x00%B%x01").split("\x01")
        ours = [entry for entry in log if not entry.strip().startswith("Kim\x00")]
        assert ours
        assert [entry for entry in ours if set(entry) & set(HIDDEN)] == []


def test_names_that_are_shown_are_those_that_were_given(world: World) -> None:
    assert "rel\\u202e\\ufe0f\\u3164\\u034f\\U000e0041\\U000e0101\\u2066" in world.run("plan").out + (
        world.run("pr", "show", NAME).out
    )
    assert Repo(world.root / "blueprints.git").oid(f"rel{HIDDEN}")
