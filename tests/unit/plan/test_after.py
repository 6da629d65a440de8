"""The state after a change: what the next step of a package comes from."""

import pytest

from reconciler.base.reasons import Reason, WaitsFor
from reconciler.plan.changes import Op, Postponed, Unfinished
from reconciler.plan.compose import undone, with_after
from tests.support.plan_values import KEPT, PACKAGE, WEB, a_conflict, a_draft, a_target, web_context
from tests.support.values import replace

CONFLICT = a_conflict("a.yaml", "spec", "1", "2", name="a")
LATER = Postponed(Reason.RATE_LIMITED, "maxOpen is 1")
REVIEWED = {"draft": a_draft()}


@pytest.mark.parametrize(
    ("change", "target", "waits_for"),
    [
        pytest.param({}, {}, WaitsFor.NOBODY, id="published"),
        pytest.param({}, REVIEWED, WaitsFor.REVIEW, id="in review"),
        pytest.param({"reason": Reason.AWAITING_CHECKS}, REVIEWED, WaitsFor.CHECKS, id="checks"),
        pytest.param({"conflicts": (CONFLICT,), "waits": True}, REVIEWED, WaitsFor.ANSWER, id="conflict"),
        pytest.param({"unready": ("a gate",), "waits": True}, REVIEWED, WaitsFor.CORRECTION, id="gate"),
        pytest.param({"reason": Reason.REJECTED, "waits": True}, {}, WaitsFor.DECISION, id="rejected now"),
        pytest.param({"reason": Reason.REJECTED}, {}, WaitsFor.NOBODY, id="rejected before"),
        pytest.param({"reason": Reason.DELETION_GUARD}, {}, WaitsFor.DECISION, id="consent"),
        pytest.param({"reason": Reason.AWAITING_WAVE}, {}, WaitsFor.WAVE, id="wave"),
        pytest.param({"reason": Reason.STILL_NEEDED}, {}, WaitsFor.DEPENDENTS, id="dependents"),
        pytest.param({"reason": Reason.CHECKOUT_OUTDATED}, {}, WaitsFor.NEXT_RUN, id="old checkout"),
        pytest.param({"reason": Reason.PAUSED}, {}, WaitsFor.UNPAUSE, id="paused"),
        pytest.param({"reason": Reason.PAUSED, "waits": True}, {}, WaitsFor.DECISION, id="paused, and asks"),
        pytest.param({"reason": Reason.LOCK_PENDING}, {}, WaitsFor.NEXT_RUN, id="lock"),
        pytest.param({"postponed": LATER}, REVIEWED, WaitsFor.SCHEDULE, id="limit"),
    ],
)  # fmt: skip
def test_source_of_the_next_step(change, target, waits_for) -> None:
    context = web_context(a_target(**target))

    assert with_after(replace(KEPT, **change), context.targets[PACKAGE]).after.waits_for is waits_for


def test_wrong_manifest_and_stopped_rollout_are_waited_for() -> None:
    stalled = web_context(variants={}).targets[PACKAGE]
    assert with_after(replace(KEPT, op=Op.BLOCK), stalled).after.waits_for is WaitsFor.MANIFEST
    stopped = web_context(a_target(draft=a_draft()), stopped={WEB: "It is paused"}).targets[PACKAGE]
    assert with_after(KEPT, stopped).after.waits_for is WaitsFor.WAVE


def test_effect_that_was_not_done_waits_for_the_next_run() -> None:
    assert undone(KEPT, a_target(), Unfinished("no")).waits_for is WaitsFor.NEXT_RUN
