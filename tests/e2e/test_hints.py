"""Every hint for something that is blocked leads on: doing what it says changes what holds afterwards."""

import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
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


Does = Callable[[World], None]


def annotated(text: str, key: str, value: str) -> str:
    note = f'  annotations:\n    {key}: "{value}"\n'
    return text.replace("  namespace: default\n", f"  namespace: default\n{note}", 1)


def commit(world: World, files: Mapping[str, str | None], branch: str = "main") -> None:
    world.clock += 60
    Repo(world.control, time=world.clock).commit(files, branch=branch, start="main")


def run(line: str) -> Does:
    def act(world: World) -> None:
        world.run(*line.split())

    return act


def wants(text: str | None) -> Does:
    """A manifest that asks for this, and a run."""

    def act(world: World) -> None:
        commit(world, {WEB: text})
        world.run("apply")

    return act


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


def edited_in_draft(world: World) -> None:
    edited_on(world, draft(world))


def edited_in_deletion(world: World) -> None:
    edited_on(world, DELETION)


def merged_by_hand(branch: str | None = None, *, removed: str = "") -> Does:
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


def branch_removed(world: World) -> None:
    git(world.root / "edge-1.git", "branch", "-D", draft(world))


def own_image(world: World) -> None:
    with world.edit("edge-1", "Own image") as copy:
        (copy / "web/app.yaml").write_text(app("web", 7))


def changed_in_draft(world: World) -> None:
    with world.edit("edge-1", "Take theirs", branch=draft(world)) as copy:
        path = copy / "web/app.yaml"
        path.write_text(path.read_text().replace("web:v7", "web:v2"))


def branch_in_the_way(world: World) -> None:
    git(world.root / "edge-1.git", "branch", "drafts", "main")


def branch_renamed(world: World) -> None:
    git(world.root / "edge-1.git", "branch", "-m", "drafts", "old-drafts")


def configure(
    world: World, more: str, files: Mapping[str, str | None] = MappingProxyType({}), branch: str = "main"
) -> None:
    text = Repo(world.control).read("main", "reconciler.yaml").decode()
    commit(world, {"reconciler.yaml": f"{text}{more}", **files}, branch)


def unconsented(world: World) -> None:
    configure(world, "  deletions:\n    count: 0\n", {WEB: None})


def consented(world: World) -> None:
    """Write the consent exactly as the refusal spells it."""
    consent = world.run("plan").out.split("spec.consents: {")[1].split(":")[0]
    configure(world, f"  consents:\n    {consent}: Kim agrees\n")


def unconsented_proposal(world: World) -> None:
    """Propose on a branch to remove a manifest, where no deletion is allowed without consent."""
    configure(world, "  deletions:\n    count: 0\n")
    commit(world, {WEB: None}, "change")


def consented_there(world: World) -> None:
    consent = world.run(*CHECK.split()).out.split("spec.consents: {")[1].split(":")[0]
    configure(world, f"  consents:\n    {consent}: Kim agrees\n", branch="change")


def tag(name: str) -> Does:
    return lambda world: world.tag("blueprints", "web/stable", name)


def gate(status: str) -> Does:
    """A readiness gate in the draft of a Repository where packages are deployed."""

    def act(world: World) -> None:
        with world.edit("edge-1", "Check it", branch=draft(world)) as copy:
            path = copy / "web/Kptfile"
            text = path.read_text().partition("info:\n  readinessGates:")[0]
            path.write_text(
                f"{text}info:\n  readinessGates:\n  - conditionType: checked\n"
                f'status:\n  conditions:\n  - type: checked\n    status: "{status}"\n'
            )

    return act


NEW = variant("edge-1", "web")
PUBLISHED = (run("apply"), run("approve edge-1/web edge-1/db"), run("apply"))
UPDATED, DELETED = (*PUBLISHED, wants(UPDATE)), (*PUBLISHED, wants(None))
CLOSED, CLOSE = (run("apply"), run("pr close edge-1/web")), run("pr close edge-1/web")
MOVED = (tag("web/v1"), wants(NEW.replace("revision: 1", "tag: stable")), *PUBLISHED, tag("web/v2"))
SITUATIONS: dict[str, tuple[Does, ...]] = {
    "draft behind main": (*UPDATED, edited_on_main),
    "edited draft behind main": (*UPDATED, edited_in_draft, edited_on_main),
    "paused behind main": (*UPDATED, edited_on_main,
        wants(annotated(UPDATE, "reconciler.dev/paused", "true"))),
    "stalled behind main": (*UPDATED, edited_on_main, wants(variant("edge-1", "web", revision=9))),
    "deletion": DELETED,
    "deletion behind main": (*DELETED, edited_on_main),
    "edited deletion": (*DELETED, edited_in_deletion, edited_on_main),
    "edited deletion, applied": (*DELETED, edited_in_deletion, edited_on_main, run("apply")),
    "closed": CLOSED,
    "closed and gone": (*CLOSED, branch_removed),
    "closed deletion": (*DELETED, CLOSE, run("apply")),
    "conflict": (*PUBLISHED, own_image, wants(UPDATE)),
    "unwanted and edited": (run("apply"), edited_in_draft, wants(None)),
    "branch in the way": (branch_in_the_way,),
    "no consent": (*PUBLISHED, unconsented),
    "no consent in a proposal": (*PUBLISHED, unconsented_proposal),
    "moved tag": MOVED,
    "held": (*MOVED, run("lock hold default/web-edge-1")),
    "published": PUBLISHED,
    "proposed update": (*PUBLISHED, lambda world: commit(world, {WEB: UPDATE}, "change")),
    "unmet gate": (run("apply"), gate("False")),
}  # fmt: skip


def world_of(situation: str, root: Path) -> World:
    world = write_world(root, ("edge-1",))
    for act in SITUATIONS[situation]:
        act(world)
    return world


class Step(NamedTuple):
    """One row: what is blocked, the line that tells it with its hint, what people do, and what holds then."""

    situation: str
    line: str
    code: Exit
    hint: str
    follow: tuple[Does, ...]
    after: str
    then: str = "approve edge-1/web"


APPROVE, CHECK, FROZEN = "approve edge-1/web", "check --head change", "lock --frozen"
OUTDATED = "hint: Run `reconciler apply`: it brings it into the draft."
ANEW = "hint: Run `reconciler apply`: it proposes the deletion anew, with that change in it."
BY_HAND = "hint: Merge main into drafts/web/packagevariant-2 with git and push it, then approve again."
REOPEN = "hint: Open it again with `reconciler pr reopen edge-1#2`, then approve it."
AGAIN = "Write its PackageVariant again, run `reconciler apply`, and remove it again"
GATE = "hint: Meet each condition: it is read from status.conditions of the draft's Kptfile."
PINS = "hint: Run `reconciler apply`: it moves the pins, and drafts the updates."
ANSWER, ANSWERS = (
    "Answer the conflicts with reconciler answer",
    "in the pull request, or with reconciler answer",
)
KEPT = "approved edge-1/web: merged; the files that its branch keeps are still there"
CONSENT, WAY, OFFER = (
    "spec.consents: {",
    "Rename or delete branch drafts",
    "Locked; upstream offers web/stable@",
)
LET_GO, LEFT = "close pull request #2 to let it go", "Its pull request was closed, and nothing wants it"
DONE, REFUSED, WAITING, INVALID = Exit.DONE, Exit.REFUSED, Exit.WAITING, Exit.INVALID_INPUT
TO_MERGE, MERGED = f"erge main into {DELETION} with git", (merged_by_hand(DELETION, removed="web/app.yaml"),)
APPLY, REOPENED = (run("apply"),), (run("pr reopen edge-1#2"),)
RETRIED = (wants(annotated(NEW, "reconciler.dev/retry", "1")),)
RETRY, ANY = "reconciler.dev/retry", "approved edge-1/web: web/v"
STEPS = [
    Step("draft behind main", APPROVE, REFUSED, OUTDATED, APPLY, ANY),
    Step("edited draft behind main", APPROVE, REFUSED, OUTDATED, APPLY, ANY),
    Step("paused behind main", APPROVE, REFUSED, BY_HAND, (merged_by_hand(),), ANY),
    Step("deletion behind main", APPROVE, REFUSED, ANEW, APPLY, ": removed"),
    Step("edited deletion", APPROVE, REFUSED, TO_MERGE, MERGED, KEPT),
    Step("edited deletion", "apply", WAITING, TO_MERGE, MERGED, KEPT),
    Step("edited deletion, applied", "status", DONE, TO_MERGE, MERGED, KEPT),
    Step("closed", APPROVE, REFUSED, REOPEN, REOPENED, f"{ANY}1"),
    Step("closed", "pr merge edge-1#2", REFUSED, REOPEN, REOPENED, f"{ANY}1"),
    Step("closed", "plan", WAITING, f'annotation {RETRY}: "1"', RETRIED, ANY),
    Step("closed and gone", APPROVE, REFUSED, f"Set annotation {RETRY}", RETRIED, ANY),
    Step("closed deletion", APPROVE, REFUSED, AGAIN, (wants(NEW), wants(None)), ": removed"),
    Step("conflict", APPROVE, REFUSED, ANSWER, (changed_in_draft,), ANY),
    Step("conflict", "plan", WAITING, ANSWERS, (changed_in_draft,), ANY),
    Step("unwanted and edited", "plan", WAITING, LET_GO, (run("pr close edge-1#2"),), LEFT, "plan"),
    Step("branch in the way", "plan", INVALID, WAY, (branch_renamed,), "2 to create (", "plan"),
    Step("no consent", "plan", REFUSED, CONSENT, (consented,), f"pushed   edge-1 {DELETION}", "apply"),
    Step(
        "no consent in a proposal", CHECK, REFUSED, CONSENT, (consented_there,), "proposes 1 deletion", CHECK
    ),
    Step("moved tag", FROZEN, REFUSED, PINS, APPLY, "No pin changed", FROZEN),
    Step("held", "plan", DONE, OFFER, (run("lock follow web-edge-1"),), "update  edge-1/web", "plan"),
    Step("unmet gate", APPROVE, REFUSED, GATE, (gate("True"),), f"{ANY}1"),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.situation}: {step.line}")
def test_following_a_hint_changes_what_holds(step: Step, tmp_path: Path) -> None:
    world = world_of(step.situation, tmp_path / "w")

    said = world.run(*step.line.split())
    assert said.code == step.code, said.out + said.err
    assert step.hint in said.out + said.err

    for act in step.follow:
        act(world)
    then = world.run(*step.then.split())
    assert step.after in then.out + then.err, then.out + then.err


NAMED = re.compile(r"`reconciler ([^`]+)`")
NEEDS_OBJECTS = "snapshot import"
QUESTIONS = (
    *("plan", "status", "doctor", "pr list", "lock --check", "explain edge-1/web"),
    *(f"explain edge-1/{name} --why-not newest" for name in ("web", "db")),
    "approve edge-1/web",
)


@pytest.mark.parametrize(
    "situation",
    ["conflict", "closed", "closed and gone", "held", "deletion", "no consent", "stalled behind main"],
)
def test_a_command_that_an_output_names_runs(situation: str, tmp_path: Path) -> None:
    world = world_of(situation, tmp_path / "w")
    printed = [world.run(*line.split()) for line in QUESTIONS]

    named = {line for said in printed for line in NAMED.findall(said.out + said.err)} - {NEEDS_OBJECTS}

    assert named
    wrong = {line: ran.err for line in sorted(named) if (ran := world.run(*shlex.split(line))).code in {1, 2}}
    assert wrong == {}


def test_merged_pull_request_has_nothing_left_to_approve(tmp_path: Path) -> None:
    world = write_world(tmp_path / "w", ("edge-1",))
    for act in PUBLISHED:
        act(world)
    before = world.all_refs()

    for line in (APPROVE, "approve edge-1#2", "approve --propose-only edge-1#2"):
        said = world.run(*line.split())
        assert (said.code, said.out) == (Exit.DONE, "already merged: edge-1/web in edge-1#2\n")
    assert world.run("pr", "merge", "edge-1#2").out == "already merged edge-1#2 Create web from web/v1\n"
    refused = world.run("pr", "close", "edge-1#2")
    assert refused.code == Exit.REFUSED
    assert "Pull request edge-1#2 was merged and cannot be closed" in refused.err
    assert world.all_refs() == before


def test_edited_draft_is_merged_with_main_and_keeps_what_others_wrote_there(tmp_path: Path) -> None:
    world = world_of("edited draft behind main", tmp_path / "w")
    with world.edit("edge-1", "Another file of main") as copy:
        (copy / "other.txt").write_text("other\n")
    world.run("apply")

    branch, edge = draft(world), world.root / "edge-1.git"
    first, second = git(edge, "log", "-1", "--format=%P", branch).split()
    assert second == refs(edge)["refs/heads/main"]
    changed = git(edge, "diff", "--name-only", "main", branch).splitlines()
    assert changed == ["web/Kptfile", "web/NOTE.md", "web/app.yaml"]
    assert "replicas: 5" in git(edge, "show", f"{branch}:web/app.yaml")
    assert "web:v2" in git(edge, "show", f"{branch}:web/app.yaml")
    assert git(edge, "show", f"{first}:web/NOTE.md") == "Ask Kim first\n"

    before = world.all_refs()
    world.run("apply")
    assert world.all_refs()["edge-1.git"] == before["edge-1.git"]
