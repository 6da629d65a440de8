"""Obstacles of a package: why it is not at an upstream revision, and the next step."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand.variants import variant_key
from reconciler.inventory.inventory import PackageRevision
from reconciler.names.ids import Lifecycle, ObjectName
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, Postponed
from reconciler.policy import Policy
from reconciler.report.explain import Obstacle, Standstill, find_obstacles
from reconciler.resolve.resolution import ResolvedVariant
from tests.support import plan_values
from tests.support.plan_values import EDGE, KEPT, WEB, a_desired, a_pin, a_target, oid, plan_of, web_context
from tests.support.sets import COMMIT, TREE, a_package, repository
from tests.support.values import replace

V1 = KptfileHeader(upstream_lock=GitUpstream("r", "web", "web/v1", oid("a1")))
ON_MAIN = a_package(main_tree=oid("b1"), main_header=V1)


def blueprints(*numbers: int) -> Any:
    """Return the upstream repository with these revisions of `web`."""
    published = tuple(
        PackageRevision("web", f"v{n}", n, Lifecycle.PUBLISHED, f"refs/tags/web/v{n}", COMMIT, TREE)
        for n in numbers
    )
    return repository("blueprints", packages={"web": a_package(published=published)})


def a_resolved(**fields: Any) -> ResolvedVariant:
    given: dict[str, Any] = {"variant": a_desired(), "pin": a_pin(1), **fields}
    return plan_values.a_resolved(**given)


def standstill(
    version: str = "",
    change: Change = KEPT,
    *,
    resolved: ResolvedVariant | None = None,
    numbers: tuple[int, ...] = (3, 1, 2, 0),
    target: Mapping[str, Any] | None = None,
    problems: tuple[Problem, ...] = (),
    trace: Mapping[ObjectName, Mapping[str, str]] | None = None,
    **fields: Any,
) -> Standstill:
    inventory = {"views": (EDGE, blueprints(*numbers)), **fields.pop("inventory", {})}
    given = {"resolved": {WEB: resolved or a_resolved()}, **fields}
    context = web_context(a_target(**{"package": ON_MAIN, **(target or {})}), inventory=inventory, **given)
    plan = plan_of(change, context, problems=problems)
    return find_obstacles(plan, change, "edge/web", version, trace or {})


def test_lock_that_holds_an_older_revision_is_named() -> None:
    held = a_resolved(offers=a_pin(3))
    follow = "Run `reconciler lock follow default/web`, or merge its pull request."

    newest = standstill(resolved=held)
    between = standstill("v2", resolved=held)

    assert newest.obstacles == between.obstacles
    assert newest.obstacles == (Obstacle("The lock holds web/v1, while the upstream offers web/v3", follow),)


@pytest.mark.parametrize(
    ("ref", "revision"),
    [
        pytest.param("main", "v7", id="the number alone at a branch"),
        pytest.param("apps/web/v1", "apps/web/v7", id="with all folders of the package"),
    ],
)
def test_number_is_a_revision_of_the_package_that_is_asked_for(ref: str, revision: str) -> None:
    resolved = a_resolved(pin=a_pin(0, ref=ref))

    assert standstill("7", resolved=resolved).obstacles == (
        Obstacle(
            f"The upstream has no revision {revision}", "Ask for one that it has: web/v1, web/v2, web/v3."
        ),
    )


def test_tag_of_a_version_is_a_revision_and_the_newest_is_the_highest_of_them() -> None:
    tags = ("v1.2.0", "v1.10.0", "v2.0.0-rc.1")
    published = tuple(
        PackageRevision("web", tag, -1, Lifecycle.PUBLISHED, f"refs/tags/web/{tag}", COMMIT, TREE)
        for tag in tags
    )
    (numbered,) = blueprints(3).packages["web"].published
    upstream = repository("blueprints", packages={"web": a_package(published=(*published, numbered))})
    old, new = (a_pin(-1, ref=f"web/{tag}", commit=replace(COMMIT, oid=oid(tag))) for tag in tags[:2])

    def obstacles(version: str, **fields: Any) -> tuple[str, list[str]]:
        resolved = a_resolved(pin=old, offers=new, **fields)
        found = standstill(version, resolved=resolved, inventory={"views": (EDGE, upstream)})
        return found.newest, [str(obstacle.message) for obstacle in found.obstacles]

    held = f"The lock holds {old.label}, while the upstream offers {new.label}"
    assert obstacles("") == obstacles("v1.10.0") == obstacles("web/v1.10.0") == ("web/v1.10.0", [held])
    assert obstacles("v1.2.0") == ("web/v1.10.0", [])
    assert obstacles("v3") == obstacles("v2.0.0-rc.1") == ("web/v1.10.0", [held])
    assert obstacles("v9.0.0") == ("web/v1.10.0", ["The upstream has no revision web/v9.0.0"])


PROBLEM = Problem(Location("web.yaml", 4), Reason.INVALID_MANIFEST, "It is wrong", "Mend it").owned_by(
    variant_key(WEB)
)


@pytest.mark.parametrize(
    ("hint", "step"),
    [
        ("Did you mean web?", "Correct it at m.yaml:3. Did you mean web?"),
        ("Versions: v1.", "Correct it at m.yaml:3. Versions: v1."),
        ("", "Correct it at m.yaml:3."),
        ("Register it.", "Register it."),
    ],
)
def test_the_next_step_of_a_problem_is_something_to_do(hint: str, step: str) -> None:
    found = standstill(problems=(replace(PROBLEM, location=Location("m.yaml", 3), hint=hint),))

    assert found.obstacles[0].hint == step


THERE = "Main has web/v1, by its name; what follows is about another change of the package"


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"waits": True, "message": "Why"}, "It is held back: Why"),
        ({"reason": Reason.UPSTREAM_TAG_MOVED, "message": "Why"}, "It is held back: Why"),
        ({"reason": Reason.AWAITING_WAVE, "message": "Rolled back"}, "It is held back: Rolled back"),
    ],
)
def test_state_is_told_beside_the_revision_that_main_has(change: Mapping[str, Any], state: str) -> None:
    found = standstill("v1", replace(KEPT, **change)).obstacles

    assert [obstacle.message for obstacle in found] == [THERE, state]


def test_suspension_and_postponed_pull_requests_are_obstacles_too() -> None:
    change = replace(KEPT, postponed=Postponed(Reason.RATE_LIMITED, "5 are open"))
    suspended = {"policy": Policy(suspend=True)}

    found = standstill("v3", change, resolved=a_resolved(pin=a_pin(3)), inventory=suspended)

    assert found.obstacles == (
        Obstacle("spec.suspend is true, so nothing changes", "Set it to false in reconciler.yaml."),
        Obstacle(
            "It is pending: 5 are open", "Wait, or change the limits and schedules in spec.pullRequests."
        ),
    )
