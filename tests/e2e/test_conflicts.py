"""Conflicts on real repositories: each is answered by itself, from plain Git, also without any state."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.git import Repo
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World, git, refs, restored

EDGE = "edge-1"
NAME = f"{EDGE}/web"
DATA = "apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\ndata:\n  a: {a}\n  b: {b}\n  note: n\n"


def data(a: str, b: str, name: str = "one", kind: str = "ConfigMap") -> str:
    return DATA.format(kind=kind, name=name, a=a, b=b)


def write(copy: Path, side: str) -> None:
    """Two resources with the same fields, so that a field path alone names no conflict."""
    (copy / "web/one.yaml").write_text(data(f"{side}-a", f"{side}-b"))
    (copy / "web/two.yaml").write_text(data(f"{side}-a", "same", "two"))


@pytest.fixture
def world() -> World:
    """Three conflicts: two in `one.yaml`, one in `two.yaml`; the draft with the local values is there."""
    return restored("conflicts", make_conflicts)


def make_conflicts(root: Path) -> World:
    world = write_world(root, (EDGE,))
    release(world, 3, "old")
    world.run("apply", "--quiet")
    assert world.run("approve", NAME).code == 0
    with world.edit(EDGE, "Our own values") as copy:
        write(copy, "our")
    release(world, 4, "new")
    assert world.run("apply", "--quiet").code == 7
    return world


def release(world: World, revision: int, side: str) -> None:
    """Publish the blueprint with these values, and ask for it."""
    with world.edit("blueprints", f"web v{revision}") as copy:
        write(copy, side)
    Repo(world.root / "blueprints.git").tag(f"web/v{revision}")
    with world.edit("control", f"web v{revision}") as copy:
        (copy / manifest(EDGE, "web")).write_text(variant(EDGE, "web", revision=revision))


def explain(world: World) -> dict[str, Any]:
    return json.loads(world.run("explain", NAME, "-o", "json").out)


def waiting(world: World) -> list[str]:
    return [f"{c['path']} {c['field']}" for c in explain(world)["conflicts"]]


def answered(world: World) -> dict[str, tuple[str, str, str]]:
    return {
        f"{a['path']} {a['field']}": (a["by"], a["chosen"], a["dropped"]) for a in explain(world)["answers"]
    }


def keeps(world: World) -> list[str]:
    """Return the lines that the pull request spells out, as a person would copy them."""
    body = world.run("pr", "show", NAME).out
    return re.findall(r"^ *(Keep: .*)$", body, re.MULTILINE)


def branch(world: World) -> str:
    return world.draft_branch(EDGE, "web")


def commit_keep(world: World, *lines: str) -> None:
    """An empty commit on the draft, made with plain Git."""
    head = f"refs/heads/{branch(world)}"
    bare = world.root / f"{EDGE}.git"
    message = [part for line in ("Keep our values", *lines) for part in ("-m", line)]
    oid = git(bare, "commit-tree", f"{head}^{{tree}}", "-p", head, *message).strip()
    git(bare, "update-ref", head, oid)


def change(world: World, path: str, old: str, new: str) -> None:
    with world.edit(EDGE, "Answer", branch=branch(world)) as copy:
        text = (copy / "web" / path).read_text()
        assert old in text
        (copy / "web" / path).write_text(text.replace(old, new))


def values(world: World, ref: str, name: str) -> list[str]:
    text = git(world.root / f"{EDGE}.git", "show", f"{ref}:web/{name}.yaml")
    return re.findall(r"^  [ab]: (.*)$", text, re.MULTILINE)


def lose_state(world: World) -> None:
    state = "refs/heads/reconciler/fleet/state"
    assert state in refs(world.control)
    git(world.control, "update-ref", "-d", state)


ONE_A, ONE_B, TWO_A = "one.yaml data.a", "one.yaml data.b", "two.yaml data.a"


@pytest.mark.parametrize("lost", [False, True])
def test_keep_lines_of_an_empty_commit_unlock_approval(world: World, *, lost: bool) -> None:
    commit_keep(world, *keeps(world))
    if lost:
        lose_state(world)

    assert world.run("apply", "--quiet").code == 0
    assert waiting(world) == []
    assert {by for by, _, _ in answered(world).values()} == {"keep"}
    assert world.run("approve", NAME).code == 0


def squash(world: World) -> None:
    bare, head = world.root / f"{EDGE}.git", f"refs/heads/{branch(world)}"
    log = git(bare, "log", "--format=%B", f"main..{head}")
    git(
        bare,
        "update-ref",
        head,
        git(bare, "commit-tree", f"{head}^{{tree}}", "-p", "main", "-m", log).strip(),
    )


def rebase(world: World) -> None:
    with world.edit(EDGE, "main moves") as copy:
        (copy / "README.md").write_text("moved\n")
    copy = world.root / "rebased"
    git(world.root, "clone", "-q", str(world.root / f"{EDGE}.git"), str(copy))
    git(copy, "checkout", "-q", branch(world))
    git(copy, "rebase", "-q", "origin/main")
    git(copy, "push", "-qf", "origin", "HEAD")
    shutil.rmtree(copy)


def merge_main(world: World) -> None:
    with world.edit(EDGE, "main moves") as copy:
        (copy / "README.md").write_text("moved\n")
    copy = world.root / "updated"
    git(world.root, "clone", "-q", str(world.root / f"{EDGE}.git"), str(copy))
    git(copy, "checkout", "-q", branch(world))
    git(copy, "merge", "-q", "--no-ff", "-m", "Merge main", "origin/main")
    git(copy, "push", "-q", "origin", "HEAD")
    shutil.rmtree(copy)


@pytest.mark.parametrize("rewrite", [squash, rebase, merge_main])
@pytest.mark.parametrize("mixed", [False, True])
def test_answers_survive_what_people_do_to_the_branch(
    world: World, rewrite: Callable[[World], None], *, mixed: bool
) -> None:
    lines = keeps(world)
    commit_keep(world, *(lines[:1] if mixed else lines))
    if mixed:
        change(world, "two.yaml", "our-a", "both-a")
    rewrite(world)

    assert world.run("apply", "--quiet").code == (7 if mixed else 0)
    assert waiting(world) == ([ONE_B] if mixed else [])
    assert world.run("approve", NAME).code == (4 if mixed else 0)


def test_a_question_about_a_persons_own_answer_is_asked_anew(world: World) -> None:
    change(world, "two.yaml", "our-a", "both-a")
    world.run("apply", "--quiet")
    release(world, 5, "newest")

    assert world.run("apply", "--quiet").code == 7
    assert [(c["upstream"], c["local"]) for c in explain(world)["conflicts"]] == [
        ("newest-a", "our-a"),
        ("newest-b", "our-b"),
        ("newest-a", "both-a"),
    ]
    lose_state(world)
    world.run("apply", "--quiet")
    assert TWO_A in waiting(world), "a lost state forgets no question"
    change(world, "two.yaml", "both-a", "fourth-a")
    world.run("apply", "--quiet")
    assert waiting(world) == [ONE_A, ONE_B]


def policy(world: World, text: str, revision: int = 4) -> None:
    with world.edit("control", f"Policy {text}") as copy:
        manifested = variant(EDGE, "web", revision=revision)
        note = f"  namespace: default\n  annotations:\n    reconciler.dev/on-conflict: {text}\n"
        (copy / manifest(EDGE, "web")).write_text(manifested.replace("  namespace: default\n", note, 1))


@pytest.mark.parametrize("touched", [False, True])
def test_a_policy_that_changes_later_is_applied_to_what_no_person_changed(
    world: World, *, touched: bool
) -> None:
    if touched:
        change(world, "two.yaml", "our-a", "both-a")
    for choice, side in (("upstream", "new"), ("local", "our"), ("upstream", "new")):
        policy(world, choice)
        assert world.run("apply", "--quiet").code == 0
        bare = world.root / f"{EDGE}.git"
        head = branch(world) if branch(world) in str(refs(bare)) else "main"
        assert values(world, head, "one") == [f"{side}-a", f"{side}-b"]
        assert values(world, head, "two") == ["both-a" if touched else f"{side}-a", "same"]
        assert {by for by, _, _ in answered(world).values()} <= {"policy", "edit"}
        assert world.run("plan", "--quiet", "--detailed-exitcode").code == 0


UNREADABLE: dict[str, Callable[[str], bytes]] = {
    "zero bytes": lambda side: b"\x89PNG\0\0%b hunter2\n" % side.encode() + b"\0\xff" * 400,
    "no UTF-8": lambda side: b"caf\xe9 %b hunter2\nSecond line\n" % side.encode(),
}


@pytest.mark.parametrize("make", UNREADABLE.values(), ids=list(UNREADABLE))
def test_conflict_of_a_file_that_people_cannot_read_is_its_sizes(
    tmp_path: Path, make: Callable[[str], bytes]
) -> None:
    world = write_world(tmp_path / "w", (EDGE,))

    def write_file(repository: str, side: str, mode: int = 0o644) -> None:
        with world.edit(repository, side) as copy:
            (copy / "web/logo.bin").write_bytes(make(side))
            (copy / "web/logo.bin").chmod(mode)

    def ask(revision: int) -> int:
        Repo(world.root / "blueprints.git").tag(f"web/v{revision}")
        with world.edit("control", f"v{revision}") as copy:
            (copy / manifest(EDGE, "web")).write_text(variant(EDGE, "web", revision=revision))
        return world.run("apply", "--quiet").code

    write_file("blueprints", "base")
    ask(3)
    world.run("approve", NAME)
    write_file(EDGE, "local")
    write_file("blueprints", "upstream", 0o755)
    assert ask(4) == 7

    page = world.root / "page.html"
    before = git(world.control, "rev-parse", "main~1").strip()
    lines = (
        *("plan", "plan -o json", "plan -o markdown", f"plan --html {page}", "status -o json"),
        *(f"{command} {NAME}{form}" for command in ("explain", "pr show") for form in ("", " -o json")),
        *(f"check --base {before}{form}" for form in ("", " -o json", " -o markdown")),
    )
    outputs = {line: world.run(*line.split()).out for line in lines}
    outputs["HTML"] = page.read_text()
    outputs["records"] = git(world.control, "grep", "-e", "", "reconciler/fleet/state")
    shown = re.compile(r"hunter2|\ufffd|\\x00|\\u0000|;a\(\)")
    assert [line for line, text in outputs.items() if shown.search(text)] == []
    (conflict,) = explain(world)["conflicts"]
    local, upstream = (f"binary file, {len(make(side))} bytes" for side in ("local", "upstream"))
    assert re.fullmatch(rf"{local}, [0-9a-f]{{40}}", conflict["local"])
    assert re.fullmatch(rf"{upstream}, executable, [0-9a-f]{{40}}", conflict["upstream"])
    assert conflict["local"] in outputs[f"pr show {NAME}"]

    commit_keep(world, *keeps(world))
    assert world.run("apply", "--quiet").code == 0
    assert waiting(world) == []
    assert world.run("approve", NAME).code == 0


PIPELINE = """\
  pipeline:
    mutators:
    - image: ghcr.io/kptdev/krm-functions-catalog/set-namespace:v0.4.5
      configMap: {namespace: shop}
"""


@pytest.fixture
def waiting_world() -> World:
    """One conflict in `one.yaml` of a package with a function; its draft has `app.yaml` without it."""
    return restored("conflict-with-function", make_waiting)


def make_waiting(root: Path) -> World:
    world = write_world(root, (EDGE,))

    def ask(revision: int, side: str) -> int:
        with world.edit("blueprints", f"web v{revision}") as copy:
            (copy / "web/one.yaml").write_text(data(side, "same"))
        Repo(world.root / "blueprints.git").tag(f"web/v{revision}")
        with world.edit("control", f"web v{revision}") as copy:
            (copy / manifest(EDGE, "web")).write_text(variant(EDGE, "web", revision=revision) + PIPELINE)
        return world.run("apply", "--quiet").code

    assert ask(3, "old") == 0
    assert world.run("approve", NAME).code == 0
    with world.edit(EDGE, "Our own value") as copy:
        path = copy / "web/one.yaml"
        path.write_text(path.read_text().replace("a: old", "a: our"))
    assert ask(4, "new") == 7
    return world


def answer(world: World, way: str) -> str:
    """Answer the conflict, and return the value that people choose."""
    if way == "keep":
        commit_keep(world, *keeps(world))
    else:
        change(world, "one.yaml", "a: our", "a: both")
    return "our" if way == "keep" else "both"


def assert_finished(world: World, value: str) -> None:
    """Main has the value of people and what the function does, and no run has anything left to do."""
    texts = [git(world.root / f"{EDGE}.git", "show", f"main:web/{name}.yaml") for name in ("one", "app")]
    assert f"  a: {value}\n" in texts[0]
    assert ["namespace: shop" in text for text in texts] == [True, True]
    assert world.run("apply", "--quiet").code == 0
    assert world.run("plan", "--quiet", "--detailed-exitcode").code == 0


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("way", ["keep", "edit"])
def test_an_answered_draft_is_approved_after_a_run_finished_it(
    waiting_world: World, way: str, *, lost: bool
) -> None:
    world = waiting_world
    assert (
        "answer each conflict below, and let the next run finish this draft"
        in world.run("pr", "show", NAME).out
    )
    value = answer(world, way)
    if lost:
        lose_state(world)

    said = world.run("approve", NAME)

    assert said.code == 4
    assert "no run has finished the draft of web since people answered its conflicts" in said.out
    assert "hint: Run `reconciler apply`, and then approve." in said.out
    (row,) = [row for row in json.loads(world.run("plan", "-o", "json").out)["approvable"] if row["unmet"]]
    assert row["head"] == branch(world)
    planned = world.run("plan").out
    assert "this version of the tool" not in planned
    assert ("People answered conflicts of the draft" in planned) != lost
    assert world.run("apply", "--quiet").code == 0
    assert world.run("approve", NAME).code == 0
    assert_finished(world, value)


@pytest.mark.parametrize("way", ["keep", "edit"])
def test_what_a_forge_merged_before_a_run_finished_it_is_proposed(waiting_world: World, way: str) -> None:
    world = waiting_world
    value = answer(world, way)
    with world.edit(EDGE, "Merged") as copy:
        git(copy, "merge", "-q", "--no-ff", "-m", "Merge", f"origin/{branch(world)}")

    planned = world.run("plan").out

    assert f"edit    {NAME}" in planned
    assert ("It was merged before a run finished its draft" in planned) == (way == "keep")
    assert world.run("apply", "--quiet").code == 0
    assert world.run("approve", NAME).code == 0
    assert_finished(world, value)
