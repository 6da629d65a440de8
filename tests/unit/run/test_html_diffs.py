"""One file's difference for the HTML report: its lines, or why they are not shown."""

from reconciler.names.objects import File
from reconciler.run.report import MOST_LINES, file_diff

OLD, NEW = File.of(b"a: 1\nb: 2\n"), File.of(b"a: 1\nb: 3\n")
SECRET = File.of(b"apiVersion: v1\nkind: Secret\ndata: {p: aHVudGVyMg==}\n")


def test_changed_file_has_its_lines_without_the_head_of_the_patch() -> None:
    diff = file_diff("app.yaml", {"app.yaml": OLD}, {"app.yaml": NEW})

    assert diff == ("app.yaml", "", 1, 1, "@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n+b: 3", "")


def test_new_and_removed_files_are_told_apart() -> None:
    assert file_diff("app.yaml", {}, {"app.yaml": NEW})[1:4] == ("new", 2, 0)
    assert file_diff("app.yaml", {"app.yaml": OLD}, {})[1:4] == ("removed", 0, 2)


def test_secret_is_not_shown() -> None:
    diff = file_diff("secret.yaml", {"secret.yaml": OLD}, {"secret.yaml": SECRET})

    assert (diff.hunks, diff.note) == ("", "A file that may hold a Secret is not shown.")


def test_text_with_control_characters_is_not_shown() -> None:
    diff = file_diff("a.txt", {}, {"a.txt": File.of(b"a\x1b[2J\n")})

    assert (diff.hunks, diff.note) == ("", "Not shown: it has control characters.")


def test_binary_file_is_its_sizes() -> None:
    old, new = File.of(b"\x00" * 10), File.of(b"\x00" * 12)

    changed, added = (file_diff("logo.png", before, {"logo.png": new}) for before in ({"logo.png": old}, {}))

    assert (changed.hunks, changed.note) == ("", "Binary files differ: 10 -> 12 bytes.")
    assert (added.hunks, added.note) == ("", f"Binary file, 12 bytes, {new.oid}.")


def test_long_difference_is_cut_and_the_rest_counted() -> None:
    diff = file_diff("a.txt", {}, {"a.txt": File.of(b"x\n" * (MOST_LINES + 9))})

    assert diff.hunks.count("\n") == MOST_LINES - 1
    assert (diff.added, diff.note) == (MOST_LINES + 9, "10 further lines left out.")
