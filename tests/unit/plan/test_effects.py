"""Effects of a plan, by whole values: what its checksum is computed from."""

from typing import Any

from reconciler.dependencies.lock.format import LockUpdate
from reconciler.inventory.inventory import RepositoryView, ReviewedLock
from reconciler.names.ids import ObjectName
from reconciler.plan.build import plan_effects, registered_addresses
from reconciler.plan.changes import (
    Change,
    MoveRef,
    Plan,
)
from reconciler.records.state import UpstreamLock, lock_bytes, lock_path, lock_upstream
from tests.support.plan_values import EDGE, PACKAGE, URL, WEB, a_change, oid
from tests.support.sets import registered, repository, world
from tests.support.values import replace

KEPT = a_change(variant=WEB)
MOVE = MoveRef("refs/heads/x", oid("a1"), oid("a2"))


def effects(*changes: Change, views: tuple[RepositoryView, ...] = (EDGE,), **plan: Any) -> dict[str, Any]:
    return plan_effects(Plan(changes=changes, **plan), world(views=views), LockUpdate())


def test_repositories_are_named_as_they_are_registered() -> None:
    views = (registered("b", url=URL, git="https://b"), registered("a", url=URL, git="https://a"))
    inventory = world(views=(*views, repository("plain")))

    assert registered_addresses(inventory) == {
        inventory.control.url: "control",
        URL: "https://a",
        "host/plain": "host/plain",
    }
    assert list(effects(replace(KEPT, writes=(MOVE,)), views=views)["repositories"]) == ["https://a"]


# Locks on the state branch


def a_lock(digit: str) -> UpstreamLock:
    lock = lock_upstream(
        ObjectName("default", "web"),
        {"repo": "b", "package": "web", "branch": "main"},
        commit=digit * 40,
        tree="",
        ref="main",
    )
    assert lock is not None
    return lock


OLD, NEW = a_lock("1"), a_lock("2")
PATH = lock_path(OLD)


def test_pins_of_a_reviewed_lock_are_effects_too() -> None:
    plan = Plan(records={PATH: lock_bytes(NEW)}, record_owners={PATH: PACKAGE})
    inventory = world(views=(EDGE,), reviewed=ReviewedLock())

    assert list(plan_effects(plan, inventory, LockUpdate())["locks"]) == [PATH]
