"""What `apply` refuses before its first effect."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.apply.preconditions import Checkout, check_applicable, check_checkout
from reconciler.base.errors import RefusedError
from reconciler.inventory.standing import Standing
from reconciler.names.ids import Oid

COMMIT = Oid("1" * 40)


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
        ("now", True, ""),
        ("before", True, "The plan now is now, not the one that was reviewed"),
        ("before", False, "The plan now is now, not the one that was reviewed"),
        ("now", False, f"Commit {COMMIT} is not on branch main of control.git"),
    ],
)
def test_plan_that_was_not_reviewed_or_not_merged_is_refused(
    checksum: str, published: bool, refusal: str
) -> None:
    plan = cast("Any", SimpleNamespace(checksum="now"))
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
