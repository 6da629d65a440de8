"""Conditions of a variant, all seven as whole values, for each outcome of its package."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.api.meta import Condition
from reconciler.base.reasons import Reason
from reconciler.expand import Desired
from reconciler.names.ids import ObjectKey
from reconciler.plan.changes import Change, Op, Unfinished
from reconciler.plan.compose import missing_text, with_after
from reconciler.plan.status import plan_conditions
from reconciler.render.rendered import Blocked, Package, Rendered, RenderedVariant
from tests.support.plan_values import (
    BRANCH,
    KEPT,
    PACKAGE,
    WEB,
    a_conflict,
    a_desired,
    a_pin,
    a_resolved,
    a_target,
    a_write,
    oid,
    web_context,
)
from tests.support.values import replace

GROUP_KIND = "config.porch.kpt.dev"
KEY = ObjectKey(GROUP_KIND, "PackageVariant", *WEB)
REF = f"refs/heads/{BRANCH}"
WRITE = a_write(ref=REF, expect=oid("d2"))
CONFLICT = a_conflict("a.yaml", "spec", "1", "2", name="a")
QUESTION = "1 conflict in a.yaml: answer it in the pull request, or with reconciler answer"
DONE = "successfully ensured downstream package variant"
GOOD: dict[str, tuple[str, str, str]] = {
    "ConfigInjected": ("True", "NoInjectionPoints", ""),
    "ContextInjected": ("False", "NotRequested", "spec.packageContext is empty"),
    "DownstreamEnsured": ("True", "NoErrors", DONE),
    "DraftExists": ("False", "NoDraft", ""),
    "Ready": ("True", "NoErrors", DONE),
    "Stalled": ("False", "Valid", "all validation checks passed"),
    "Valid": ("True", "Valid", "all validation checks passed"),
}
DRAFT = {"DraftExists": ("True", "DraftExists", "")}


def conditions(
    change: Change | None = KEPT,
    fresh: Package | Blocked | None = Package(oid("b1")),  # noqa: B008 # a frozen value
    *,
    missing: Unfinished | None = None,
    draft: Any = None,
    spec: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, tuple[str, str, str]]:
    web = a_desired(**(spec or {}))
    resolved = a_resolved(variant=web, pin=a_pin(1), local=oid("b3"), draft=draft)
    given: dict[str, Any] = {
        "desired": Desired(variants=(web,)),
        "variants": {WEB: web},
        "downstreams": {PACKAGE: (web,)},
        "resolved": {WEB: resolved},
        "rendered": Rendered({WEB: RenderedVariant(WEB, fresh)} if fresh else {}),
        **fields,
    }
    context = web_context(a_target(draft=draft), **given)
    changes = [with_after(change, context.targets[PACKAGE])] if change else []
    found = plan_conditions(context, changes, {PACKAGE: missing} if missing else None)
    assert list(found) == [KEY]
    assert [c.type for c in found[KEY]] == sorted(GOOD)
    return {c.type: (c.status, c.reason, c.message) for c in found[KEY]}


@pytest.mark.parametrize(
    ("change", "ready"),
    [
        ({"conflicts": (CONFLICT,)}, QUESTION),
        ({"unready": ("a gate", "another")}, "a gate; another"),
        ({"unready": ("a gate",), "conflicts": (CONFLICT,)}, "a gate"),
        ({"waits": True, "message": "Why"}, "Why"),
        ({"waits": True}, "UpToDate"),
        ({"waits": True, "conflicts": (CONFLICT,)}, QUESTION),
        ({"message": "Why"}, ""),
    ],
)
def test_package_that_may_not_be_approved_as_it_is(change: dict[str, Any], ready: str) -> None:
    want = ("False", "Error", ready) if ready else GOOD["Ready"]

    assert conditions(replace(KEPT, **change)) == {**GOOD, "Ready": want}


# Injection and package context


@pytest.mark.parametrize(
    ("spec", "change", "fresh", "want"),
    [
        ({"data": {"a": "1"}}, {}, Package(oid("b1")), ("True", "ContextInjected", "")),
        ({"removeKeys": ["a"]}, {}, Package(oid("b1")), ("True", "ContextInjected", "")),
        ({}, {}, Package(oid("b1")), GOOD["ContextInjected"]),
        ({"data": {"a": "1"}}, {}, Blocked(Reason.INVALID_PACKAGE, ""), ("False", "ContextNotInjected", "")),
        ({"data": {"a": "1"}}, {}, None, ("False", "ContextNotInjected", "")),
        ({"data": {"a": "1"}}, {"reason": Reason.NOT_OURS, "message": "Why"}, Package(oid("b1")),
            ("False", "ContextNotInjected", "Why")),
        ({"data": {"a": "1"}}, {"reason": Reason.REJECTED, "message": "Why"}, Package(oid("b3")),
            ("True", "ContextInjected", "")),
    ],
)  # fmt: skip
def test_package_context_that_is_asked_for(spec, change, fresh, want) -> None:
    found = conditions(replace(KEPT, **change), fresh, spec={"packageContext": spec})

    assert found["ContextInjected"] == want


# Effects that are missing


UPDATE = replace(KEPT, op=Op.UPDATE, reason=Reason.UPSTREAM_CHANGED, writes=(WRITE,))
NOT_YET = "Not applied yet: update (UpstreamChanged)"


def test_text_of_a_missing_effect() -> None:
    assert missing_text(UPDATE, Unfinished("no")) == "no"
    assert missing_text(UPDATE, Unfinished()) == NOT_YET


# Variants of which nothing can be done


def stalled(reason: str, message: str, *, has_draft: bool = False) -> dict[str, tuple[str, str, str]]:
    nothing = ("False", "Stalled", message)
    return {
        **dict.fromkeys(("ConfigInjected", "ContextInjected", "DownstreamEnsured"), nothing),
        "DraftExists": (DRAFT if has_draft else GOOD)["DraftExists"],
        "Ready": ("False", "Error", "invalid packagevariant object"),
        "Stalled": ("True", "ValidationError", message),
        "Valid": ("False", reason, message),
    }


def test_variant_of_a_repository_that_was_not_read_is_stalled() -> None:
    unread = stalled("Error", "its repository could not be read")

    assert conditions(None) == unread
    assert conditions(KEPT, downstreams={}) == unread


# Owners with invalid manifests, and sets

SET_KEY = ObjectKey(GROUP_KIND, "PackageVariantSet", "default", "fleet")
INVALID = Condition(type="Stalled", status="True", reason="InvalidName", message="No name")
READY = Condition(type="Ready", status="True", reason="Reconciled", message="fine")


def test_variant_with_an_invalid_manifest_gets_every_condition() -> None:
    desired = Desired(conditions={KEY: (INVALID, READY), SET_KEY: (INVALID, READY)})

    found = plan_conditions(web_context(desired=desired), [])

    assert list(found) == [KEY, SET_KEY]
    assert {c.type: (c.status, c.reason, c.message) for c in found[KEY]} == stalled("InvalidName", "No name")
    assert [c.type for c in found[KEY]] == sorted(GOOD)
    assert found[SET_KEY] == (INVALID, READY)


def test_conditions_of_a_manifest_that_is_not_stalled_stay() -> None:
    valid = replace_status(INVALID, "False")

    found = plan_conditions(web_context(desired=Desired(conditions={KEY: (valid, READY)})), [])

    assert found == {KEY: (valid, READY)}


def replace_status(condition: Condition, status: str) -> Condition:
    return condition.model_copy(update={"status": status})
