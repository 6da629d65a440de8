"""Rollouts of a set over three clusters as real repositories: ways back, failures, renames, orders."""

from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.resolve.deliveries import RETRY
from tests.support.edge_fleet import (
    FOLLOW,
    ROLL_BACK,
    SKIP,
    WAVES,
    blueprint,
    make_edges,
    make_empty,
    make_monorepo,
    the_set,
)
from tests.support.git import Repo
from tests.support.signing import make_key, signing_options
from tests.support.small_world import repository
from tests.support.world import git

pytestmark = pytest.mark.slow

GROUP = "reconciler/fleet/group/repository/default/ap1/1"
GROUPED = "  pullRequests: {groupBy: repository}\n"


@pytest.mark.parametrize("layout", ["repositories", "monorepo"])
def test_a_rollback_reaches_every_package_and_leaves_nothing_to_do(layout: str) -> None:
    world = make_edges() if layout == "repositories" else make_monorepo()
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
def test_a_rollback_knows_what_main_had_before(lost: str) -> None:
    world = make_edges()
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
    world = make_edges()
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


def test_a_set_that_renames_its_package_leaves_no_cluster_without_it() -> None:
    world = make_edges()
    world.want(1, name="shop")
    for _ in range(8):
        ran = world.run("apply")
        world.run("approve", "--all")
        assert all(old or new for old, new in zip(world.images(), world.images("shop"), strict=True)), ran.out

    assert world.images() == [""] * 3
    assert world.images("shop") == ["v1"] * 3
    assert world.is_quiet()


def test_a_target_whose_repository_is_renamed_keeps_its_wave() -> None:
    world = make_edges()
    world.want(2)
    world.run("apply")
    files = {"manifests/ap1.yaml": repository("ap1").replace("name: ap1", "name: asia")}
    renamed = the_set(2, target={"repositories": [{"name": edge} for edge in ("asia", "eu1", "us1")]})
    Repo(world.control).commit({**files, "manifests/set.json": renamed})

    told = world.run("apply").out

    assert "wave canary: progressing, 0 of 1 published, 1 on the way" in told
    assert world.images() == ["v1"] * 3
    (branch,) = (ref for ref in world.repo("ap1").refs() if "drafts/web" in ref)
    assert world.image("ap1", branch=branch) == "v2"
    world.settle()
    assert world.images() == ["v2"] * 3
    assert world.is_quiet()


def test_a_draft_that_is_rolled_back_to_hand_a_package_over_is_no_update() -> None:
    world = make_edges()
    world.want(2)
    world.run("apply")
    renamed = the_set(
        2, {ROLL_BACK: "web/v2"}, target={"repositories": [{"name": name} for name in ("asia", "eu1", "us1")]}
    )
    asia = repository("ap1").replace("name: ap1", "name: asia")
    Repo(world.control).commit({"manifests/ap1.yaml": asia, "manifests/set.json": renamed})

    told = world.run("apply").out

    assert "review     change of web/v1" in told
    assert "update to web/v2" not in told


def test_a_set_follows_a_moved_tag_by_one_annotation() -> None:
    world = make_edges()
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
def test_an_order_that_is_not_understood_is_refused_by_line(order: dict[str, str], hint: str) -> None:
    world = make_edges()
    world.want(2, order)

    ran = world.run("apply")

    assert ran.code == Exit.INVALID_INPUT
    assert "manifests/set.json:8:" in ran.out
    assert hint in ran.out
    assert "drafts" not in "".join(world.all_refs()["ap1.git"])


def test_a_closed_pull_request_fails_its_wave_without_its_branch() -> None:
    world = make_edges()
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
def test_every_command_names_a_pull_request_of_a_monorepo_alike(group_by: str) -> None:
    world = make_monorepo()
    world.configure(f"  pullRequests: {{groupBy: {group_by}}}\n{WAVES if group_by == 'wave' else ''}")
    world.want(2)
    world.run("apply")
    rows = world.run("status", "--output", "csv").out.splitlines()[1:]
    named = {row.split(",")[6] for row in rows} - {""}
    listed = {line.split()[0]: line for line in world.run("pr", "list").out.splitlines()[1:]}

    assert listed.keys() == named
    assert all("in review" in line for line in listed.values())
    assert all(world.run("pr", "show", name).code == Exit.DONE for name in named)


def test_a_rollout_of_which_every_package_left_does_not_stand_for_the_next_one() -> None:
    world = make_edges()
    for name in ("shop", "web"):
        world.want(1, name=name)
        world.run("apply")
    world.want(2)
    assert "rollout web/v2 of default/web: progressing" in world.run("apply").out
    world.settle()

    world.want(2, {ROLL_BACK: "web/v2"})
    world.settle()

    assert world.images() == ["v1"] * 3


def test_what_to_write_for_another_try_is_the_same_in_the_next_run() -> None:
    world = make_edges()
    world.want(2, {RETRY: "3"})
    world.apply()
    world.run("pr", "close", "ap1#2")
    assert 'reconciler.dev/retry: "4"' in world.apply().out
    world.want(2)

    assert 'reconciler.dev/retry: "1"' in world.apply().out
    world.want(2, {RETRY: "1"})
    world.apply()
    assert [pull["state"] for pull in world.pulls("ap1").values()] == ["merged", "closed", "open"]


@pytest.mark.parametrize("group_by", ["package", "set"])
def test_nobody_rejected_the_draft_that_a_later_wave_closed(tmp_path: Path, group_by: str) -> None:
    world = make_empty(tmp_path / "w")
    world.configure(f"  pullRequests: {{groupBy: {group_by}}}\n")
    world.want(1)
    world.apply()
    world.configure(f"{WAVES}  pullRequests: {{groupBy: {group_by}}}\n")
    world.want(2)
    assert "close   2 packages  AwaitingWave" in world.apply().out
    world.want(1)

    ran = world.apply()

    assert ran.code == Exit.DONE
    assert "Rejected" not in ran.out
    world.settle()
    assert world.images() == ["v1"] * 3


def test_a_deletion_that_a_person_merged_with_a_group_says_that_apply_closes_it() -> None:
    world = make_edges(GROUPED, packages=("db", "web"))
    for package in ("db", "web"):
        world.want(2, package=package)
    world.run("apply")
    world.repo("ap1").commit({"web/Kptfile": None, "web/app.yaml": None}, branch=GROUP, message="Mine\n")
    Repo(world.control).commit({"manifests/set.json": None})
    world.run("apply")

    said = world.run("approve", "--all").out

    assert "refused: ap1/web: web changed on main since pull request 4" in said
    assert "hint: Run `reconciler apply`: it brings the pull request up to date or closes it." in said
    world.run("apply")
    assert world.run("approve", "--all").out.strip() == "Nothing is open."


@pytest.mark.parametrize("change", ["rollback", "revision"])
def test_approving_all_brings_no_revision_that_is_not_asked_for_any_more(change: str) -> None:
    world = make_edges("")
    world.want(2)
    world.run("apply")
    branch = world.draft_branch("ap1", "web")
    world.repo("ap1").commit({"web/note.txt": "mine\n"}, branch=branch, message="Mine\n")
    world.run("apply")
    if change == "rollback":
        world.configure()
    world.want(*((2, {ROLL_BACK: "web/v2"}) if change == "rollback" else (1,)))
    assert "the draft has a person's commits and is left to them" in world.run("apply").out

    refused = world.run("approve", "--all")

    assert refused.code == Exit.REFUSED
    assert "Pull request ap1#2 proposes what no manifest wants any more: web" in refused.out
    assert world.images() == ["v1"] * 3
    assert world.run("approve", "ap1#2").code == Exit.DONE


def test_a_package_that_is_wanted_again_is_in_its_group_at_once() -> None:
    world = make_edges(GROUPED)
    world.want(2)
    world.run("apply")
    world.repo("ap1").commit({"web/note.txt": "mine\n"}, branch=GROUP, message="Mine\n")
    Repo(world.control).commit({"manifests/set.json": None})
    world.apply()
    world.want(1)

    said = world.apply()

    assert "close   ap1/web  DraftEdited" in said.out
    assert world.repo("ap1").read(GROUP, "web/note.txt")


@pytest.mark.parametrize("more", ["", GROUPED])
def test_a_deletion_beside_a_draft_of_a_person_is_reviewed_apart(more: str) -> None:
    world = make_edges(more)
    world.want(2)
    world.run("apply")
    branch = GROUP if more else world.draft_branch("ap1", "web")
    world.repo("ap1").commit({"web/note.txt": "mine\n"}, branch=branch, message="Mine\n")
    Repo(world.control).commit({"manifests/set.json": None})

    said = [" ".join(line.split()) for line in world.apply().out.splitlines()]

    assert "decide web: merge or close its draft, which people edited ap1#2" in said
    assert "review deletion of web ap1#3, eu1#3, us1#3" in said


GONE = {f"web/{name}": None for name in ("Kptfile", "app.yaml", "package-context.yaml")}
"""Files of a package that a person deletes."""
HINT = "A person deleted it there. Approve it by name, ap1#{0}, or put web back on "
REFUSED = f"ap1#{{0}} deletes what a manifest wants: web\n  hint: {HINT}"


def test_approving_all_deletes_no_wanted_package_that_a_person_deleted_in_a_group() -> None:
    world = make_edges(GROUPED, packages=("db", "web"))
    for package in ("db", "web"):
        world.want(2, package=package)
    world.run("apply")
    world.repo("ap1").commit(GONE, branch=GROUP, message="Mine\n")
    world.configure(f"{GROUPED}  approval: {{auto: [{{selector: {{}}, edited: true}}]}}\n")

    said = world.run("apply").out

    assert "risks: deletion in 1 package" in said
    assert "keep     ap1/web  DeletedByPerson" in said
    assert f"A person deleted it on {GROUP}: merging that deletes the package" in said
    assert "updated  ap1 #3 Update 1 package and delete web" in said
    assert "decide     web: its deletion by a person  ap1#3" in said
    assert "| `ap1/web` | deleted |" in world.run("pr", "show", "ap1#3").out
    world.run("apply")
    refused = world.run("approve", "--all")
    assert refused.code == Exit.REFUSED
    assert REFUSED.format(3) in refused.out
    assert "It shares pull request ap1#3 with ap1/web" in world.run("approve", "ap1/db").out
    assert world.images() == ["v1", "v2", "v2"]
    assert world.run("approve", "ap1#3").code == Exit.DONE
    assert (world.images(), world.images("db")) == (["", "v2", "v2"], ["v2"] * 3)


@pytest.mark.parametrize("back", ["revision", "rollback"])
def test_a_group_that_deletes_a_package_and_is_wanted_no_more_has_a_row(back: str) -> None:
    world = make_edges(GROUPED if back == "revision" else WAVES)
    world.want(2)
    world.run("apply")
    if back == "rollback":
        world.settle()
        world.want(2, {ROLL_BACK: "web/v2"})
        world.run("apply")
    (head,) = [ref for ref in world.repo("ap1").refs() if "/group/" in ref]
    world.repo("ap1").commit(GONE, branch=head.removeprefix("refs/heads/"), message="Mine\n")
    world.want(1 if back == "revision" else 2)

    world.apply()

    number = 2 if back == "revision" else 3
    assert world.pulls("ap1")[number]["title"] == "Delete web"
    (row,) = [line for line in world.run("status").out.splitlines() if line.startswith("ap1/web")]
    assert f"ap1#{number}" in row
    assert "its deletion by a person: A person deleted it on" in row
    assert REFUSED.format(number) in world.run("approve", "--all").out
    assert world.image("ap1")


@pytest.mark.parametrize("left", ["nothing", "a file"])
def test_approving_all_deletes_no_wanted_package_that_a_person_deleted_in_its_draft(left: str) -> None:
    world = make_edges("")
    world.want(2)
    world.run("apply")
    head = "drafts/web/packagevariant-2"
    gone = {path: None for path in GONE if left == "nothing" or "context" not in path}
    world.repo("ap1").commit(gone, branch=head, message="Mine\n")
    world.configure("  approval: {auto: [{selector: {}, edited: true}]}\n")

    said = world.run("apply").out

    assert f"A person deleted it on {head}: merging that deletes the package" in said
    assert "updated  ap1 #2 Delete web" in said
    assert "opened" not in said
    assert "a person deleted it on this branch" in world.run("pr", "show", "ap1#2").out
    assert f"{REFUSED.format(2)}{head}" in world.run("approve", "--all").out
    assert world.images() == ["v1", "v2", "v2"]
    ending = "removed" if left == "nothing" else "merged; the files that its branch keeps are still there"
    assert f"approved ap1/web: {ending}" in world.run("approve", "ap1#2").out
    assert world.images() == ["", "v2", "v2"]
    assert "refs/tags/web/v2" not in world.repo("ap1").refs()


def test_closing_the_deletion_of_a_person_keeps_the_package_until_it_is_tried_again() -> None:
    world = make_edges("")
    world.want(2)
    world.run("apply")
    world.repo("ap1").commit(GONE, branch="drafts/web/packagevariant-2", message="Mine\n")
    world.run("apply")

    world.run("pr", "close", "ap1#2")
    world.settle()

    assert world.images() == ["v1", "v2", "v2"]
    assert "Rejected" in world.run("plan").out
    world.want(2, {RETRY: "1"})
    world.settle()
    assert world.images() == ["v2"] * 3


def test_a_new_package_that_a_person_deleted_in_its_draft_is_not_proposed_beside_it(tmp_path: Path) -> None:
    world = make_empty(tmp_path / "w")
    world.want(1)
    world.run("apply")
    world.repo("ap1").commit(GONE, branch="drafts/web/packagevariant-1", message="Mine\n")

    said = world.run("apply").out

    assert "A person deleted it on drafts/web/packagevariant-1" in said
    assert "opened" not in said
    refused = world.run("approve", "--all").out
    assert "hint: Put it back there with git, or close the pull request to reject it" in refused
    assert world.images() == ["", "v1", "v1"]
    world.repo("ap1").commit(blueprint(1), branch="drafts/web/packagevariant-1", message="Back\n")
    world.settle()
    assert world.images() == ["v1"] * 3
