"""Tags that move: a numbered one needs consent, a floating one is followed there and back (D9)."""

import pytest

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.base.errors import Location
from reconciler.inventory.inventory import Source
from reconciler.resolve.pins import FOLLOW, find_moved_tag
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.model import web_spec as spec
from tests.support.plan_values import a_desired_variant, a_pin, oid
from tests.support.values import replace

PINNED = a_pin(1)
CONSENTS: DecisionTable[bool] = DecisionTable(
    {
        "upstream": ("numbered", "floating"),
        "lock": ("none", "of another commit", "of this commit", "of another tag", "of another repository"),
        "consent": ("none", "whole commit", "seven digits", "six digits", "one digit",
            "whole commit in spaces", "another commit", "the object of its tag", "the object of another tag"),
    },
    [
        ({"upstream": "floating"}, False, "a floating upstream promises no content"),
        ({"lock": ("none", "of this commit")}, False, "the package was made from this commit, or from none"),
        ({"lock": ("of another tag", "of another repository")}, False, "it was made from something else"),
        ({"consent": ("whole commit", "seven digits", "whole commit in spaces", "the object of its tag")},
            False,
            "a person named the new commit"),
        ({}, True, "the tag moved, and nobody named its new commit"),
    ],
)  # fmt: skip


def has_moved(case: Case) -> bool:
    old = GitUpstream(repo="https://host/blueprints", directory="web", ref="web/v1", commit=oid("a9"))
    lock = {
        "none": None,
        "of another commit": old,
        "of this commit": replace(old, commit=PINNED.commit.oid),
        "of another tag": replace(old, ref="web/v0"),
        "of another repository": replace(old, repo="https://host/others"),
    }[case["lock"]]
    commit = PINNED.commit.oid
    texts = {
        "none": "",
        "whole commit": commit,
        "seven digits": commit[:7],
        "six digits": commit[:6],
        "one digit": commit[:1],
        "whole commit in spaces": f" {commit} ",
        "another commit": oid("a9"),
        "the object of its tag": oid("b7"),
        "the object of another tag": oid("b8"),
    }
    consent = texts[case["consent"]]
    source = Source(Location("web.yaml"))
    variant = a_desired_variant(spec=spec(), source=source, annotations={FOLLOW: consent} if consent else {})
    pin = PINNED if case["upstream"] == "numbered" else replace(PINNED, revision=-1)
    tags = {oid("b7"): PINNED.commit.oid, oid("b8"): oid("a9")}
    moved = find_moved_tag([None, KptfileHeader(upstream_lock=lock)], pin, variant, tags)
    assert not moved or all(word in moved for word in ("web/v1", oid("a9"), f"{FOLLOW}: {commit}"))
    return bool(moved)


@pytest.mark.parametrize("row", CONSENTS.rows, ids=str)
def test_numbered_tag_moves_only_with_consent_to_its_new_commit(row: Row[bool]) -> None:
    assert CONSENTS.mistakes(row, has_moved) == []


def test_draft_decides_before_main_whether_its_tag_moved() -> None:
    old = GitUpstream(repo="https://host/blueprints", directory="web", ref="web/v1", commit=oid("a9"))
    outdated, current = (
        KptfileHeader(upstream_lock=lock) for lock in (old, replace(old, commit=PINNED.commit.oid))
    )
    variant = a_desired_variant(spec=spec(), source=Source(Location("web.yaml")))

    assert find_moved_tag([current, outdated], PINNED, variant) == ""
    assert find_moved_tag([outdated, current], PINNED, variant) != ""
