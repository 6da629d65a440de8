"""Every hint for something that is blocked leads on: doing what it says changes what holds afterwards."""

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.base.errors import Exit
from tests.support.git import Repo
from tests.support.small_world import app, manifest, variant, write_world
from tests.support.world import IDENTITY, World, git, refs

pytestmark = pytest.mark.slow

WEB = manifest("edge-1", "web")
UPDATE = variant("edge-1", "web", revision=2)
DELETION = "reconciler/fleet/delete/web"


def annotated(text: str, key: str, value: str) -> str:
    note = f'  annotations:\n    {key}: "{value}"\n'
    return text.replace("  namespace: default\n", f"  namespace: default\n{note}", 1)


def commit(world: World, files: dict[str, str | None]) -> None:
    world.clock += 60
    Repo(world.control, time=world.clock).commit(files)


def apply(world: World) -> None:
    world.run("apply")


def published(world: World) -> None:
    apply(world)
    for name in ("web", "db"):
        assert world.run("approve", f"edge-1/{name}").code == Exit.DONE
    apply(world)


def edited_on_main(world: World) -> None:
    with world.edit("edge-1", "Run five of it") as copy:
        path = copy / "web/app.yaml"
        path.write_text(path.read_text().replace("replicas: 1", "replicas: 5"))


def edited_on(world: World, branch: str) -> None:
    with world.edit("edge-1", "Explain it", branch=branch) as copy:
        (copy / "web").mkdir(exist_ok=True)
        (copy / "web/NOTE.md").write_text("Ask Kim first\n")


def draft(world: World) -> str:
    return world.draft_branch("edge-1", "web")


def updated(world: World) -> None:
    published(world)
    commit(world, {WEB: UPDATE})
    apply(world)


def merged_by_hand(branch: str | None = None, *, removed: str = "") -> Callable[[World], None]:
    """Merge main into the branch as a person does; of a conflict the file stays `removed`."""

    def follow(world: World) -> None:
        world.clock += 60
        copy = world.root / "copy"
        git(world.root, "clone", "-q", "-b", branch or draft(world), str(world.root / "edge-1.git"), "copy")
        date = f"{world.clock} +0000"
        environment = {**IDENTITY, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "PATH": "/usr/bin"}
        line = ["git", "merge", "-q", "--no-edit", "origin/main"]
        subprocess.run(line, cwd=copy, env=environment, capture_output=True, check=not removed)
        if removed:
            git(copy, "rm", "-q", removed)
            git(copy, "commit", "-qm", "Merge main", when=world.clock)
        git(copy, "push", "-q", "origin", "HEAD")

    return follow


def draft_behind_main(world: World) -> None:
    updated(world)
    edited_on_main(world)


def edited_draft_behind_main(world: World) -> None:
    updated(world)
    edited_on(world, draft(world))
    edited_on_main(world)


def edited_draft_with_same_change_on_main(world: World) -> None:
    updated(world)
    edited_on(world, draft(world))
    with world.edit("edge-1", "Update by hand") as copy:
        path = copy / "web/app.yaml"
        path.write_text(path.read_text().replace("web:v1", "web:v2"))


def paused_draft_behind_main(world: World) -> None:
    draft_behind_main(world)
    commit(world, {WEB: annotated(UPDATE, "reconciler.dev/paused", "true")})
    apply(world)


def stalled_draft_behind_main(world: World) -> None:
    draft_behind_main(world)
    commit(world, {WEB: variant("edge-1", "web", revision=9)})
    apply(world)


def deletion(world: World) -> None:
    published(world)
    commit(world, {WEB: None})
    apply(world)


def deletion_behind_main(world: World) -> None:
    deletion(world)
    edited_on_main(world)


def edited_deletion_behind_main(world: World) -> None:
    deletion(world)
    edited_on(world, DELETION)
    edited_on_main(world)


def edited_deletion_applied(world: World) -> None:
    edited_deletion_behind_main(world)
    apply(world)


def closed(world: World) -> None:
    apply(world)
    world.run("pr", "close", "edge-1/web")


def closed_and_gone(world: World) -> None:
    closed(world)
    git(world.root / "edge-1.git", "branch", "-D", draft(world))


def closed_deletion(world: World) -> None:
    deletion(world)
    world.run("pr", "close", "edge-1/web")
    apply(world)


def retried(world: World) -> None:
    commit(world, {WEB: annotated(variant("edge-1", "web"), "reconciler.dev/retry", "1")})
    apply(world)


def declared_again_and_removed(world: World) -> None:
    commit(world, {WEB: variant("edge-1", "web")})
    apply(world)
    commit(world, {WEB: None})
    apply(world)


def run(*line: str) -> Callable[[World], None]:
    def follow(world: World) -> None:
        world.run(*line)

    return follow


def conflict(world: World) -> None:
    published(world)
    with world.edit("edge-1", "Own image") as copy:
        (copy / "web/app.yaml").write_text(app("web", 7))
    commit(world, {WEB: UPDATE})
    apply(world)


def changed_in_draft(world: World) -> None:
    with world.edit("edge-1", "Take theirs", branch=draft(world)) as copy:
        path = copy / "web/app.yaml"
        path.write_text(path.read_text().replace("web:v7", "web:v2"))


def unwanted_edited_draft(world: World) -> None:
    apply(world)
    edited_on(world, draft(world))
    commit(world, {WEB: None})
    apply(world)


def pull_request_closed(world: World) -> None:
    world.run("pr", "close", "edge-1#2")


def branch_in_the_way(world: World) -> None:
    git(world.root / "edge-1.git", "branch", "drafts", "main")


def branch_renamed(world: World) -> None:
    git(world.root / "edge-1.git", "branch", "-m", "drafts", "old-drafts")


def unconsented_deletion(world: World) -> None:
    published(world)
    text = Repo(world.control).read("main", "reconciler.yaml").decode()
    commit(world, {"reconciler.yaml": f"{text}  deletions:\n    count: 0\n", WEB: None})


def consented(world: World) -> None:
    """Write the consent exactly as the refusal spells it."""
    text = Repo(world.control).read("main", "reconciler.yaml").decode()
    consent = world.run("plan").out.split("spec.consents: {")[1].split(":")[0]
    commit(world, {"reconciler.yaml": f"{text}  consents:\n    {consent}: Kim agrees\n"})


def proposed_deletion(world: World) -> None:
    """Propose on a branch to remove a manifest, where no deletion is allowed without consent."""
    published(world)
    text = Repo(world.control).read("main", "reconciler.yaml").decode()
    commit(world, {"reconciler.yaml": f"{text}  deletions:\n    count: 0\n"})
    proposed(world, {WEB: None})


def proposed(world: World, files: dict[str, str | None]) -> None:
    world.clock += 60
    Repo(world.control, time=world.clock).commit(files, branch="change", start="main")


def consented_in_proposal(world: World) -> None:
    text = Repo(world.control).read("main", "reconciler.yaml").decode()
    consent = world.run(*CHECK).out.split("spec.consents: {")[1].split(":")[0]
    proposed(world, {"reconciler.yaml": f"{text}  consents:\n    {consent}: Kim agrees\n"})


def broken_proposal(world: World) -> None:
    published(world)
    proposed(world, {WEB: UPDATE.replace("revision: 2", "revison: 2")})


def mended_proposal(world: World) -> None:
    proposed(world, {WEB: UPDATE})


def moved_tag(world: World) -> None:
    world.tag("blueprints", "web/stable", "web/v1")
    text = variant("edge-1", "web").replace("revision: 1", "tag: stable")
    commit(world, {WEB: text})
    published(world)
    world.tag("blueprints", "web/stable", "web/v2")


def held(world: World) -> None:
    moved_tag(world)
    world.run("lock", "hold", "default/web-edge-1")


def unmet_gate(world: World) -> None:
    """Put a readiness gate into the draft of a Repository where packages are deployed."""
    path = "manifests/repositories/edge-1.yaml"
    text = Repo(world.control).read("main", path).decode()
    assert "deployment: true" in text
    apply(world)
    with_gate(world, "False")


def met_gate(world: World) -> None:
    with_gate(world, "True")


def with_gate(world: World, status: str) -> None:
    with world.edit("edge-1", "Check it", branch=draft(world)) as copy:
        path = copy / "web/Kptfile"
        text = path.read_text().partition("info:\n  readinessGates:")[0]
        path.write_text(
            f"{text}info:\n  readinessGates:\n  - conditionType: checked\n"
            f'status:\n  conditions:\n  - type: checked\n    status: "{status}"\n'
        )


class Step(NamedTuple):
    """One row: what is blocked, where it is told, the hint, what it makes people do, what holds then."""

    situation: Callable[[World], None]
    line: tuple[str, ...]
    code: Exit
    hint: str
    follow: Callable[[World], None]
    then: tuple[str, ...]
    after: str


APPROVE = ("approve", "edge-1/web")
CHECK = ("check", "--head", "change")
FROZEN = ("lock", "--frozen")
OUTDATED = "hint: Run `reconciler apply`: it brings it into the draft."
BY_HAND = "hint: Merge main into drafts/web/packagevariant-2 with git and push it, then approve again."
REOPEN = "hint: Open it again with `reconciler pr reopen edge-1#2`, then approve it."
KEPT = "approved edge-1/web: merged; the files that its branch keeps are still there"
APPROVED, PUBLISHED, REMOVED = "approved edge-1/web: web/v", "approved edge-1/web: web/v1", ": removed"

STEPS = [
    Step(draft_behind_main, APPROVE, Exit.REFUSED, OUTDATED, apply, APPROVE, APPROVED),
    Step(edited_draft_behind_main, APPROVE, Exit.REFUSED, OUTDATED, apply, APPROVE, APPROVED),
    Step(edited_draft_with_same_change_on_main, APPROVE, Exit.REFUSED, OUTDATED, apply, APPROVE, APPROVED),
    Step(paused_draft_behind_main, APPROVE, Exit.REFUSED, BY_HAND, merged_by_hand(), APPROVE, APPROVED),
    Step(stalled_draft_behind_main, APPROVE, Exit.REFUSED, BY_HAND, merged_by_hand(), APPROVE, APPROVED),
    Step(
        deletion_behind_main,
        APPROVE,
        Exit.REFUSED,
        "hint: Run `reconciler apply`: it proposes the deletion anew, with that change in it.",
        apply,
        APPROVE,
        REMOVED,
    ),
    *(
        Step(situation, line, code, hint, merged_by_hand(DELETION, removed="web/app.yaml"), APPROVE, KEPT)
        for situation, line, code, hint in (
            (
                edited_deletion_behind_main,
                APPROVE,
                Exit.REFUSED,
                f"hint: Merge main into {DELETION} with git",
            ),
            (edited_deletion_applied, APPROVE, Exit.REFUSED, f"hint: Merge main into {DELETION} with git"),
            (edited_deletion_behind_main, ("plan",), Exit.WAITING, f"merge main into {DELETION} with git"),
            (edited_deletion_behind_main, ("apply",), Exit.WAITING, f"merge main into {DELETION} with git"),
            (edited_deletion_applied, ("status",), Exit.DONE, f"merge main into {DELETION} with git"),
        )
    ),
    *(
        Step(closed, line, Exit.REFUSED, REOPEN, run("pr", "reopen", "edge-1#2"), APPROVE, PUBLISHED)
        for line in (APPROVE, ("approve", "edge-1#2"), ("approve", "--propose-only", "edge-1#2"))
    ),
    Step(
        closed,
        ("pr", "merge", "edge-1#2"),
        Exit.REFUSED,
        REOPEN,
        run("pr", "reopen", "2"),
        APPROVE,
        PUBLISHED,
    ),
    Step(
        closed_and_gone,
        APPROVE,
        Exit.REFUSED,
        "Set annotation reconciler.dev/retry",
        retried,
        APPROVE,
        APPROVED,
    ),
    Step(closed, ("plan",), Exit.WAITING, 'annotation reconciler.dev/retry: "1"', retried, APPROVE, APPROVED),
    Step(
        closed_deletion,
        APPROVE,
        Exit.REFUSED,
        "Write its PackageVariant again, run `reconciler apply`, and remove it again",
        declared_again_and_removed,
        APPROVE,
        REMOVED,
    ),
    Step(
        conflict,
        APPROVE,
        Exit.REFUSED,
        "Answer the conflicts with reconciler answer",
        changed_in_draft,
        APPROVE,
        APPROVED,
    ),
    Step(
        conflict,
        ("plan",),
        Exit.WAITING,
        "answer it in the pull request, or with reconciler answer",
        changed_in_draft,
        APPROVE,
        APPROVED,
    ),
    Step(
        unwanted_edited_draft,
        ("plan",),
        Exit.WAITING,
        "close pull request #2 to let it go",
        pull_request_closed,
        ("plan",),
        "Its pull request was closed, and nothing wants it",
    ),
    Step(
        branch_in_the_way,
        ("plan",),
        Exit.INVALID_INPUT,
        "Rename or delete branch drafts",
        branch_renamed,
        ("plan",),
        "2 to create (",
    ),
    Step(
        unconsented_deletion,
        ("plan",),
        Exit.REFUSED,
        "spec.consents: {",
        consented,
        ("apply",),
        "pushed   edge-1 reconciler/fleet/delete/web",
    ),
    Step(
        proposed_deletion,
        CHECK,
        Exit.REFUSED,
        "spec.consents: {",
        consented_in_proposal,
        CHECK,
        "proposes 1 deletion",
    ),
    Step(
        broken_proposal,
        CHECK,
        Exit.INVALID_INPUT,
        "hint: Did you mean revision?",
        mended_proposal,
        CHECK,
        "Merging this updates 1",
    ),
    Step(
        moved_tag,
        FROZEN,
        Exit.REFUSED,
        "hint: Run `reconciler apply`: it moves the pins, and drafts the updates.",
        apply,
        FROZEN,
        "No pin changed",
    ),
    Step(
        held,
        ("plan",),
        Exit.DONE,
        "Locked; upstream offers web/stable@",
        run("lock", "follow", "default/web-edge-1"),
        ("plan",),
        "update  edge-1/web",
    ),
    Step(
        unmet_gate,
        APPROVE,
        Exit.REFUSED,
        "hint: Meet each condition: it is read from status.conditions of the draft's Kptfile.",
        met_gate,
        APPROVE,
        PUBLISHED,
    ),
]


def name_of(step: Step) -> str:
    return f"{step.situation.__name__}: {' '.join(step.line)}"


@pytest.mark.parametrize("step", STEPS, ids=name_of)
def test_following_a_hint_changes_what_holds(step: Step, tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    step.situation(world)

    said = world.run(*step.line)
    assert said.code == step.code, said.out + said.err
    assert step.hint in said.out + said.err

    step.follow(world)
    then = world.run(*step.then)
    assert step.after in then.out + then.err, then.out + then.err


NAMED = re.compile(r"`reconciler ([^`]+)`")
NEEDS_OBJECTS = "snapshot import"
QUESTIONS = (
    ("plan",),
    ("status",),
    ("doctor",),
    ("pr", "list"),
    ("lock", "--check"),
    ("explain", "edge-1/web"),
    ("explain", "edge-1/web", "--why-not", "newest"),
    ("explain", "edge-1/db", "--why-not", "newest"),
    ("approve", "edge-1/web"),
)


@pytest.mark.parametrize(
    "situation",
    [
        conflict,
        closed,
        closed_and_gone,
        held,
        deletion,
        unconsented_deletion,
        stalled_draft_behind_main,
        updated,
    ],
    ids=lambda situation: situation.__name__,
)
def test_a_command_that_an_output_names_runs(situation: Callable[[World], None], tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    situation(world)
    printed = [world.run(*line) for line in QUESTIONS]

    named = {line for said in printed for line in NAMED.findall(said.out + said.err)} - {NEEDS_OBJECTS}

    assert named
    wrong = {line: ran.err for line in sorted(named) if (ran := world.run(*shlex.split(line))).code in {1, 2}}
    assert wrong == {}


def test_merged_pull_request_has_nothing_left_to_approve(tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    published(world)
    before = world.all_refs()

    for line in (APPROVE, ("approve", "edge-1#2"), ("approve", "--propose-only", "edge-1#2")):
        said = world.run(*line)
        assert (said.code, said.out) == (Exit.DONE, "already merged: edge-1/web in edge-1#2\n")
    assert world.run("pr", "merge", "edge-1#2").out == "already merged edge-1#2 Create web from web/v1\n"
    refused = world.run("pr", "close", "edge-1#2")
    assert refused.code == Exit.REFUSED
    assert "Pull request edge-1#2 was merged and cannot be closed" in refused.err
    assert world.all_refs() == before


def test_edited_draft_is_merged_with_main_and_keeps_what_others_wrote_there(tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    edited_draft_behind_main(world)
    with world.edit("edge-1", "Another file of main") as copy:
        (copy / "other.txt").write_text("other\n")
    apply(world)

    branch, edge = draft(world), world.root / "edge-1.git"
    first, second = git(edge, "log", "-1", "--format=%P", branch).split()
    assert second == refs(edge)["refs/heads/main"]
    assert git(edge, "diff", "--name-only", "main", branch).splitlines() == [
        "web/Kptfile",
        "web/NOTE.md",
        "web/app.yaml",
    ]
    assert "replicas: 5" in git(edge, "show", f"{branch}:web/app.yaml")
    assert "web:v2" in git(edge, "show", f"{branch}:web/app.yaml")
    assert git(edge, "show", f"{first}:web/NOTE.md") == "Ask Kim first\n"

    before = world.all_refs()
    apply(world)
    assert world.all_refs()["edge-1.git"] == before["edge-1.git"]
