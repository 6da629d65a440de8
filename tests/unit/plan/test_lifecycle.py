"""One package through its life: what each plan says, and what the next one sees of it."""

import pytest

from reconciler.api.porch import Downstream
from reconciler.base.errors import Exit
from reconciler.base.reasons import Reason
from reconciler.names.ids import ObjectName
from reconciler.plan.changes import Change, MoveRef, Op, WriteDraft, WriteRemoval
from reconciler.policy import OpenOn, PullRequestPolicy
from tests.support.model import MAIN, NAMESPACE, ModelWorld, blueprint
from tests.support.model import web_spec as spec
from tests.support.values import replace

DRAFT = "refs/heads/drafts/web/packagevariant-1"
DELETE = "refs/heads/reconciler/fleet/delete/web"


@pytest.fixture
def world() -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge", deployment=True)
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 1\n", b_yaml="b: 1\n"), 1)
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 2\n", b_yaml="b: 1\n"), 2)
    return world


def the_change(world: ModelWorld, path: str = "web") -> Change:
    """Plan, apply, see that nothing is left to do, and return the change of one package."""
    plan = world.run()
    again = world.plan()
    assert again.is_empty, [c for c in again.changes if c.pending]
    assert (again.records, again.status) == (world.state, world.status)
    (change,) = [c for c in plan.changes if c.package.path == path]
    return change


def drafted(world: ModelWorld) -> str:
    world.variants["web"] = spec()
    world.run()
    (ref,) = world.drafts("edge")
    return ref


def published(world: ModelWorld) -> None:
    world.merge("edge", drafted(world))
    world.run()


def text(world: ModelWorld, path: str, ref: str = MAIN) -> str:
    return world.repositories["edge"].at(ref).packages["web"][path].data.decode()


def test_creating_writes_one_commit_on_mains_head_and_opens_a_draft_pull_request(world: ModelWorld) -> None:
    world.variants["web"] = spec()

    change = the_change(world)

    (write,) = change.writes
    assert isinstance(write, WriteDraft)
    assert (change.op, change.reason) == (Op.CREATE, Reason.NEW)
    assert (write.ref, write.expect, write.onto) == (DRAFT, None, world.repositories["edge"].refs[MAIN])
    assert change.pull is not None
    assert (change.pull.head, change.pull.base, change.pull.draft) == (
        "drafts/web/packagevariant-1",
        "main",
        True,
    )


def test_pull_requests_wait_for_a_proposal_where_the_policy_says_so(world: ModelWorld) -> None:
    world.policy = replace(world.policy, pull_requests=PullRequestPolicy(open_on=OpenOn.PROPOSE))
    world.variants["web"] = spec()
    assert the_change(world).pull is None

    refs = world.repositories["edge"].refs
    refs[DRAFT.replace("/drafts/", "/proposed/")] = refs.pop(DRAFT)
    change = the_change(world)

    assert change.pull is not None
    assert (change.pull.head, change.pull.draft) == ("proposed/web/packagevariant-1", False)


def test_an_open_draft_follows_upstream_in_place(world: ModelWorld) -> None:
    drafted(world)
    world.variants["web"] = spec(2)

    change = the_change(world)

    assert (change.op, change.reason) == (Op.UPDATE, Reason.UPSTREAM_CHANGED)
    assert world.drafts("edge") == [DRAFT]
    assert text(world, "a.yaml", DRAFT) == "a: 2\n"
    assert world.repositories["edge"].at(DRAFT).parents == (world.repositories["edge"].refs[MAIN],)


def test_a_draft_that_goes_back_is_as_old_as_its_older_upstream(world: ModelWorld) -> None:
    world.variants["web"] = spec(2)
    world.run()
    world.variants["web"] = spec(1)

    (write,) = the_change(world).writes

    upstream = world.repositories["blueprints"].at("refs/tags/web/v1")
    assert isinstance(write, WriteDraft)
    assert write.time == upstream.time, "the time of our own former commit does not count"


def test_a_persons_commit_on_a_draft_survives_an_update(world: ModelWorld) -> None:
    drafted(world)
    tip = world.edit("edge", "web", {"b.yaml": "b: mine\n"}, ref=DRAFT)
    world.variants["web"] = spec(2)

    the_change(world)

    assert world.repositories["edge"].at(DRAFT).parents == (tip,)
    assert (text(world, "a.yaml", DRAFT), text(world, "b.yaml", DRAFT)) == ("a: 2\n", "b: mine\n")


def test_a_main_that_moved_elsewhere_leaves_the_draft_alone(world: ModelWorld) -> None:
    drafted(world)
    world.push("edge", {"theirs": blueprint("theirs")})

    assert the_change(world).op is Op.KEEP


def test_a_main_that_moved_inside_the_package_is_merged_again(world: ModelWorld) -> None:
    published(world)
    world.variants["web"] = spec(2)
    world.run()
    world.edit("edge", "web", {"b.yaml": "b: hotfix\n"})

    change = the_change(world)

    (ref,) = world.drafts("edge")
    assert (change.op, change.reason) == (Op.EDIT, Reason.CONTENT_CHANGED)
    assert (text(world, "a.yaml", ref), text(world, "b.yaml", ref)) == ("a: 2\n", "b: hotfix\n")


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
@pytest.mark.parametrize("keep_branch", [False, True])
def test_a_merge_however_made_is_published_and_its_branch_cleared(
    world: ModelWorld, how: str, *, keep_branch: bool
) -> None:
    merged = world.merge("edge", drafted(world), how=how, keep_branch=keep_branch)

    change = the_change(world)

    assert (change.op, change.reason) == (Op.PUBLISH, Reason.PUBLISHED_BY_MERGE)
    assert world.repositories["edge"].refs["refs/tags/web/v1"] == merged
    assert world.drafts("edge") == []


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
def test_a_merged_draft_that_a_person_edited_is_cleared_too(world: ModelWorld, how: str) -> None:
    draft = drafted(world)
    world.edit("edge", "web", {"b.yaml": "b: mine\n"}, ref=draft)
    world.merge("edge", draft, how=how, keep_branch=True)

    change = the_change(world)

    assert (change.op, change.waits) == (Op.PUBLISH, False)
    assert world.drafts("edge") == []


def test_an_untagged_hotfix_is_published_before_the_next_revision(world: ModelWorld) -> None:
    published(world)
    hotfix = world.edit("edge", "web", {"b.yaml": "b: hotfix\n"})
    world.variants["web"] = spec(2)

    change = the_change(world)

    assert MoveRef("refs/tags/web/v2", None, hotfix) in change.writes
    assert (change.op, change.reason) == (Op.UPDATE, Reason.UPSTREAM_CHANGED)
    (ref,) = world.drafts("edge")
    assert text(world, "b.yaml", ref) == "b: hotfix\n"


def test_going_back_to_what_is_published_closes_an_untouched_draft(world: ModelWorld) -> None:
    published(world)
    world.variants["web"] = spec(2)
    world.run()
    world.variants["web"] = spec(1)

    change = the_change(world)

    assert (change.op, change.reason) == (Op.CLOSE, Reason.DRAFT_SUPERSEDED)
    assert [close.head for close in change.close] == ["drafts/web/packagevariant-2"]
    assert world.drafts("edge") == []


def test_a_closed_pull_request_without_its_branch_is_not_opened_again(world: ModelWorld) -> None:
    draft = drafted(world)
    world.close("edge", draft.removeprefix("refs/heads/"))
    del world.repositories["edge"].refs[draft]

    assert the_change(world).reason is Reason.REJECTED


def test_a_draft_that_changes_after_its_pull_request_was_closed_gets_another_one(world: ModelWorld) -> None:
    world.close("edge", drafted(world).removeprefix("refs/heads/"))
    world.variants["web"] = spec(2)

    change = the_change(world)

    assert change.pull is not None
    assert (change.pull.number, change.pull.draft) == (0, True)


def test_a_rename_transfers_and_deletes_nothing(world: ModelWorld) -> None:
    published(world)
    world.variants["site"] = world.variants.pop("web")

    change = the_change(world)

    assert (change.op, change.reason) == (Op.TRANSFER, Reason.OWNER_CHANGED)
    assert not [w for w in change.writes if isinstance(w, WriteRemoval)]
    assert ObjectName(NAMESPACE, "web") in world.records, "its package still carries its name on main"
    world.merge("edge", world.drafts("edge")[0])
    world.run()
    assert set(world.records) == {ObjectName(NAMESPACE, "site")}


def test_deleting_a_published_package_is_proposed_and_ends_when_it_is_merged(world: ModelWorld) -> None:
    published(world)
    world.variants.clear()

    change = the_change(world)

    removal, marker = change.writes
    assert isinstance(removal, WriteRemoval)
    assert (change.op, removal.ref, removal.path) == (Op.DELETE, DELETE, "web")
    assert marker.ref == "refs/heads/deletionProposed/web/v1"
    assert the_change(world).reason is Reason.DELETION_PROPOSED
    world.merge("edge", DELETE, keep_branch=True)
    assert the_change(world).reason is Reason.ALREADY_ABSENT
    assert world.records == {}
    assert list(world.repositories["edge"].refs) == [MAIN, "refs/tags/web/v1"]


def test_orphaning_drops_the_annotations_by_a_draft_and_keeps_the_content(world: ModelWorld) -> None:
    world.variants["web"] = spec(deletion_policy="orphan")
    world.run()
    world.merge("edge", world.drafts("edge")[0])
    world.run()
    world.variants.clear()

    change = the_change(world)

    assert (change.op, change.reason) == (Op.ORPHAN, Reason.ORPHANED)
    (ref,) = world.drafts("edge")
    assert "reconciler.dev" not in text(world, "Kptfile", ref)
    assert text(world, "a.yaml", ref) == "a: 1\n"
    world.merge("edge", ref)
    assert world.run().changes == (), "nobody targets the repository any more"
    assert world.records == {}


def test_a_misspelt_downstream_repository_deletes_nothing(world: ModelWorld) -> None:
    published(world)
    world.variants["web"] = spec().model_copy(update={"downstream": Downstream(repo="egde", package="web")})

    plan = world.plan()

    assert {change.op for change in plan.changes} == {Op.KEEP}
    assert [problem.reason for problem in plan.problems] == [Reason.REPOSITORY_NOT_FOUND]


def test_a_moved_variant_that_cannot_be_resolved_deletes_nothing(world: ModelWorld) -> None:
    published(world)
    world.variants["web"] = spec(9, package="site")

    former = the_change(world)

    assert (former.op, former.reason) == (Op.KEEP, Reason.OWNER_STALLED)


def test_too_many_deletions_are_refused(world: ModelWorld) -> None:
    for number in range(12):
        world.variants[f"web-{number}"] = spec(package=f"web-{number}")
    world.run()
    world.variants = {"web-0": world.variants["web-0"]}

    plan = world.plan()

    assert [refusal.reason for refusal in plan.refusals] == [Reason.DELETION_GUARD]
    assert Exit.REFUSED in plan.exits
    assert not [change for change in plan.changes if change.op is Op.DELETE]

    (refusal,) = plan.refusals
    world.policy = replace(world.policy, consents={refusal.consent: "shrunk"})
    assert (world.plan().refusals, Op.DELETE in {c.op for c in world.plan().changes}) == ((), True)
