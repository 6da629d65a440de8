"""Content of pull requests: what each proposes, its title and labels, and when an open one is rewritten."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from reconciler.admission.judgement import AdmissionJudgement, AdmissionVerdict
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.ids import NamedObject, ObjectName, PackageKey
from reconciler.plan.changes import (
    Change,
    ClosePull,
    MoveRef,
    Op,
    PinChange,
    PullRequestContent,
    UpstreamCommits,
)
from reconciler.plan.context import PlanContext, PlanTarget, with_before
from reconciler.plan.drafts import wanted_pull
from reconciler.plan.impact import Loss
from reconciler.plan.requests import close_duplicates, is_right, lock_pull, plan_requests
from reconciler.policy import OpenOn, Policy, PullRequestPolicy
from reconciler.render.answers import Answer, AnsweredBy
from reconciler.resolve.resolution import ResolvedVariant
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
        pytest.param({}, {}, {"base": a_pin(3, package=PackageKey("host/blueprints", "api"))},
            replace(UPDATE, upstream_from="web/v3",
            upstream=UpstreamCommits("https://host/blueprints", "web", oid("a3"), oid("a2"))),
            id="a revision of another package is no older one"),
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
def test_content_of_a_pull_request(change, target, resolved, want) -> None:
    assert content(a_change(**change), a_target(**target), resolved=a_resolved(**resolved)) == want


@pytest.mark.parametrize(
    ("there", "is_as_planned"),
    [
        ({}, True),
        ({"labels": ("FLEET", "edge", "mine")}, True),
        ({"labels": ("fleet",)}, False),
        ({"labels": ()}, False),
        ({"digest": "abd"}, False),
        ({"base": "release"}, False),
        ({"title": "Mine"}, True),
    ],
)
def test_pull_request_is_right_with_every_label_and_whatever_title(there, is_as_planned) -> None:
    assert is_right(replace(PLANNED, **there), PLANNED) is is_as_planned


def right_pull(change: Change, **fields: Any) -> PullRequest:
    """Return the open pull request as a run leaves it for a change."""
    made = planned(replace(change, pull=a_pull(number=0))).pull
    assert made is not None
    return replace(made, **{"number": 1, **fields})


KEPT = a_change(**STAYS)


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

    assert planned(KEPT, None, there, policy=policy) == replace(
        KEPT,
        op=Op.UPDATE,
        reason=Reason.PULL_REQUEST_OUTDATED,
        repair=f"Pull request #7 gets its {repair}",
        pull=replace(asked, number=7),
        request=replace(UPDATE, after=oid("d1")),
    )


def test_first_open_pull_request_of_a_branch_counts_and_doubles_are_closed() -> None:
    first, second, third = (right_pull(KEPT, number=number) for number in (3, 5, 8))
    comment = "Pull request #3 proposes the same branch and was opened first; this one is closed."
    doubles = tuple(ClosePull(number, BRANCH, comment, 3) for number in (5, 8))

    assert planned(KEPT, None, third, a_pull(PullState.CLOSED, number=9), first, second) == replace(
        KEPT,
        op=Op.UPDATE,
        reason=Reason.PULL_REQUEST_DUPLICATE,
        repair="Pull request #3 proposes the same as #5, #8",
        close=doubles,
        request=replace(UPDATE, after=oid("d1")),
    )


def test_only_open_pull_requests_of_the_same_branch_are_doubles() -> None:
    first = right_pull(KEPT, number=3)
    others = (
        right_pull(KEPT, number=n, head=head) for n, head in ((9, BRANCH), (4, "drafts/other/w"), (5, BRANCH))
    )
    closed = a_pull(PullState.CLOSED, number=7)

    assert [close.number for close in close_duplicates(first, (*others, closed, first))] == [5, 9]


CONFLICT = a_conflict("a.yaml", "spec", "1", "2")


def test_reviewers_are_not_asked_again_what_they_have_seen() -> None:
    kept = replace(KEPT, conflicts=(CONFLICT,))
    seen = right_pull(kept, draft=False)

    assert planned(replace(kept, pull=seen), None, seen).pull == seen
    assert not planned(replace(kept, pull=a_pull())).pull.redraft


def test_digest_of_unknown_content_follows_reason_and_message() -> None:
    change = a_change(Op.KEEP, Reason.PAUSED, writes=(), pull=a_pull(), variant=None, message="one")
    others = [replace(change, message="two"), replace(change, reason=Reason.REJECTED)]

    assert len({planned(each).pull.digest for each in (change, *others)}) == 3


LOSS = Loss("dev", NamedObject("Provider", "", "aws"), "Bucket.s3.io", 2, is_complete=True)
FACTS: dict[str, Any] = {
    "variant": WEB._replace(name="other"),
    "location": Location("other.yaml", 3),
    "conflicts": (CONFLICT,),
    "answers": (Answer(CONFLICT, AnsweredBy.EDIT, "1"),),
    "unready": ("replicas is not set",),
    "losses": (LOSS,),
    "judgements": (AdmissionJudgement(AdmissionVerdict.REFUSED, "Job", "It is immutable", "dev", "Job a/b"),),
}


def test_digest_follows_everything_that_the_text_is_made_of() -> None:
    asked = replace(KEPT, pull=a_pull(), location=Location("web.yaml", 3))
    changes = [asked, *(replace(asked, **{name: value}) for name, value in FACTS.items())]

    digests = [planned(change).pull.digest for change in changes]

    assert len({*digests}) == len(changes)
    assert planned(replace(asked, location=Location("web.yaml", 9))).pull.digest == digests[0]


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


# Rollouts


OPENED, ENDED = a_pull(number=4, draft=False), a_pull(PullState.CLOSED, draft=False)


@pytest.mark.parametrize(
    ("pulls", "open_on", "proposed", "want"),
    [
        ((), OpenOn.DRAFT, False, (True, 0)),
        ((), OpenOn.DRAFT, True, (False, 0)),
        ((), OpenOn.PROPOSE, False, None),
        ((), OpenOn.PROPOSE, True, (False, 0)),
        ((OPENED,), OpenOn.PROPOSE, False, (False, 4)),
        ((ENDED,), OpenOn.PROPOSE, False, None),
        ((ENDED,), OpenOn.DRAFT, False, (True, 0)),
    ],
    ids=str,
)
def test_draft_gets_a_pull_request_when_the_policy_says_so_and_keeps_the_mark_of_an_open_one(
    pulls: tuple[PullRequest, ...], open_on: OpenOn, proposed: bool, want: tuple[bool, int] | None
) -> None:
    pull = wanted_pull(a_target(pulls=pulls), f"refs/heads/{BRANCH}", open_on=open_on, proposed=proposed)

    assert (pull and (pull.draft, pull.number)) == want
