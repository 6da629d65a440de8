"""Folding: changes of one cause are one row, and dangerous ones are first."""

import pytest

from reconciler.base.reasons import Phase, Reason
from reconciler.names.ids import NamedObject, ObjectName, PackageKey
from reconciler.plan.changes import Change, Op, Plan
from reconciler.plan.impact import Impact, Loss, Risk
from reconciler.plan.status import PackageStatus
from reconciler.report.build import (
    MOST_DIFFS,
    MOST_ROWS,
    build_report,
    common_text,
    fold_changes,
    general_text,
    loss_texts,
    risk_counts,
    risk_summary,
    risk_texts,
    sorted_changes,
)
from reconciler.report.report import Names
from reconciler.report.text import plan_lines
from tests.support.plan_values import a_change
from tests.support.values import replace

NAMES = Names("demo")
RBAC = Risk("rbac", "adds", "Role web", 2)
STORAGE = Risk("storage", "adds", "PersistentVolumeClaim web", 5)


def update(number: int, digest: str = "x", *risks: Risk, message: str = "") -> Change:
    repository = f"edge-{number:05}"
    return a_change(
        package=PackageKey(f"file:///{repository}.git", "web"),
        repository=ObjectName("default", repository),
        op=Op.UPDATE,
        reason=Reason.UPSTREAM_CHANGED,
        message=message,
        variant=ObjectName("default", f"web-{repository}"),
        upstream_from="web/v1",
        upstream_to="web/v2",
        impact=Impact(digest, 2, 4, 1, risks),
    )


def lines(*changes: Change, **options: bool) -> list[str]:
    return list(plan_lines(build_report(Plan(changes), NAMES, **options), shows_needs=False))[:-1]


def test_ten_thousand_equal_changes_are_a_few_lines() -> None:
    assert lines(*map(update, range(10_000))) == [
        "CHANGE  PACKAGE         REASON           DETAIL",
        "update  10000 packages  UpstreamChanged  web/v1 -> web/v2; 10000 repositories, 1 distinct diff",
        "        edge-00000/web, edge-00001/web, edge-00002/web and 9997 more: +4 -1 in 2 files",
    ]


def test_many_distinct_differences_are_counted() -> None:
    last = lines(*(update(n, str(n)) for n in range(MOST_DIFFS + 3)))[-1]

    assert last == "        and 3 distinct diffs more in 3 packages"


@pytest.mark.parametrize(("count", "rows"), [(MOST_ROWS, MOST_ROWS), (MOST_ROWS + 1, 1)])
def test_only_large_groups_fold(count: int, rows: int) -> None:
    changes = [update(n) for n in range(count)]

    assert len(fold_changes(changes, NAMES, {})) == rows
    assert len(fold_changes(changes, NAMES, {}, unfolded=True)) == count


def test_all_lists_every_package() -> None:
    table = lines(*(update(n) for n in range(MOST_ROWS + 1)), unfolded=True)

    assert len(table) == 1 + MOST_ROWS + 1
    assert all("edge-0000" in line for line in table[1:])


def test_changes_with_other_risks_are_another_cause() -> None:
    changes = [update(n) for n in range(6)] + [update(n, "y", RBAC) for n in range(6, 12)]

    assert [line.split("  ")[1].strip() for line in lines(*changes) if line.startswith("update")] == [
        "6 packages",
        "6 packages",
    ]
    assert "        rbac: adds Role web" in lines(*changes)[:5]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (replace(update(9), op=Op.DELETE), update(1, "x", RBAC)),
        (update(9, "x", RBAC), update(1, "x", STORAGE)),
        (update(9, "x", STORAGE), update(1)),
        (update(9, "x", STORAGE, RBAC), update(1, "x", STORAGE)),
        (update(1), update(9)),
        (update(9), replace(update(1), op=Op.KEEP)),
    ],
    ids=["deletion", "class", "risk", "worst", "name", "keep"],
)
def test_order_is_danger_then_operation_then_name(first: Change, then: Change) -> None:
    assert sorted_changes(Plan((then, first))) == [first, then]


def test_risks_are_counted_by_packages_the_worst_class_first() -> None:
    role = Risk("rbac", "adds", "Role other", 2)
    changes = [update(1, "x", STORAGE, RBAC, role), update(2, "x", STORAGE), replace(update(3), op=Op.DELETE)]

    assert risk_summary(risk_counts(changes)) == "deletion in 1 package, rbac in 1, storage in 2"
    assert risk_summary(risk_counts([update(1)])) == ""


def test_messages_that_differ_by_own_names_are_one_cause() -> None:
    changes = [update(n, message=f"edge-{n:05} has web-edge-{n:05}, #{n}") for n in range(6)]

    (cause,) = fold_changes(changes, NAMES, {})

    assert cause.text == "web/v1 -> web/v2; … has …, …; 6 repositories, 1 distinct diff"


def test_own_names_inside_other_names_stay() -> None:
    assert general_text("x; web-server and websocket", update(1), NAMES) == "x; web-server and websocket"


def test_many_subjects_of_a_class_are_counted() -> None:
    risks = [Risk("rbac", "adds", f"Role {n}", 2) for n in range(6)]

    assert risk_texts(risks) == ["rbac: adds Role 0, adds Role 1, adds Role 2, adds Role 3 and 2 more"]


def test_a_text_that_all_share_keeps_its_names() -> None:
    assert common_text(["web/v2 of web is held", "web/v2 of web is held"], "…/v2 of … is held") == (
        "web/v2 of web is held"
    )
    assert common_text(["web of a", "web of b"], "web of …") == "web of …"


@pytest.mark.parametrize(
    ("phase", "reason", "word"),
    [
        (Phase.CONFLICT, Reason.MERGE_CONFLICT, "conflict"),
        (Phase.IN_REVIEW, Reason.DELETION_PROPOSED, "in review"),
        (Phase.PAUSED, Reason.PAUSED, "keep"),
    ],
)
def test_row_of_a_kept_package_names_what_waits_for_people(phase: Phase, reason: Reason, word: str) -> None:
    kept = replace(update(1), op=Op.KEEP, reason=reason)
    status = PackageStatus(phase, kept.variant, kept.package, reason=reason)

    (cause,) = fold_changes([kept], NAMES, {kept.package: status})

    assert cause.word == word


def test_equal_losses_of_clusters_are_one_line_and_all_of_the_rest_are_counted() -> None:
    lost = [
        Loss(cluster, NamedObject("CustomResourceDefinition", "", f"k{number:02}.io"), f"K{number:02}.io")
        for cluster in ("east", "west")
        for number in range(22)
    ]
    other = Loss("east", NamedObject("CustomResourceDefinition", "", "k00.io"), "K00.io", 3, is_complete=True)

    texts = loss_texts([other, *lost])

    assert texts[0] == "east: CustomResourceDefinition k00.io takes K00.io and its 3 objects with it"
    assert texts[1].startswith("east, west: CustomResourceDefinition k00.io takes K00.io and its objects")
    assert (len(texts), texts[-1]) == (21, "and 6 more")


def test_risk_of_several_rows_is_below_the_first_which_names_the_others() -> None:
    changes = [update(1, "x", RBAC, STORAGE), update(2, "x", RBAC, STORAGE), update(3, "y", RBAC)]

    below = [line.strip() for line in lines(*changes)]
    assert [line for line in below if line.startswith(("update", "rbac", "storage"))] == [
        "update  edge-00001/web  UpstreamChanged  web/v1 -> web/v2",
        "rbac: adds Role web; also edge-00002/web, edge-00003/web",
        "storage: adds PersistentVolumeClaim web; also edge-00002/web",
        "update  edge-00002/web  UpstreamChanged  web/v1 -> web/v2",
        "update  edge-00003/web  UpstreamChanged  web/v1 -> web/v2",
    ]
