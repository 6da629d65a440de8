"""The effect of a change on locks: each pin that differs, whatever else is in the files."""

import pytest

from reconciler.ids import ObjectName, Oid
from reconciler.inventory import Commit, Control, Inventory, ReviewedLock
from reconciler.lock import UpstreamLock, lock_bytes, lock_path
from reconciler.objects import File
from reconciler.plan.changes import PinChange, Plan
from reconciler.plan.lock_effect import LockFiles, compare_locks, lock_files
from reconciler.policy import Policy

OLD, NEW = "a" * 40, "b" * 40


def pin(name: str, commit: str, **more: object) -> UpstreamLock:
    asked = {"repository": "blueprints", "package": "web", "selector": {"tag": "stable"}, **more}
    found = {"commit": commit, "tree": commit, "ref": "web/stable"}
    return UpstreamLock(namespace="default", name=name, **found, **asked)


def files(*pins: UpstreamLock) -> LockFiles:
    return {lock_path(one): lock_bytes(one) for one in pins}


def text(commit: str) -> str:
    return f"web/stable@{commit[:12]}"


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        ((), (), None),
        ((pin("a", OLD),), (pin("a", OLD, held=True),), None),
        ((), (pin("a", NEW),), ("", text(NEW), "takes its first pin")),
        ((pin("a", OLD),), (pin("a", NEW),), (text(OLD), text(NEW), "follows its upstream")),
        ((pin("a", OLD),), (pin("a", NEW, held=True),), (text(OLD), text(NEW), "held by a person")),
        (
            (pin("a", OLD),),
            (pin("a", NEW, selector={"tag": "edge"}),),
            (text(OLD), text(NEW), "asks for another upstream"),
        ),
        ((pin("a", OLD),), (), (text(OLD), "", "no variant floats there any more")),
    ],
    ids=["nothing", "the same commit", "first", "moved", "held", "asked anew", "gone"],
)
def test_a_pin_is_told_with_both_sides_and_why(
    before: tuple[UpstreamLock, ...], after: tuple[UpstreamLock, ...], want: tuple[str, str, str] | None
) -> None:
    other = pin("z", OLD)

    found = compare_locks(files(*before, other), files(other, *after))

    assert found == ((PinChange(f"PackageVariant {ObjectName('default', 'a')}", *want),) if want else ())


def test_a_file_that_cannot_be_read_is_somebody_elses_problem() -> None:
    broken = {lock_path(pin("a", OLD)): b"{"}

    assert compare_locks(broken, broken) == ()
    assert [found.after for found in compare_locks(broken, files(pin("a", NEW)))] == [text(NEW)]


def test_a_reviewed_lock_is_what_main_holds_and_any_other_what_a_plan_records() -> None:
    recorded = files(pin("a", NEW)) | {"packagevariants/default/a.json": b"{}"}
    held = {path.removeprefix("locks/"): File.of(data) for path, data in files(pin("a", OLD)).items()}
    plan = Plan(records=recorded)
    control = Control("git.example/control", "control", Commit(Oid("c" * 40), 0))
    automatic = Inventory(Policy(), control)
    reviewed = Inventory(Policy(), control, reviewed=ReviewedLock(files=held))

    assert lock_files(automatic, plan) == files(pin("a", NEW))
    assert lock_files(automatic, None) == {}
    assert lock_files(reviewed, plan) == lock_files(reviewed, None) == files(pin("a", OLD))
