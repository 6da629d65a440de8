"""What must hold of every lock: each breach of it is found."""

from typing import Any

import pytest

from reconciler.dependencies.lock.format import (
    BrokenLockError,
    ClusterLock,
    LockScope,
    PackageLock,
    check_lock,
)
from reconciler.dependencies.model.instances import (
    DesiredState,
    Instance,
    LockedRevision,
    OwnershipEntry,
    Resolution,
    Resolved,
    Slot,
    SlotKind,
)
from reconciler.dependencies.model.packages import Ecosystem

AWS = Instance(ecosystem=Ecosystem.XPKG, name="x.io/aws", slot=Slot(SlotKind.CLUSTER))


def revision(number: int, state: str = "Inactive", **more: Any) -> LockedRevision:
    fields = {"package": "Provider/aws", "name": f"aws-{number}", "revision": number, **more}
    return LockedRevision(desired_state=DesiredState(state), **fields)


def locked(
    *revisions: LockedRevision, kinds: dict[str, OwnershipEntry] | None = None, generation: int = 1
) -> ClusterLock:
    package = Resolved(instance=AWS, dialect="crossplane", kind="Provider", name="aws", version="v1")
    resolution = Resolution(packages=(package,), custom_resource_definitions=kinds or {})
    lock = PackageLock(
        scope=LockScope(cluster="one"),
        generation=generation,
        input_digest="x",
        resolution=resolution.digest,
        revisions=revisions,
    )
    return ClusterLock(lock, resolution)


def owned(controller: str, *owners: str, **more: Any) -> dict[str, OwnershipEntry]:
    return {"X.io": OwnershipEntry(package=AWS, controller=controller, owners=owners, **more)}


SOUND = locked(revision(1), revision(2, "Active", current=True), kinds=owned("aws-2", "aws-1", "aws-2"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (locked(revision(1, "Active"), revision(2, "Active")), "2 active revisions"),
        (locked(revision(1, current=True), revision(2, current=True)), "2 current revisions"),
        (locked(revision(1), revision(1, name="other")), "2 revisions with the number 1"),
        (locked(revision(1), revision(2, name="aws-1")), "2 revisions are called aws-1"),
        (locked(revision(1, package="Provider/gcp")), "Provider/gcp, which is not there"),
        (locked(revision(1), kinds=owned("aws-1", "aws-1")), "aws-1, which is not active"),
        (locked(revision(1, "Active"), kinds=owned("aws-1")), "does not own it"),
        (locked(revision(1, "Active"), kinds=owned("aws-1", "aws-1", retained=True)), "does not own it"),
        (locked(revision(1), kinds=owned("", "aws-9")), "owned by aws-9, which is gone"),
    ],
)
def test_every_breach_of_a_lock_is_found(wrong: ClusterLock, said: str) -> None:
    with pytest.raises(BrokenLockError, match=said):
        check_lock(None, wrong)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (locked(*SOUND.lock.revisions, kinds=SOUND.resolution.custom_resource_definitions, generation=3),
            "generation 3"),
        (locked(revision(2, "Active"), generation=2), "does not own X.io any more"),
        (locked(revision(2), revision(1, "Active", name="new"), kinds=owned("", "aws-2"), generation=2),
            "the number 1, and 2 was given"),
    ],
)  # fmt: skip
def test_every_breach_of_a_step_is_found(after: ClusterLock, said: str) -> None:
    with pytest.raises(BrokenLockError, match=said):
        check_lock(SOUND, after)
