"""Locks in reports: notes of a lock."""

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import FleetLocks, LockUpdate, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.report.locks import lock_lines
from tests.support.dependency_manifests import crossplane, install, needs, package, provider, world_of
from tests.support.values import replace


def test_a_note_reaches_the_terminal_with_its_escapes_spelled_out() -> None:
    decision = LockUpdate(warnings=("\x1b[2J cleared",))

    assert [line for line in lock_lines(decision) if "\x1b" in line] == []
    assert any(line.startswith("note: ") and "cleared" in line for line in lock_lines(decision))


NET, GONE = crossplane("net", "v1.0.0"), ", {provider: x.io/gone, version: v1.0.0}"


def test_manifest_that_stalls_keeps_what_is_locked_for_it_if_anything_is() -> None:
    """Two that share what they need: one of them alone has no solution."""
    needs = "{provider: x.io/net, version: '>=v1.0.0'}"
    text = "".join(
        provider(name, "v1.0.0", "Configuration") + crossplane(name, "v1.0.0", f"[{needs}{more}]")
        for name, more in (("a", GONE), ("b", ""))
    )
    world = replace(world_of(text + NET), cluster="dev")

    fixed = replace(world_of((text + NET).replace(GONE, "")), cluster="dev")

    alone = update_locks(FleetInputs((world,)), FleetLocks())
    never = update_locks(FleetInputs((world,)), read_locks(alone.files))
    was = update_locks(FleetInputs((fixed,)), FleetLocks())
    kept = update_locks(FleetInputs((world,)), read_locks(was.files))

    head = "  E-NOCANDIDATE: Configuration a has no solution: "
    for decision in (alone, never):
        assert f"{head}nothing is locked for it, the others proceed" in list(lock_lines(decision))
    assert "  E-NOCANDIDATE: no solution: the locked versions stay" in list(lock_lines(kept))


@pytest.mark.parametrize(("reason", "line"), [("no version fits", ": no version fits"), ("", "")])
def test_what_is_skipped_has_its_reason_where_the_lock_states_it(reason: str, line: str) -> None:
    text = package("web.io", "1.0.0", needs("metrics.io", "", ", optional: true"))
    world = replace(world_of(install("shop", "web.io", "") + text), cluster="dev")
    (scope,) = update_locks(FleetInputs((world,)), FleetLocks()).scopes
    assert scope.after
    (skipped,) = scope.after.resolution.skipped
    resolution = replace(scope.after.resolution, skipped=(replace(skipped, reason=reason),))
    after = replace(scope.after, resolution=resolution)

    lines = lock_lines(LockUpdate(scopes=(replace(scope, after=after),)))

    assert f"    skipped: metrics.io of carvel:web.io@install/prod/shop{line}" in list(lines)


@pytest.mark.parametrize(
    ("incomplete", "sure", "excuse"),
    [
        ((), True, "is no longer published"),
        (("dev",), True, "cannot be found while some files cannot be read"),
        (("other",), True, "is no longer published"),
        ((), False, "cannot be found while some files cannot be read"),
    ],
)
def test_version_that_is_gone_may_be_in_what_could_not_be_read(incomplete, excuse, sure) -> None:
    needs_net = provider("a", "v1.0.0", "Configuration")
    needs_net += crossplane("a", "v1.0.0", "[{provider: x.io/net, version: '>=v1.0.0'}]")
    there, gone = (replace(world_of(text), cluster="dev") for text in (needs_net + NET, needs_net))
    locks = read_locks(update_locks(FleetInputs((there,)), FleetLocks()).files)

    decision = update_locks(FleetInputs((gone,), incomplete=frozenset(incomplete)), locks, sure=sure)

    assert any(excuse in line for line in lock_lines(decision))
