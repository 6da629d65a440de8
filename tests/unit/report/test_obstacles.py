"""Obstacles of a package: why it is not at an upstream revision, and the next step."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand.variants import variant_key
from reconciler.inventory.inventory import PackageRevision, PullState
from reconciler.names.ids import Lifecycle, ObjectName
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, Op, Plan, Postponed
from reconciler.policy import Policy
from reconciler.report.explain import Obstacle, Standstill, find_obstacles
from reconciler.resolve.resolution import HeldBack, ResolvedVariant
from tests.support import plan_values
from tests.support.plan_values import (
    EDGE,
    KEPT,
    WEB,
    a_conflict,
    a_desired,
    a_draft,
    a_pin,
    a_pull,
    a_target,
    a_write,
    field_at,
    oid,
    plan_of,
    web_context,
)
from tests.support.sets import COMMIT, TREE, a_package, repository
from tests.support.values import replace

WRITE = a_write()
V1 = KptfileHeader(upstream_lock=GitUpstream("r", "web", "web/v1", oid("a1")))
V3 = KptfileHeader(upstream_lock=GitUpstream("r", "web", "web/v3", oid("a3")))
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


REVISION = field_at("web.yaml", "spec", "upstream", "revision")
ASKED = Obstacle(
    f"The manifest asks for web/v1: spec.upstream.revision ({REVISION})", "Ask for web/v3 there."
)
ASKED_OF_V2 = ASKED._replace(hint="Ask for web/v2 there.")


def test_package_at_the_requested_revision_stands_still_by_its_manifest() -> None:
    assert standstill() == Standstill("web/v1", "", "web/v1", "web/v3", (ASKED,))


def test_package_at_the_newest_revision_has_no_obstacle() -> None:
    assert standstill(numbers=(1,)) == Standstill("web/v1", "", "web/v1", "web/v1", ())
    assert standstill(numbers=()) == Standstill("web/v1", "", "web/v1", "", ())


def test_package_without_a_variant_has_to_be_adopted_first() -> None:
    adopt = Obstacle(
        "No PackageVariant of this instance owns it",
        "Adopt it with a PackageVariant whose adoptionPolicy is adoptExisting.",
    )
    want = Standstill("", "", "", "", (adopt,))

    assert standstill(change=replace(KEPT, variant=None)) == want
    assert find_obstacles(Plan(), KEPT, "edge/web", "", {}) == want


@pytest.mark.parametrize("version", ["web/v2", "v2", "2"])
def test_revision_may_be_named_in_short(version: str) -> None:
    assert standstill(version).obstacles == (ASKED_OF_V2,)


@pytest.mark.parametrize("version", ["web/v1", "v1", "1"])
def test_requested_revision_that_is_on_main_has_no_obstacle(version: str) -> None:
    assert standstill(version).obstacles == ()


@pytest.mark.parametrize(
    ("numbers", "listed"),
    [((1, 2), "web/v1, web/v2"), (tuple(range(1, 8)), "web/v3, web/v4, web/v5, web/v6, web/v7")],
)
def test_revision_that_the_upstream_has_not_is_the_only_obstacle(
    numbers: tuple[int, ...], listed: str
) -> None:
    found = standstill("v9", replace(KEPT, waits=True, message="Why"), numbers=numbers)

    assert found.obstacles == (
        Obstacle("The upstream has no revision web/v9", f"Ask for one that it has: {listed}."),
    )


def test_lock_that_holds_an_older_revision_is_named() -> None:
    held = a_resolved(offers=a_pin(3))
    follow = "Run `reconciler lock follow default/web`, or merge its pull request."

    newest = standstill(resolved=held)
    between = standstill("v2", resolved=held)

    assert newest.obstacles == between.obstacles
    assert newest.obstacles == (Obstacle("The lock holds web/v1, while the upstream offers web/v3", follow),)


def test_floating_upstream_that_is_locked_is_told_without_numbers() -> None:
    pin, offers = a_pin(0, ref="main"), a_pin(0, ref="main", commit=a_pin(2).commit)

    found = standstill("next", resolved=a_resolved(pin=pin, offers=offers), numbers=())

    assert found.requested == "main@a0000000"
    assert found.obstacles == (
        Obstacle(
            "The lock holds main@a0000000, while the upstream offers main@a2000000",
            "Run `reconciler lock follow default/web`, or merge its pull request.",
        ),
    )


def test_lock_at_what_the_upstream_offers_is_no_obstacle() -> None:
    assert standstill("v2", resolved=a_resolved(offers=a_pin(1))).obstacles == (ASKED_OF_V2,)


def test_version_of_a_branch_is_a_number_alone() -> None:
    branch = a_resolved(pin=a_pin(0, ref="main"))

    assert standstill("7", resolved=branch).obstacles == (
        Obstacle("The upstream has no revision v7", "Ask for one that it has: web/v1, web/v2, web/v3."),
    )


def test_set_is_named_with_the_expression_that_gave_the_revision() -> None:
    of_set = replace(a_desired(), set_key=ObjectName("default", "fleet"))

    found = standstill(resolved=a_resolved(variant=of_set), trace={WEB: {"upstream.revision": "literal"}})

    assert found.obstacles[0].message == (
        "The manifest asks for web/v1: "
        f"PackageVariantSet default/fleet: upstream.revision = literal ({REVISION})"
    )


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


def test_problems_of_the_variant_come_first_and_once() -> None:
    others = PROBLEM.owned_by(variant_key(ObjectName("default", "other")))

    found = standstill(problems=(others, PROBLEM, PROBLEM))

    assert found.obstacles == (Obstacle("It is wrong (web.yaml:4)", "Mend it"), ASKED)


def test_variant_that_is_not_resolved_has_its_state_as_obstacle() -> None:
    context = web_context(a_target(package=ON_MAIN))
    change = replace(KEPT, waits=True, message="Why")

    found = find_obstacles(plan_of(change, context), change, "edge/web", "v2", {})

    assert found == Standstill(
        "web/v1",
        "",
        "",
        "",
        (
            Obstacle(
                "It is held back: Why",
                "Run `reconciler plan`: it has each refusal and problem with its hint.",
            ),
        ),
    )


STATES: list[tuple[Mapping[str, Any], Mapping[str, Any], Obstacle]] = [
    (
        {"writes": (WRITE,), "op": Op.UPDATE, "reason": Reason.NEW},
        {},
        Obstacle("It is pending: Not applied yet: update (New)", "Run `reconciler apply`."),
    ),
    (
        {},
        {"draft": a_draft(header=V3), "pulls": (a_pull(number=7),)},
        Obstacle("It is in review as #7", "Review it, and merge it: `reconciler approve edge/web`."),
    ),
    (
        {"message": "A person commits"},
        {"draft": a_draft(header=V3)},
        Obstacle(
            "It is in review: A person commits", "Review it, and merge it: `reconciler approve edge/web`."
        ),
    ),
    (
        {"unready": ("gate",)},
        {},
        Obstacle("It is not ready: gate", "Correct what it names; the next apply renders the package again."),
    ),
    (
        {"conflicts": (a_conflict("a", "b", "1", "2", name="a"),)},
        {},
        Obstacle(
            "It is in conflict: 1 conflict in a: answer it in the pull request, or with reconciler answer",
            "Answer each conflict in the draft: its pull request lists them.",
        ),
    ),
    (
        {"reason": Reason.REJECTED, "message": "Why"},
        {"pulls": (a_pull(PullState.CLOSED, number=3),)},
        Obstacle("It is rejected as #3: Why", 'Change it, or set reconciler.dev/retry: "1" on its manifest.'),
    ),
    (
        {"reason": Reason.PAUSED, "message": "Why"},
        {},
        Obstacle("It is paused: Why", "Remove reconciler.dev/paused."),
    ),
]


@pytest.mark.parametrize(("change", "target", "want"), STATES)
def test_state_of_a_package_on_its_way(
    change: Mapping[str, Any], target: Mapping[str, Any], want: Obstacle
) -> None:
    found = standstill("v3", replace(KEPT, **change), resolved=a_resolved(pin=a_pin(3)), target=target)

    assert found.obstacles == (want,)
    assert found.review == ("web/v3" if "draft" in target else "")


def test_stalled_package_needs_a_correction() -> None:
    change = replace(KEPT, reason=Reason.OWNER_STALLED, message="Why")

    found = standstill("v3", change, resolved=a_resolved(pin=a_pin(3)), variants={})

    hint = "Correct the manifest or the repository; `reconciler doctor` checks repositories."
    assert found.obstacles == (Obstacle("It is stalled: Why", hint),)


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


def test_package_that_is_nowhere_says_why() -> None:
    why = replace(KEPT, reason=Reason.AWAITING_WAVE, message="Rolled back")
    branch = a_resolved(pin=a_pin(0, ref="main"))

    found = standstill("", why, resolved=branch, numbers=(), target={"package": a_package()})

    assert [obstacle.message for obstacle in found.obstacles][-1] == "It is held back: Rolled back"


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


def test_published_package_that_is_not_there_yet_has_no_state_to_tell() -> None:
    assert standstill("v3", resolved=a_resolved(pin=a_pin(3))).obstacles == ()


def test_a_package_that_waits_for_its_wave_asks_for_nothing_else() -> None:
    why = "Rollout web/v3 of web: wave main waits for wave canary"
    change = replace(KEPT, reason=Reason.AWAITING_WAVE, message=why)
    resolved = a_resolved(pin=a_pin(1), offers=a_pin(3), held_back=HeldBack(a_pin(3), why))

    found = standstill("", change, resolved=resolved)

    assert found.requested == found.newest == "web/v3"
    assert [obstacle.hint for obstacle in found.obstacles] == ["Run `reconciler plan`: it has every wave."]
