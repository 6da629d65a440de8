"""Reviewers and assignees of pull requests: which rules apply, and who owns the code."""

from typing import Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.plan.changes import Op
from reconciler.plan.requests import People, find_people
from reconciler.policy import Policy, PullRequestPolicy, ReviewRule
from tests.support.plan_values import EDGE, PACKAGE, URL, WEB, a_change, a_desired, a_target, web_context
from tests.support.values import replace

CHANGE = a_change(op=Op.UPDATE, reason=Reason.NEW, variant=WEB)
ANN = People(("ann",), ("bob",))
NOBODY = People((), ())


def people(*rules: ReviewRule, code_owners: bool = False, **fields: Any) -> People:
    policy = Policy(pull_requests=PullRequestPolicy(reviews=rules, code_owners=code_owners))
    labels = EDGE.manifest.metadata.model_copy(update={"labels": {"tier": "edge"}})
    manifest = EDGE.manifest.model_copy(update={"metadata": labels})
    view = replace(EDGE, manifest=manifest, code_owners=fields.pop("owners", ""))
    change = replace(CHANGE, **fields.pop("change", {}))
    context = web_context(a_target(view=view), inventory={"policy": policy}, **fields)
    return find_people([change], context)


@pytest.mark.parametrize(
    ("rule", "applies"),
    [
        ({}, True),
        ({"selector": {"matchLabels": {"tier": "edge"}}}, True),
        ({"selector": {"matchLabels": {"tier": "core"}}}, False),
        ({"repositories": ("edge",)}, True),
        ({"repositories": ("e*",)}, True),
        ({"repositories": ("core", "edge")}, True),
        ({"repositories": ("Edge",)}, False),
        ({"sets": ("fleet",)}, True),
        ({"sets": ("f*",)}, True),
        ({"sets": ("other",)}, False),
        ({"sets": ("fleet",), "repositories": ("core",)}, False),
        ({"sets": ("other",), "repositories": ("edge",)}, False),
    ],
)
def test_rule_applies_where_all_that_it_names_matches(rule: dict[str, Any], applies: bool) -> None:
    given = ReviewRule(reviewers=("ann",), assignees=("bob",), **rule)
    of_set = replace(a_desired(), set_key=ObjectName("default", "fleet"))

    assert people(given, variants={WEB: of_set}) == (ANN if applies else NOBODY)


@pytest.mark.parametrize(
    "fields", [{}, {"variants": {}}, {"change": {"variant": None}}], ids=["authored", "gone", "nobody's"]
)
def test_rule_about_sets_applies_to_variants_of_sets(fields: dict[str, Any]) -> None:
    assert people(ReviewRule(sets=("*",), reviewers=("ann",)), **fields) == NOBODY
    assert people(ReviewRule(reviewers=("ann",)), **fields) == People(("ann",), ())


def test_people_of_all_rules_are_asked_once_and_in_order() -> None:
    rules = (ReviewRule(reviewers=("zoe", "ann")), ReviewRule(reviewers=("ann",), assignees=("bob", "al")))

    assert people(*rules) == People(("ann", "zoe"), ("al", "bob"))
    assert people() == NOBODY


def test_owners_of_the_code_are_asked_for_the_kptfile_of_each_package() -> None:
    owners = "* @all\n/web/ @web-team\n/api/Kptfile @api-team\n"
    assert people(code_owners=True, owners=owners) == People(("web-team",), ())
    assert people(owners=owners) == NOBODY

    api = PackageKey(URL, "api")
    view = replace(EDGE, code_owners=owners)
    policy = Policy(pull_requests=PullRequestPolicy(code_owners=True))
    targets = {key: replace(a_target(view=view), key=key) for key in (PACKAGE, api)}
    context = web_context(inventory={"policy": policy}, targets=targets)
    found = find_people([CHANGE, replace(CHANGE, package=api)], context)
    assert found == People(("api-team", "web-team"), ())
