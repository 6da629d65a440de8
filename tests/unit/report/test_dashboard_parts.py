"""One dashboard of several shards: every shard writes the parts of all, and takes no tick from another."""

from reconciler.base.reasons import Phase
from reconciler.plan.changes import Plan
from reconciler.plan.rejection import ask_box
from reconciler.plan.status import PackageStatus
from reconciler.report.markdown import SECTION_ROWS, make_dashboard, merge_parts
from reconciler.report.report import Names

KEY = "0123456789abcdef"


def test_shard_replaces_the_parts_that_it_knows() -> None:
    first = merge_parts("", {0: "zero\n"}, 0, 3)
    both = merge_parts(first, {2: "two - [x]\n"}, 2, 3)

    assert merge_parts("", {0: "zero", 2: "two - [x]"}, 1, 3) == both
    assert merge_parts(both, {2: "two - [x]\n"}, 2, 3) == both
    assert merge_parts(both.replace("\n", "\r\n"), {0: "zero\n"}, 0, 3) == both
    assert merge_parts(both, {0: ""}, 0, 3) == merge_parts("", {2: "two - [x]\n"}, 2, 3)
    assert merge_parts(both, {2: ""}, 2, 3) == first


def test_parts_of_another_number_of_shards_go() -> None:
    old = merge_parts("", {0: "a", 1: "b"}, 1, 2)

    assert merge_parts(old, {0: "new"}, 0, 3) == merge_parts("", {0: "new"}, 0, 3)
    assert merge_parts("of one run", {0: "new"}, 0, 3) == merge_parts("", {0: "new"}, 0, 3)


def test_text_that_looks_like_a_mark_is_none() -> None:
    forged = "`x` <!-- reconciler:shard end -->\n<!-- reconciler:shard 1/2 -->\nforged\n"

    merged = merge_parts(merge_parts("", {1: "mine"}, 1, 2), {0: forged}, 0, 2)

    assert merge_parts(merged, {0: ""}, 0, 2) == merge_parts("", {1: "mine"}, 1, 2)


def test_ticked_box_of_another_shard_stays_ticked() -> None:
    box = f"{ask_box(KEY)} `edge/web`"
    ticked = merge_parts("", {1: box}, 0, 2).replace("[ ]", "[x]")

    assert (
        merge_parts(ticked, {0: "zero", 1: f"More\n\n{box}"}, 0, 2).count(f"[x] <!-- reconciler:ask {KEY}")
        == 1
    )
    assert "[x]" not in merge_parts(ticked, {1: box}, 1, 2)


def test_dashboard_counts_the_packages_that_it_leaves_out() -> None:
    statuses = [PackageStatus(Phase.STALLED)] * (SECTION_ROWS + 7)

    text = make_dashboard(Plan(), statuses, Names("demo"), "").text

    assert text.count("\n- ") == SECTION_ROWS
    assert "And 7 more." in text
