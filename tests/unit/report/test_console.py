import pytest

from reconciler.report.console import folded, table_lines

HEADS = ("NAME", "STATE", "SINCE", "MESSAGE")
ROWS = [
    ("default/a-variant-with-a-long-name", "in review", "2026-01-01",
        "Its draft waits for a person to merge it"),
    ("default/web", "published", "", ""),
]  # fmt: skip


def test_free_text_wraps_in_its_column() -> None:
    lines = list(table_lines(HEADS, ROWS, 98))

    assert lines[1:3] == [
        "default/a-variant-with-a-long-name  in review  2026-01-01  Its draft waits for a person to merge",
        "                                                           it",
    ]


def test_columns_fold_below_each_other() -> None:
    lines = list(table_lines(HEADS, ROWS, 50))

    assert lines == [
        "NAME                                STATE",
        "    SINCE       MESSAGE",
        "default/a-variant-with-a-long-name  in review",
        "    2026-01-01  Its draft waits for a person to",
        "                merge it",
        "default/web                         published",
    ]


@pytest.mark.parametrize("width", range(1, 120, 7))
def test_no_word_is_cut(width: int) -> None:
    text = "\n".join(table_lines(HEADS, ROWS, width))

    assert all(word in text for row in ROWS for word in " ".join(row).split())


@pytest.mark.parametrize("width", [50, 80, 100])
def test_lines_fit_the_width(width: int) -> None:
    assert all(len(line) <= width for line in table_lines(HEADS, ROWS, width))


def test_long_line_goes_on_below_it_and_names_stay_whole() -> None:
    name = "cluster-america-01/a-package-with-a-long-name-that-nobody-breaks"

    lines = list(folded(["short", f"  wave early: failed, 3 of 4 published ({name})"], 40))

    assert lines == ["short", "  wave early: failed, 3 of 4 published", f"      ({name})"]


def test_continuation_starts_below_the_text_of_its_column() -> None:
    lines = list(
        folded(["error    repository: it cannot be reached at all", "         next: set a token"], 36)
    )

    assert lines == [
        "error    repository: it cannot be",
        "         reached at all",
        "         next: set a token",
    ]


def test_colors_take_no_place_on_a_line() -> None:
    line = "\x1b[31mproblem:\x1b[0m one two three four five"

    assert list(folded([line], 32)) == [line]
    assert list(folded([line], 31)) == ["\x1b[31mproblem:\x1b[0m one two three four", "    five"]


def test_command_in_a_text_stays_whole() -> None:
    lines = list(folded(["  hint: Import one with `reconciler snapshot import` if sets select"], 40))

    assert lines == ["  hint: Import one with", "      `reconciler snapshot import` if", "      sets select"]


def test_line_of_a_commit_message_stays_whole() -> None:
    keep = "Keep: web/deployment.yaml Deployment/web spec.replicas 253307-03dec1"

    lines = list(folded([f"    to keep the local value: {keep}"], 60))

    assert lines == ["    to keep the local value:", f"        {keep}"]


def test_line_of_a_tree_goes_on_inside_its_branch() -> None:
    lines = list(folded(["  ├─ a package of a tree in review at web/v1", "  └─ b package of a tree"], 34))

    assert lines == ["  ├─ a package of a tree in review", "  │      at web/v1", "  └─ b package of a tree"]


def test_long_name_keeps_its_indentation() -> None:
    line = f"    {'n' * 50}"

    assert list(folded([line], 40)) == [line]


def test_line_of_a_pipe_is_never_folded() -> None:
    assert list(folded(["a " * 400], None)) == ["a " * 400]
