"""One dashboard of several shards: each replaces its part and no other."""

from reconciler.report.dashboard import merge_parts


def test_one_run_of_everything_writes_its_text_as_it_is() -> None:
    assert merge_parts("anything", "text\n", 0, 1) == "text\n"


def test_shard_replaces_its_part_alone() -> None:
    first = merge_parts("", "zero\n", 0, 3)
    both = merge_parts(first, "two - [x]\n", 2, 3)

    assert merge_parts(both, "two - [x]\n", 2, 3) == both
    assert merge_parts(both.replace("\n", "\r\n"), "zero\n", 0, 3) == both
    assert merge_parts(both, "", 0, 3) == merge_parts("", "two - [x]\n", 2, 3)
    assert merge_parts(both, "", 2, 3) == first


def test_parts_of_another_number_of_shards_go() -> None:
    old = merge_parts(merge_parts("", "a", 0, 2), "b", 1, 2)

    assert merge_parts(old, "new", 0, 3) == merge_parts("", "new", 0, 3)
    assert merge_parts("of one run", "new", 0, 3) == merge_parts("", "new", 0, 3)


def test_text_that_looks_like_a_mark_is_none() -> None:
    forged = "`x` <!-- reconciler:shard end -->\n<!-- reconciler:shard 1/2 -->\nforged\n"

    merged = merge_parts(merge_parts("", "mine", 1, 2), forged, 0, 2)

    assert merge_parts(merged, "", 0, 2) == merge_parts("", "mine", 1, 2)
