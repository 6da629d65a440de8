"""What `apply` refuses before its first effect."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.apply.preconditions import Checkout, check_applicable, check_checkout
from reconciler.base.errors import RefusedError
from reconciler.inventory.standing import Position, Standing
from reconciler.names.ids import Oid
from reconciler.plan.changes import Plan

COMMIT = Oid("1" * 40)
NOW = "0123456789abcdef" * 4
"""Checksum of the plan."""


@pytest.mark.parametrize(
    ("branch", "default", "published", "refusal"),
    [
        ("main", "main", True, ""),
        ("main", "main", False, f"Commit {COMMIT} is not on branch main of control.git"),
        ("topic", "main", True, "Branch topic is not the default branch main of the control repository"),
        ("topic", "main", False, "Branch topic is not the default branch main of the control repository"),
        ("", "main", True, ""),
        ("", "main", False, f"Commit {COMMIT} is not on branch main of control.git"),
        ("topic", "", True, ""),
        ("topic", "", False, f"Commit {COMMIT} is not on branch  of control.git"),
    ],
)
def test_only_what_the_default_branch_holds_is_applied(
    branch: str, default: str, published: bool, refusal: str
) -> None:
    checkout = Checkout("control.git", COMMIT, branch, published)

    if not refusal:
        check_checkout(checkout, default)
        return
    with pytest.raises(RefusedError) as caught:
        check_checkout(checkout, default)
    assert str(caught.value) == refusal
    step = "Merge it first" if refusal.startswith("Branch") else "Push it, or merge it first"
    assert caught.value.hint == f"{step}; `reconciler plan` shows what it would do."


@pytest.mark.parametrize(
    ("checksum", "published", "refusal"),
    [
        ("", True, ""),
        (NOW, True, ""),
        (NOW[:7], True, ""),
        (NOW[:6], True, f"{NOW[:6]} is too short for a checksum"),
        (NOW[1:], True, f"The plan now is {NOW[:12]}, not the one that was reviewed"),
        (NOW[:7] + "0", False, f"The plan now is {NOW[:12]}, not the one that was reviewed"),
        (NOW, False, f"Commit {COMMIT} is not on branch main of control.git"),
    ],
)
def test_plan_that_was_not_reviewed_or_not_merged_is_refused(
    checksum: str, published: bool, refusal: str
) -> None:
    plan = Plan(checksum=NOW)
    commit = SimpleNamespace(oid=COMMIT)
    control = cast(
        "Any",
        SimpleNamespace(
            remote="control.git", commit=commit, branch="main", published=published, standing=Standing()
        ),
    )

    if not refusal:
        check_applicable(plan, checksum=checksum, control=control, default_branch="main")
        return
    with pytest.raises(RefusedError) as caught:
        check_applicable(plan, checksum=checksum, control=control, default_branch="main")
    assert str(caught.value) == refusal
    if refusal.startswith("The plan"):
        assert caught.value.hint == "Something changed since: review the plan above, then pass its checksum."


AGAIN = "; in a workflow, start a new run from the newest commit."


@pytest.mark.parametrize(
    ("position", "branch", "tip", "hint"),
    [
        (Position.BEHIND, "main", "main", f"Run `git pull`{AGAIN}"),
        (Position.BEHIND, "", "main", f"Run `git fetch origin main && git checkout FETCH_HEAD`{AGAIN}"),
        (Position.BEHIND, "main", "", "Check out the newest commit."),
        (
            *(Position.DROPPED, "main", "main"),
            "Run `git fetch origin main`, and `git rebase origin/main` or check that branch out anew" + AGAIN,
        ),
        (Position.REWOUND, "main", "main", "If that is meant, push another commit to it: then"),
        (Position.CURRENT, "main", "main", ""),
        (Position.UNMERGED, "main", "main", ""),
    ],
)
def test_commit_that_is_not_the_newest_is_refused_with_the_way_to_it(
    position: Position, branch: str, tip: str, hint: str
) -> None:
    standing = Standing(position, commits=2, newest=Oid("2" * 40), applied=COMMIT, branch=tip)
    said = ""
    try:
        check_checkout(Checkout("control.git", COMMIT, branch, published=True, standing=standing), "main")
    except RefusedError as error:
        said = error.hint

    assert said.startswith(hint)
    assert bool(said) is bool(hint)
