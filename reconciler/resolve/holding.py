"""What a person holds a floating upstream at: a revision, a tag or a branch of its package."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from reconciler.api.porch import Upstream
from reconciler.errors import Problem, UsageError
from reconciler.expand.variants import DesiredVariant
from reconciler.inventory import Inventory
from reconciler.lock import UpstreamLock, is_floating
from reconciler.resolve.locked import lock_pin, upstream_data
from reconciler.resolve.resolution import Pin
from reconciler.resolve.upstreams import find_upstream


def find_floating(variants: Iterable[DesiredVariant], name: str) -> DesiredVariant | None:
    """Return the variant with a floating upstream that `NAMESPACE/NAME`, or NAME alone, means.

    Raises:
        UsageError: Several have that name.
    """
    named = [v for v in variants if name in (str(v.key), v.key.name) and is_floating(upstream_data(v))]
    if len(named) > 1:
        several = ", ".join(sorted(str(variant.key) for variant in named))
        raise UsageError(f"{name} is ambiguous: {several}", hint="Name the namespace too.")
    return named[0] if named else None


def hold(variant: DesiredVariant, what: str, lock: UpstreamLock | None, inventory: Inventory) -> UpstreamLock:
    """Return the lock that keeps a variant at `what`: a revision, tag or branch; empty for where it is now.

    Raises:
        UsageError: Its package has nothing of that name.
    """
    if not what and lock is not None and lock.answers(upstream_data(variant)):
        return lock.model_copy(update={"held": True})
    pin = find_upstream(variant, inventory) if not what else _find(variant, what, inventory)
    if isinstance(pin, Problem):
        raise UsageError(pin.message, hint=pin.hint)
    return _locked(variant, pin, held=True)


def follow(variant: DesiredVariant, inventory: Inventory) -> UpstreamLock:
    """Return the lock of a variant that follows its selector: at what that finds now.

    Raises:
        UsageError: It finds nothing.
    """
    pin = find_upstream(variant, inventory)
    if isinstance(pin, Problem):
        raise UsageError(pin.message, hint=pin.hint)
    return _locked(variant, pin, held=False)


def _locked(variant: DesiredVariant, pin: Pin, *, held: bool) -> UpstreamLock:
    lock = lock_pin(variant.key, upstream_data(variant), pin, held=held)
    assert lock is not None  # noqa: S101 - a floating upstream has a lock
    return lock


def _find(variant: DesiredVariant, what: str, inventory: Inventory) -> Pin | Problem:
    """Return what a name means, tried as a manifest could ask for it, or why it means nothing."""
    found = [find_upstream(_asking(variant, selector), inventory) for selector in _selectors(what)]
    return next((pin for pin in found if isinstance(pin, Pin)), found[0])


def _selectors(what: str) -> Iterator[dict[str, Any]]:
    yield {"tag": what}
    digits = what.removeprefix("v")
    if digits.isascii() and digits.isdecimal():
        yield {"revision": int(digits)}
    yield {"workspace_name": what}
    yield {"branch": what}


def _asking(variant: DesiredVariant, selector: dict[str, Any]) -> DesiredVariant:
    asked = variant.spec.upstream or Upstream()
    upstream = Upstream(repo=asked.repo, package=asked.package, **selector)
    return replace(variant, spec=variant.spec.model_copy(update={"upstream": upstream}))
