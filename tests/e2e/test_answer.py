"""`answer`: one commit on the draft answers a conflict, from the shell, and the next run counts it."""

import re
from pathlib import Path

import pytest

from tests.e2e.test_conflicts import (
    EDGE,
    NAME,
    ONE_A,
    ONE_B,
    TWO_A,
    answered,
    branch,
    data,
    make_conflicts,
    values,
    waiting,
)
from tests.support.git import Repo
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World, git, restored


@pytest.fixture
def world() -> World:
    return restored("conflicts", make_conflicts)


@pytest.fixture(autouse=True)
def _ada(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Ada")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "ada@example.com")


def test_each_answer_is_a_commit_that_the_next_run_counts(world: World) -> None:
    kept = world.run("answer", NAME, "one.yaml", "data.a", "--keep")
    took = world.run("answer", NAME, "b", "--take")
    set_ = world.run("answer", NAME, "two.yaml", "--value", "mine")

    assert [done.code for done in (kept, took, set_)] == [0, 0, 0], kept.err + took.err + set_.err
    assert kept.out.splitlines()[0] == "kept one.yaml ConfigMap one data.a: our-a"
    assert took.out.splitlines()[0] == "took upstream's one.yaml ConfigMap one data.b: new-b"
    assert "2 conflicts of edge-1/web left" in kept.out
    assert set_.out.splitlines()[-1] == "Next: reconciler apply"
    assert world.run("apply", "--quiet").code == 0
    assert waiting(world) == []
    assert answered(world)[ONE_A] == ("keep", "our-a", "new-a")
    assert answered(world)[ONE_B][:2] == ("edit", "new-b")
    assert answered(world)[TWO_A][:2] == ("edit", "mine")
    assert values(world, branch(world), "one") == ["our-a", "new-b"]
    assert world.run("approve", NAME).code == 0


def test_the_commit_is_of_the_person_and_changes_one_value(world: World) -> None:
    world.run("answer", NAME, "one.yaml", "data.a", "--take")
    bare, head = world.root / f"{EDGE}.git", branch(world)

    assert git(bare, "log", "-1", "--format=%an", head).strip() == "Ada"
    difference = git(bare, "diff", f"{head}^", head)
    assert re.findall(r"^[+-] .*$", difference, re.MULTILINE) == ["-  a: our-a", "+  a: new-a"]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (("edge-1/wep", "--keep"), 2, "Did you mean edge-1/web"),
        ((NAME, "one.yaml data.c", "--keep"), 2, "has no conflict one.yaml data.c"),
        ((NAME, "--value", "x"), 2, "One value cannot answer 3 conflicts"),
        ((NAME,), 2, "Choose one answer: --keep, --take or --value"),
        ((NAME, "--keep", "--take"), 2, "Choose one answer: --keep, --take or --value"),
    ],
)
def test_a_wrong_line_says_what_to_write(
    world: World, line: tuple[str, ...], code: int, message: str
) -> None:
    said = world.run("answer", *line)

    assert (said.code, message in said.err) == (code, True), said.err


def test_a_draft_that_moves_while_it_is_answered_is_left_as_it_is(world: World) -> None:
    bare, head = world.root / f"{EDGE}.git", f"refs/heads/{branch(world)}"
    theirs = git(bare, "commit-tree", f"{head}^{{tree}}", "-p", head, "-m", "From another clone").strip()
    hook = bare / "hooks/pre-receive"  # the other clone pushes between our look and our push
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nunset GIT_QUARANTINE_PATH\ngit update-ref {head} {theirs}\n")
    hook.chmod(0o755)

    said = world.run("answer", NAME, "--take")

    assert (said.code, "moved meanwhile" in said.err) == (5, True), said
    assert "Look again, then answer" in said.err
    assert git(bare, "rev-parse", head).strip() == theirs
    hook.unlink()
    assert world.run("answer", NAME, "--take").code == 0
    assert git(bare, "rev-parse", f"{head}^").strip() == theirs


@pytest.mark.parametrize("output", ["text", "json"])
def test_the_values_of_a_secret_are_not_printed(tmp_path: Path, output: str) -> None:
    world = write_world(tmp_path / "w", (EDGE,))

    def publish(revision: int, side: str) -> int:
        with world.edit("blueprints", side) as copy:
            (copy / "web/s.yaml").write_text(data(f"{side}secret", "same", "s", "Secret"))
        Repo(world.root / "blueprints.git").tag(f"web/v{revision}")
        with world.edit("control", side) as copy:
            (copy / manifest(EDGE, "web")).write_text(variant(EDGE, "web", revision=revision))
        return world.run("apply").code

    publish(3, "old")
    world.run("approve", NAME)
    with world.edit(EDGE, "ours") as copy:
        (copy / "web/s.yaml").write_text(data("oursecret", "same", "s", "Secret"))
    assert publish(4, "new") == 7

    tried = world.run("answer", NAME, "--take", "--dry-run", "-o", output)
    took = world.run("answer", NAME, "--take", "-o", output)
    after = world.run("apply")

    texts = [text for said in (tried, took, after) for text in (said.out, said.err)]
    assert (tried.code, took.code, after.code) == (0, 0, 0), texts
    assert not re.search("(old|our|new)secret", "".join(texts))
    assert values(world, branch(world), "s")[0] == "newsecret"
