"""Locks in reports: notes of a lock."""

from reconciler.dependencies.lock.format import LockUpdate
from reconciler.report.locks import lock_lines


def test_a_note_reaches_the_terminal_with_its_escapes_spelled_out() -> None:
    decision = LockUpdate(warnings=("\x1b[2J cleared",))

    assert [line for line in lock_lines(decision) if "\x1b" in line] == []
    assert any(line.startswith("note: ") and "cleared" in line for line in lock_lines(decision))
