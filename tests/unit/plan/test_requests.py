"""Content of pull requests: what each proposes, its title and labels, and when an open one is rewritten."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.ids import ObjectName, PackageKey, RolloutKey
from reconciler.names.objects import Commit
from reconciler.plan.changes import (
    Approval,
    Change,
    ClosePull,
    MoveRef,
    Op,
    PinChange,
    PullRequestContent,
    UpstreamCommits,
    WriteGroup,
)
from reconciler.plan.context import PlanContext, PlanTarget, with_before
from reconciler.plan.requests import is_right, lock_pull, plan_requests
from reconciler.policy import Policy, PullRequestPolicy, ReviewRule
from reconciler.records.state import RolloutRecord
from reconciler.resolve.resolution import ResolvedVariant
from reconciler.resolve.rollout_model import Rollout, RolloutPhase
from tests.support import plan_values
from tests.support.plan_values import (
    BRANCH,
    PACKAGE,
    URL,
    WEB,
    a_conflict,
    a_context,
    a_desired_variant,
    a_draft,
    a_pin,
    a_pull,
    a_write,
    oid,
    staged,
)
from tests.support.sets import a_package, repository, variant, world
from tests.support.values import replace

PLANNED = PullRequest("drafts/web/w", "main", "Update web", "Why.", labels=("fleet", "Edge"), digest="abc")
EDGE = repository("edge", url=URL, directory="sites")
ON_MAIN = a_package(main_tree=oid("b1"))
OTHER = ObjectName("default", "other")
REF = f"refs/heads/{BRANCH}"
WRITE = a_write(ref=REF, expect=oid("d2"), time=30)
DELETION = "reconciler/default/delete/web"


def a_change(op: Op = Op.UPDATE, reason: Reason = Reason.UPSTREAM_CHANGED, **fields: Any) -> Change:
    """Return a change of `web` that writes its draft, unless it is given other effects."""
    given: dict[str, Any] = {"variant": WEB, "writes": (WRITE,), **fields}
    return plan_values.a_change(repository=EDGE.key, op=op, reason=reason, **given)


def a_target(**fields: Any) -> PlanTarget:
    """Return the package on main, owned by the variant `web`, with an untouched draft."""
    given: dict[str, Any] = {
        "owner": WEB,
        "main_owner": WEB,
        "draft": a_draft(),
        "package": ON_MAIN,
        "view": EDGE,
        **fields,
    }
    return PlanTarget(PACKAGE, **given)


def a_resolved(**fields: Any) -> ResolvedVariant:
    """Return the variant `web`, resolved to revision 2 with revision 1 on main."""
    sourced = variant("web")
    wanted = a_desired_variant(
        key=sourced.key, spec=sourced.manifest.spec, source=sourced.source, requested_by=("prod/gw",)
    )
    given: dict[str, Any] = {"downstream": PACKAGE, "pin": a_pin(2), "base": a_pin(1), **fields}
    return plan_values.a_resolved(variant=wanted, view=EDGE.key, local=oid("b1"), **given)


def context_of(
    target: PlanTarget,
    pulls: Sequence[PullRequest] = (),
    resolved: ResolvedVariant | None = None,
    *,
    policy: Policy | None = None,
) -> PlanContext:
    inventory = world(views=(EDGE,), pulls={URL: tuple(pulls)}, policy=policy or Policy())
    return with_before(
        a_context(
            inventory, targets={target.key: target}, resolved={WEB: resolved} if resolved is not None else {}
        )
    )


def planned(change: Change, target: PlanTarget | None = None, *pulls: PullRequest, **more: Any) -> Change:
    """Return a change with the content of its pull request."""
    resolved = more.pop("resolved", a_resolved())
    context = context_of(target or a_target(), pulls, resolved, **more)
    (result,) = staged("request", plan_requests, [change], context)
    return result


def content(change: Change, target: PlanTarget | None = None, **more: Any) -> PullRequestContent | None:
    return planned(change, target, **more).request


@pytest.mark.parametrize(
    ("there", "right"),
    [
        ({}, True),
        ({"title": "A person's title"}, True),
        ({"labels": ("FLEET", "edge")}, True),
        ({"labels": ("fleet", "Edge", "a person's")}, True),
        ({"labels": ("fleet",)}, False),
        ({"labels": ()}, False),
        ({"digest": "other"}, False),
        ({"digest": ""}, False),
        ({"base": "release"}, False),
    ],
)
def test_pull_request_is_right_with_its_text_base_and_at_least_our_labels(
    there: dict[str, Any], right: bool
) -> None:
    assert is_right(replace(PLANNED, **there), PLANNED) is right


UPDATE = PullRequestContent(
    Op.UPDATE,
    upstream_from="web/v1",
    upstream_to="web/v2",
    before=oid("b1"),
    after=oid("e1"),
    requested_by=("prod/gw",),
    upstream=UpstreamCommits("https://host/blueprints", "web", oid("a1"), oid("a2")),
)
NEW = replace(
    UPDATE,
    kind=Op.CREATE,
    before=None,
    upstream_from="",
    upstream=UpstreamCommits("https://host/blueprints", "web", "", oid("a2")),
)
STAYS: Mapping[str, Any] = {"writes": (), "op": Op.KEEP, "reason": Reason.UP_TO_DATE}


@pytest.mark.parametrize(
    ("change", "target", "resolved", "want"),
    [
        pytest.param({}, {}, {}, UPDATE, id="update of a package on main"),
        pytest.param({}, {"package": a_package()}, {}, NEW, id="first draft: no base counts"),
        pytest.param({}, {"main_owner": None}, {}, replace(UPDATE, kind=Op.ADOPT), id="adopted"),
        pytest.param({}, {"main_owner": OTHER}, {}, replace(UPDATE, kind=Op.TRANSFER), id="another owner's"),
        pytest.param({}, {}, {"base": a_pin(2)}, replace(UPDATE, kind=Op.EDIT, upstream_from="web/v2",
            upstream=UpstreamCommits("https://host/blueprints", "web", oid("a2"), oid("a2"))),
            id="same upstream"),
        pytest.param({}, {}, {"base": None},
            replace(UPDATE, upstream_from="", upstream=UpstreamCommits("https://host/blueprints", "web", "",
            oid("a2"))), id="unknown base"),
        pytest.param({}, {}, {"base": a_pin(3)}, replace(UPDATE, upstream_from="web/v3", is_back=True,
            upstream=UpstreamCommits("https://host/blueprints", "web", oid("a3"), oid("a2"))),
            id="older revision than on main"),
        pytest.param({}, {}, {"base": a_pin(3), "pin": a_pin(0, ref="main")},
            replace(UPDATE, upstream_from="web/v3", upstream_to="main@a0000000",
            upstream=UpstreamCommits("https://host/blueprints", "web", oid("a3"), oid("a0"))),
            id="a branch is no older revision"),
        pytest.param(STAYS, {}, {}, replace(UPDATE, after=oid("d1")), id="draft that stays"),
        pytest.param(STAYS, {}, {"draft_base": a_pin(1), "base": None},
            replace(UPDATE, after=oid("d1"), upstream_from="", upstream_to="web/v1",
            upstream=UpstreamCommits("https://host/blueprints", "web", "", oid("a1"))),
            id="draft that stays with its older upstream"),
        pytest.param({}, {}, {"draft_base": a_pin(1)}, UPDATE, id="draft that is written has the new one"),
        pytest.param(STAYS, {}, {"draft_base": a_pin(2, ref="web/other")}, replace(UPDATE, after=oid("d1")),
            id="draft of the same commit is named as the pin"),
        pytest.param({}, {"draft": a_draft(has_foreign_commits=True)}, {}, replace(UPDATE, edited=True),
            id="edited"),
        pytest.param({}, {"draft": a_draft(written=oid("e9"), ref="refs/heads/reconciler/default/group/g")},
            {}, UPDATE, id="a commit on a group's branch is nobody's edit"),
        pytest.param({}, {"draft": None}, {}, UPDATE, id="no draft yet"),
        pytest.param({**STAYS}, {"draft": None}, {}, None, id="nothing is proposed"),
        pytest.param({**STAYS, "op": Op.CLOSE}, {}, {}, None, id="draft is closed"),
        pytest.param({**STAYS, "writes": (MoveRef(REF, oid("d2"), None),)}, {}, {}, None,
            id="draft is removed"),
        pytest.param({**STAYS, "writes": (MoveRef("refs/tags/web/v1", None, oid("b2")),)}, {}, {},
            replace(UPDATE, after=oid("d1")), id="a tag removes no draft"),
        pytest.param({"op": Op.BLOCK}, {}, {}, None, id="blocked"),
        pytest.param({**STAYS, "reason": Reason.PAUSED}, {}, {}, None, id="reason that tells nothing of it"),
        pytest.param({"reason": Reason.PAUSED, "pull": a_pull()}, {}, {}, UPDATE,
            id="unless a pull request is asked for"),
        pytest.param({**STAYS, "reason": Reason.DRAFT_EDITED, "waits": True}, {}, {}, None,
            id="edits are left alone"),
        pytest.param({**STAYS, "reason": Reason.DRAFT_EDITED}, {}, {}, replace(UPDATE, after=oid("d1")),
            id="edits that hold what is wanted"),
        pytest.param({**STAYS, "reason": Reason.DELETION_PROPOSED}, {}, {},
            PullRequestContent(Op.DELETE, before=oid("b1")), id="deletion that is proposed"),
        pytest.param({"op": Op.DELETE, "reason": Reason.NOT_DESIRED}, {}, {},
            PullRequestContent(Op.DELETE, before=oid("b1")), id="deletion that is new"),
        pytest.param({"op": Op.DELETE, "reason": Reason.NOT_DESIRED}, {"main_owner": None}, {}, None,
            id="draft deleted"),
        pytest.param({"op": Op.ORPHAN, "reason": Reason.ORPHANED},
            {"draft": a_draft(has_foreign_commits=True)}, {}, PullRequestContent(Op.ORPHAN, before=oid("b1"),
            after=oid("e1"), edited=True), id="package that is let go"),
        pytest.param({"variant": None}, {}, {}, None, id="no variant"),
        pytest.param({}, {}, {"downstream": PackageKey(URL, "moved")}, None, id="variant moved elsewhere"),
    ],
)  # fmt: skip
def test_content_of_a_pull_request(
    change: Mapping[str, Any], target: Mapping[str, Any], resolved: Mapping[str, Any], want: object
) -> None:
    assert content(a_change(**change), a_target(**target), resolved=a_resolved(**resolved)) == want


def test_variant_that_is_not_resolved_has_no_content() -> None:
    assert content(a_change(), resolved=None) is None


@pytest.mark.parametrize(
    ("change", "target", "resolved", "title"),
    [
        ({}, {}, {}, "Update web from web/v1 to web/v2"),
        ({}, {}, {"base": None}, "Update web to web/v2"),
        ({}, {}, {"base": a_pin(3)}, "Roll web back from web/v3 to web/v2"),
        ({}, {}, {"base": a_pin(3, package=PackageKey(URL, "root"))}, "Update web from web/v3 to web/v2"),
        ({}, {}, {"base": a_pin(2)}, "Change web, from web/v2"),
        ({}, {}, {"base": a_pin(2, commit=a_pin(1).commit)}, "Update web to web/v2"),
        ({}, {"package": a_package()}, {}, "Create web from web/v2"),
        ({}, {"main_owner": None}, {}, "Adopt web, from web/v2"),
        ({}, {"main_owner": OTHER}, {}, "Hand over web, from web/v2"),
        ({"op": Op.DELETE, "reason": Reason.NOT_DESIRED}, {}, {}, "Delete web"),
        ({"op": Op.ORPHAN, "reason": Reason.ORPHANED}, {}, {}, "Stop managing web"),
        ({"group": "edge-1"}, {}, {}, "Update 1 package"),
        ({"reason": Reason.PAUSED, "op": Op.BLOCK}, {}, {}, "as it is called"),
    ],
)
def test_title_of_a_pull_request(
    change: Mapping[str, Any], target: Mapping[str, Any], resolved: Mapping[str, Any], title: str
) -> None:
    asked = a_change(pull=a_pull(number=0, title="as it is called"), **change)

    pull = planned(asked, a_target(**target), resolved=a_resolved(**resolved)).pull

    assert pull is not None
    assert pull.title == title


def test_pull_request_that_is_asked_for_gets_all_its_content() -> None:
    rule = ReviewRule(sets=(), repositories=(), selector={}, reviewers=("ann",), assignees=("bob",))
    policy = Policy(pull_requests=PullRequestPolicy(labels=("b", "a"), reviews=(rule,)))
    asked = a_pull(number=0, title="old", body="old", base="old", labels=("old",), digest="old")

    change = planned(a_change(pull=asked), policy=policy)

    assert change.pull is not None
    assert change.pull == replace(
        asked,
        title="Update web from web/v1 to web/v2",
        body="",
        base="main",
        labels=("a", "b"),
        reviewers=("ann",),
        assignees=("bob",),
        digest=change.pull.digest,
        proposes=oid("e1"),
    )
    assert len(change.pull.digest) == 16
    assert change.close == ()
    assert (change.op, change.reason, change.repair) == (Op.UPDATE, Reason.UPSTREAM_CHANGED, "")


def right_pull(change: Change, **fields: Any) -> PullRequest:
    """Return the open pull request as a run leaves it for a change."""
    made = planned(replace(change, pull=a_pull(number=0))).pull
    assert made is not None
    return replace(made, **{"number": 1, **fields})


KEPT = a_change(**STAYS)


def test_open_pull_request_that_is_right_is_left() -> None:
    assert planned(KEPT, None, right_pull(KEPT)) == replace(KEPT, request=replace(UPDATE, after=oid("d1")))


@pytest.mark.parametrize(
    ("wrong", "repair"),
    [
        ({"digest": "other"}, "text"),
        ({"base": "release"}, "base"),
        ({"digest": "other", "base": "release"}, "text and base"),
        ({"labels": ()}, "labels"),
        ({"labels": (), "base": "release"}, "base and labels"),
    ],
)
def test_open_pull_request_that_is_wrong_is_repaired(wrong: dict[str, Any], repair: str) -> None:
    policy = Policy(pull_requests=PullRequestPolicy(labels=("fleet",)))
    asked = planned(replace(KEPT, pull=a_pull(number=0)), policy=policy).pull
    assert asked is not None
    there = replace(asked, number=7, **wrong)

    change = planned(KEPT, None, there, policy=policy)

    assert change == replace(
        KEPT,
        op=Op.UPDATE,
        reason=Reason.PULL_REQUEST_OUTDATED,
        repair=f"Pull request #7 gets its {repair}",
        pull=replace(asked, number=7),
        request=replace(UPDATE, after=oid("d1")),
    )


@pytest.mark.parametrize(
    ("reason", "after"),
    [
        (Reason.UP_TO_DATE, Reason.PULL_REQUEST_OUTDATED),
        (Reason.DRAFT_EDITED, Reason.PULL_REQUEST_OUTDATED),
        (Reason.MERGE_CONFLICT, Reason.MERGE_CONFLICT),
    ],
)
def test_repair_replaces_only_reasons_that_are_less_important(reason: Reason, after: Reason) -> None:
    there = replace(right_pull(KEPT), digest="other")

    assert planned(replace(KEPT, reason=reason), None, there).reason is after


def test_change_that_does_more_than_a_repair_keeps_its_words() -> None:
    edit = a_change(Op.EDIT, Reason.CONTENT_CHANGED)
    change = planned(edit, None, replace(right_pull(edit), digest="other"))

    assert (change.op, change.reason, change.repair) == (Op.EDIT, Reason.CONTENT_CHANGED, "")
    assert change.pull == right_pull(edit)


@pytest.mark.parametrize(
    ("change", "pulls"),
    [
        pytest.param({}, [], id="none is open and none is asked for"),
        pytest.param({}, [a_pull(PullState.CLOSED)], id="it was closed"),
        pytest.param({}, [a_pull(head="drafts/other/x")], id="another branch"),
        pytest.param({"op": Op.CLOSE, "close": (ClosePull(1, BRANCH, "done"),)}, [a_pull()],
            id="this run closes it"),
        pytest.param({"op": Op.APPROVE, "approve": Approval(1, BRANCH, oid("d2"))}, [a_pull()],
            id="this run merges it"),
        pytest.param({"variant": None}, [a_pull()], id="its content is unknown"),
    ],
)  # fmt: skip
def test_pull_requests_that_are_not_rewritten(change: dict[str, Any], pulls: list[PullRequest]) -> None:
    kept = replace(KEPT, **change)

    result = planned(kept, None, *pulls)

    assert replace(result, request=None) == kept


def test_first_open_pull_request_of_a_branch_counts_and_doubles_are_closed() -> None:
    first, second, third = (right_pull(KEPT, number=number) for number in (3, 5, 8))
    comment = "Pull request #3 proposes the same branch and was opened first; this one is closed."
    doubles = tuple(ClosePull(number, BRANCH, comment, 3) for number in (5, 8))

    change = planned(KEPT, None, third, a_pull(PullState.CLOSED, number=9), first, second)

    assert change == replace(
        KEPT,
        op=Op.UPDATE,
        reason=Reason.PULL_REQUEST_DUPLICATE,
        repair="Pull request #3 proposes the same as #5, #8",
        close=doubles,
        request=replace(UPDATE, after=oid("d1")),
    )


def test_doubles_add_to_what_a_change_closes_and_keep_its_words() -> None:
    edit = a_change(Op.EDIT, Reason.CONTENT_CHANGED, close=(ClosePull(2, "drafts/web/old", "old"),))
    pulls = [right_pull(edit, number=number) for number in (3, 5)]

    change = planned(edit, None, *pulls)

    assert [(c.number, c.duplicate_of) for c in change.close] == [(2, 0), (5, 3)]
    assert (change.op, change.reason, change.repair) == (Op.EDIT, Reason.CONTENT_CHANGED, "")
    conflict = replace(KEPT, reason=Reason.MERGE_CONFLICT)
    assert planned(conflict, None, *pulls).reason is Reason.MERGE_CONFLICT


def test_deletion_repairs_the_pull_request_of_its_branch() -> None:
    kept = a_change(Op.KEEP, Reason.DELETION_PROPOSED, writes=())
    there = a_pull(head=DELETION, number=9, digest="other")

    standing = a_target(view=replace(EDGE, branches={DELETION: Commit(oid("d9"), 60)}))

    change = planned(kept, standing, a_pull(digest="other"), there)

    assert change.pull is not None
    assert (change.pull.number, change.pull.head, change.pull.title) == (9, DELETION, "Delete web")


def test_group_shares_one_pull_request_that_its_first_package_repairs() -> None:
    head = "reconciler/default/group/g"
    paths = ("api", "web")
    targets = {
        PackageKey(URL, path): a_target(package=a_package(path, main_tree=oid("b1"))) for path in paths
    }
    targets = {key: replace(target, key=key) for key, target in targets.items()}
    there = a_pull(head=head, title="Group g", number=2)
    context = a_context(world(views=(EDGE,), pulls={URL: (there,)}), targets=targets)
    changes = [
        replace(a_change(Op.KEEP, Reason.DRAFT_EDITED, writes=()), package=key, group=head, pull=None)
        for key in targets
    ]

    context = replace(context, resolved={WEB: replace(a_resolved(), downstream=PackageKey(URL, "web"))})
    api, web = staged("request", plan_requests, changes, context)

    assert api.pull is None  # its content is unknown: it has no say in the pull request
    assert web.pull is not None
    # What no variant wants is not counted.
    assert (web.pull.head, web.pull.title) == (head, "Update 1 package")


CONFLICT = a_conflict("a.yaml", "spec", "1", "2")


@pytest.mark.parametrize(
    ("change", "there", "again"),
    [
        pytest.param({"conflicts": (CONFLICT,)}, {}, True, id="conflicts are written"),
        pytest.param({"unready": ("Gate",)}, {}, True, id="gates are unmet in what is written"),
        pytest.param({}, {}, False, id="nothing is open in it"),
        pytest.param({"conflicts": (CONFLICT,)}, {"draft": True}, False, id="it is a draft"),
        pytest.param({"conflicts": (CONFLICT,), **STAYS}, {}, True, id="its text did not tell of them"),
        pytest.param(
            {"conflicts": (CONFLICT,), **STAYS}, {"digest": ""}, False, id="its text is no text of ours"
        ),
    ],
)
def test_reviewers_of_a_ready_pull_request_are_asked_again(
    change: Mapping[str, Any], there: dict[str, Any], again: bool
) -> None:
    opened = replace(a_pull(digest="other", draft=False), **there)

    pull = planned(a_change(pull=a_pull(number=1), **change), None, opened).pull

    assert pull is not None
    assert pull.redraft is again


def test_reviewers_are_not_asked_again_what_they_have_seen() -> None:
    kept = replace(KEPT, conflicts=(CONFLICT,))
    seen = right_pull(kept, draft=False)

    pull = planned(replace(kept, pull=seen), None, seen).pull

    assert pull == seen
    assert not planned(replace(kept, pull=a_pull())).pull.redraft  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "is_same"),
    [
        ({}, True),
        ({"message": "what the last run did"}, True),
        ({"op": Op.EDIT}, True),
        ({"location": Location("web.yaml", 9)}, False),
        ({"variant": None}, False),
        ({"conflicts": (CONFLICT,)}, False),
        ({"unready": ("Gate",)}, False),
    ],
)
def test_digest_follows_what_the_text_tells(fields: dict[str, Any], is_same: bool) -> None:
    change = replace(KEPT, pull=a_pull())

    before, after = planned(change).pull, planned(replace(change, **fields)).pull

    assert before is not None
    assert after is not None
    assert (before.digest == after.digest) is is_same


def test_digest_follows_files_of_the_manifest_but_no_lines() -> None:
    change = replace(KEPT, pull=a_pull())
    lines = [planned(replace(change, location=Location("web.yaml", line))).pull for line in (1, 9)]

    assert lines[0] == lines[1]


def test_digest_does_not_depend_on_the_order_of_conflicts_and_labels() -> None:
    notes = (CONFLICT, a_conflict("b.yaml", "spec", None, "2"), a_conflict("a.yaml", "meta", "1", None))
    changes = [replace(KEPT, pull=a_pull(), conflicts=order) for order in (notes, notes[::-1])]

    assert planned(changes[0]).pull == planned(changes[1]).pull


def test_digest_of_unknown_content_follows_reason_and_message() -> None:
    change = a_change(Op.KEEP, Reason.PAUSED, writes=(), pull=a_pull(), variant=None, message="one")
    others = [replace(change, message="two"), replace(change, reason=Reason.REJECTED)]

    digests = {planned(each).pull.digest for each in (change, *others)}  # type: ignore[union-attr]

    assert len(digests) == 3


def test_digest_of_a_deletion_follows_the_variant_that_is_gone() -> None:
    change = a_change(Op.KEEP, Reason.DELETION_PROPOSED, writes=(), pull=a_pull())
    pulls = [planned(replace(change, variant=name)).pull for name in (WEB, OTHER, WEB)]

    assert pulls[0] == pulls[2] != pulls[1]


def test_digest_of_a_lock_follows_its_pins_and_edits_in_any_order() -> None:
    pin = PinChange("web", "v1", "v2", "newer")

    def made(after: str = "v2", edited: tuple[str, ...] = ("a", "b"), **fields: Any) -> PullRequest:
        policy = Policy(pull_requests=PullRequestPolicy(labels=fields.pop("labels", ("fleet", "Edge"))))
        inventory, opened = world(policy=policy), replace(PLANNED, number=3)
        return lock_pull(replace(PLANNED, **fields), opened, inventory, [pin._replace(after=after)], edited)

    first = made(edited=("b", "a"))

    assert first == replace(PLANNED, number=3, digest=first.digest)
    assert made() == first
    assert made("v3") != first
    assert made(edited=("a",)) != first
    assert made(reviewers=("ann",)).digest != first.digest
    assert made(assignees=("ann",)).digest != first.digest
    assert made(labels=("Edge", "fleet")).digest == first.digest
    assert made(title="Other").digest != first.digest


def test_draft_in_a_group_is_as_the_group_has_it() -> None:
    head = "reconciler/default/group/g"
    group = WriteGroup(f"refs/heads/{head}", None, oid("b2"), (), "", 30)

    assert content(a_change(writes=(group,), group=head), a_target(draft=None)) is None


# Rollouts


@pytest.mark.parametrize(
    ("phase", "stopped", "text"),
    [
        (RolloutPhase.PROGRESSING, {}, "wave canary of rollout r1 of default/fleet"),
        (RolloutPhase.PROGRESSING, {WEB: "It is paused"},
            "wave canary of rollout r1 of default/fleet. It is paused: do not merge it now"),
        (RolloutPhase.COMPLETE, {WEB: "It is paused"}, ""),
    ],
)  # fmt: skip
def test_pull_request_tells_its_rollout_while_it_runs(
    phase: RolloutPhase, stopped: Mapping[ObjectName, str], text: str
) -> None:
    record = RolloutRecord(namespace="default", name="fleet", revision="r1", waves=("canary",))
    rollout = Rollout(
        RolloutKey("default", "fleet"), phase, record, stopped=stopped, waves_of={WEB: "canary"}
    )
    context = replace(context_of(a_target(), (), a_resolved()), rollouts={WEB: rollout})

    (change,) = staged("request", plan_requests, [a_change()], context)

    assert change.request == replace(UPDATE, rollout=text)
