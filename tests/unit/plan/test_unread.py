"""Which repositories that could not be read are a failure of the run."""

from dataclasses import replace
from itertools import product

import pytest

from reconciler.errors import Location, Problem
from reconciler.inventory import RepositoryView
from reconciler.plan.unread import is_unavailable
from reconciler.policy import OnUnavailable
from reconciler.reasons import Reason
from tests.support.sets import blueprints


def view(reason: Reason | None, unavailable: OnUnavailable) -> RepositoryView:
    problem = Problem(Location("repositories.yaml", 3), reason, "It is not there.") if reason else None
    return replace(blueprints(), problem=problem, unavailable=unavailable)


@pytest.mark.parametrize(
    ("reason", "unavailable"),
    list(product([None, Reason.REPOSITORY_UNAVAILABLE, Reason.INVALID_MANIFEST], OnUnavailable)),
)
def test_only_an_unread_repository_whose_policy_says_so_is_a_failure(
    reason: Reason | None, unavailable: OnUnavailable
) -> None:
    is_failure = reason is Reason.REPOSITORY_UNAVAILABLE and unavailable is OnUnavailable.FAIL

    assert is_unavailable(view(reason, unavailable)) is is_failure
