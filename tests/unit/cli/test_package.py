"""`package diff`: every kind of difference between two directories, in the words of a unified diff."""

from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.cli.main import invoke

KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p\n"
DIFFERENCES = {
    "changed": ("a: 1\n", "a: 2\n", ["--- a/f.yaml", "+++ b/f.yaml", "@@ -1 +1 @@", "-a: 1", "+a: 2"]),
    "added": (None, "a: 2\n", ["--- /dev/null", "+++ b/f.yaml", "@@ -0,0 +1 @@", "+a: 2"]),
    "removed": ("a: 1\n", None, ["--- a/f.yaml", "+++ /dev/null", "@@ -1 +0,0 @@", "-a: 1"]),
    "equal": ("a: 1\n", "a: 1\n", []),
}


@pytest.mark.parametrize("case", DIFFERENCES)
@pytest.mark.parametrize("detailed", [False, True])
def test_difference_is_a_unified_diff(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str, detailed: bool
) -> None:
    old, new, lines = DIFFERENCES[case]
    for side, text in (("old", old), ("new", new)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "Kptfile").write_text(KPTFILE)
        if text is not None:
            (tmp_path / side / "f.yaml").write_text(text)
    options = ["--detailed-exitcode"] if detailed else []

    code = invoke(["package", "diff", str(tmp_path / "old"), str(tmp_path / "new"), *options])

    assert capsys.readouterr().out.splitlines() == lines
    assert code == (Exit.PENDING if lines and detailed else Exit.DONE)


def test_changed_mode_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, mode in (("old", 0o644), ("new", 0o755)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "Kptfile").write_text(KPTFILE)
        (tmp_path / side / "run.sh").write_text("true\n")
        (tmp_path / side / "run.sh").chmod(mode)

    invoke(["package", "diff", str(tmp_path / "old"), str(tmp_path / "new")])

    assert capsys.readouterr().out == "mode of run.sh: 100644 -> 100755\n"
