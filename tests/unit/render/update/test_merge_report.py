"""What a merge records: conflicts that wait, conflicts that a policy or rule decided, and their order."""

from typing import Any

import pytest

from reconciler.krm.merge import FieldConflict, Node, Winner, root_of
from reconciler.krm.yaml import Tree
from reconciler.policy import OnConflict
from reconciler.render.update import Conflict, ConflictPolicy, Updated
from reconciler.render.update.conflicts import DecidedConflict, MergeReport, Rule, RuleKind, describe_decision

ASK, FAIL, LOCAL, UPSTREAM = OnConflict.ASK, OnConflict.FAIL, OnConflict.LOCAL, OnConflict.UPSTREAM


def report(policy: OnConflict = ASK, **fields: Any) -> MergeReport:
    return MergeReport(ConflictPolicy(policy, **fields))


def node(text: str) -> Node:
    root = root_of(Tree.parse(text))
    assert root
    return root


DEFAULT = Rule(RuleKind.DEFAULT)

NOTE = {"metadata": {"annotations": {"reconciler.dev/on-conflict": "upstream"}}}


def test_annotation_of_a_resource_decides_about_it() -> None:
    own = report(LOCAL)

    assert own.record_whole("a.yaml", "Service a", ("b", "u", "l"), "BothChanged", NOTE)
    assert [each.rule for each in own.decided] == [Rule(RuleKind.RESOURCE)]


def test_fields_of_a_resource_are_recorded_with_their_texts_and_rules() -> None:
    own = report(fields={"spec.shown": LOCAL})
    path, where = ("spec", "[name=a]", "x.y"), ("spec", "shown")
    open_, decided, ruled = (
        FieldConflict(path, node("{b: 1}"), None, node("l"), "BothChanged", Winner.OPEN),
        FieldConflict(path, None, node("u"), node("l"), "BothAdded", Winner.LOCAL, policy_path=where),
        FieldConflict(path, None, node("u"), None, "Union", Winner.UPSTREAM, rule="only one may be set"),
    )

    own.record_fields("a.yaml", "Service a", [open_, decided, ruled], {})

    field = 'spec[name=a]."x.y"'
    assert own.conflicts == [Conflict("a.yaml", "Service a", field, "{b: 1}", None, "l", "BothChanged")]
    assert own.decided == [
        DecidedConflict(
            Conflict("a.yaml", "Service a", field, None, "u", "l", "BothAdded"),
            LOCAL,
            Rule(RuleKind.FIELD, "spec.shown"),
        ),
        DecidedConflict(
            Conflict("a.yaml", "Service a", field, None, "u", None, "Union"),
            UPSTREAM,
            Rule(RuleKind.MERGE, "only one may be set"),
        ),
    ]


def conflict(path: str, field: str = "", reason: str = "BothChanged") -> Conflict:
    return Conflict(path, "Service a", field, None, "u", "l", reason)


def test_notes_tell_who_wins_and_why() -> None:
    decided = (
        DecidedConflict(conflict("b", "spec"), LOCAL, DEFAULT),
        DecidedConflict(conflict("a"), UPSTREAM, Rule(RuleKind.STRATEGY, "copy-merge")),
        DecidedConflict(Conflict("c", "", "", None, None, None, ""), LOCAL, Rule(RuleKind.MERGE, "a rule")),
    )

    assert Updated({}, decided=decided).notes == (
        "a: Service a: upstream stays: copy-merge",
        "b: Service a: spec: both sides changed it; local wins by policy",
        "c: local stays: a rule",
    )


@pytest.mark.parametrize(
    ("rule", "policy", "source"),
    [
        (Rule(RuleKind.RESOURCE), "reconciler.dev/on-conflict: local", "a.yaml"),
        (Rule(RuleKind.FIELD, "spec.*"), "fields: spec.*=local", "Kptfile"),
        (Rule(RuleKind.DEFAULT), "onConflict: local", "reconciler.yaml"),
        (Rule(RuleKind.STRATEGY, "copy-merge"), "updateStrategy: copy-merge", "Kptfile"),
        (Rule(RuleKind.MERGE, "a rule"), "a rule", ""),
        (Rule(RuleKind.PLACE), "a box of the pull request", ""),
    ],
)
def test_decision_is_described_in_the_words_of_the_settings(rule: Rule, policy: str, source: str) -> None:
    origins = {"spec.*": ("fields", "Kptfile"), "": ("onConflict", "reconciler.yaml")}

    assert describe_decision(ConflictPolicy(origins=origins), LOCAL, rule, "a.yaml") == (
        LOCAL,
        policy,
        source,
    )
    if rule.kind is RuleKind.DEFAULT:
        unknown = describe_decision(ConflictPolicy(), LOCAL, rule, "a.yaml")
        assert unknown == (LOCAL, "onConflict: local", "")
