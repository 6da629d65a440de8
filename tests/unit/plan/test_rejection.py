"""Rejection: what people refused stays refused, and a fix on main is no refusal (D14)."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.base.errors import Exit, Location
from reconciler.base.reasons import Reason
from reconciler.expand import DesiredVariant
from reconciler.inventory.inventory import Commit, PackageRevision, PullRequest, PullState, Source
from reconciler.names.ids import Lifecycle, ObjectName, Oid, PackageKey, ask_key
from reconciler.plan.changes import Change, Op
from reconciler.plan.context import PlanTarget
from reconciler.plan.decide import Case
from reconciler.plan.rejection import (
    RETRY,
    ask_box,
    asked_keys,
    dashboard_key,
    find_rejection,
    retry_text,
    tick_boxes,
)
from reconciler.render.rendered import Blocked, Package, RenderedVariant
from reconciler.resolve.resolution import Pin
from tests.support.decision_table import Case as DecisionCase
from tests.support.decision_table import DecisionTable
from tests.support.decision_table import Row as TableRow
from tests.support.model import MAIN, ModelWorld, blueprint
from tests.support.plan_values import (
    EDGE,
    PACKAGE,
    a_context,
    a_desired,
    a_desired_variant,
    a_draft,
    a_record,
    a_resolved,
    oid,
)
from tests.support.sets import a_package
from tests.support.values import replace
from tests.unit.plan.test_conflicts import app, draft, spec

CONTENT: DecisionTable[str] = DecisionTable(
    {
        "made for": ("a variant", "a cluster"),
        "proposed before": ("exactly this", "something else", "in another repository", "on another branch"),
        "main had it": ("yes", "no"),
        "main now": ("older", "newer", "absent"),
        "pull request": ("closed", "merged", "none"),
        "proposed onto this main": ("yes", "no"),
    },
    [
        ({"proposed before": "something else"}, "", "this content was never proposed"),
        ({"proposed before": ("in another repository", "on another branch")}, "",
            "it was never proposed here"),
        ({"main had it": "yes", "main now": "older"}, "This content was reverted on main in 333333333333",
            "main went back to what it had before"),
        ({"main had it": "yes", "main now": "absent"}, "This content was reverted on main",
            "main removed it"),
        ({"main had it": "yes", "made for": "a cluster"}, "people changed on main",
            "nobody but people changes generated files on main"),
        ({"main had it": "yes", "pull request": "closed", "proposed onto this main": "no"}, "",
            "what was closed was another change of main"),
        ({"pull request": "closed"}, "Its pull request #7 was closed", "people closed it"),
        ({}, "", "nobody refused it"),
    ],
)  # fmt: skip
KEY = PackageKey("git.example/edge", "web")
OLD, TREE, FIX = (Oid(digit * 40) for digit in "abc")
CASE = {
    "made for": "a variant",
    "proposed before": "exactly this",
    "main had it": "no",
    "main now": "newer",
    "pull request": "closed",
    "proposed onto this main": "yes",
}


def target(case: Mapping[str, str]) -> PlanTarget:
    main = {"older": OLD, "newer": FIX, "absent": None}[case["main now"]]
    trees = [OLD, *([TREE] if case["main had it"] == "yes" else []), *([main] if main else [])]
    published = tuple(
        PackageRevision(
            "web", f"v{n}", n, Lifecycle.PUBLISHED, f"refs/tags/web/v{n}", Commit(Oid(f"{n}" * 40), n), tree
        )
        for n, tree in enumerate(trees, start=1)
    )
    states = {"closed": PullState.CLOSED, "merged": PullState.MERGED}
    state = states.get(case["pull request"])
    pulls = (
        (PullRequest("drafts/web/packagevariant-1", "main", "", "", number=7, state=state),) if state else ()
    )
    return PlanTarget(KEY, EDGE, a_package(main_tree=main, published=published), pulls=pulls)


def desired(made: str) -> DesiredVariant:
    name = "web" if made == "a variant" else "dependencies@dev"
    source = Source(Location("web.yaml", 1))
    return a_desired_variant(key=ObjectName("default", name), source=source)


def find(case: Mapping[str, str], pulls: tuple[PullRequest, ...] | None = None, group: str = "") -> str:
    goal = target(case)
    goal = goal if pulls is None else replace(goal, pulls=pulls)
    pin = Pin(KEY, "", "web/v1", 1, Commit(Oid("d" * 40), 1), TREE)
    key = ObjectName("default", "web")
    resolved = a_resolved(
        variant=desired(case["made for"]),
        view=goal.view.key,
        downstream=KEY,
        pin=pin,
        local=goal.package.main_tree,
        inputs="same",
    )
    record = a_record(
        namespace=key.namespace,
        name=key.name,
        url="host/other" if case["proposed before"] == "in another repository" else KEY.url,
        path=KEY.path,
        branch="prod" if case["proposed before"] == "on another branch" else EDGE.branch,
        inputs="other" if case["proposed before"] == "something else" else "same",
        output_tree=TREE,
        group=group,
        local_tree=(goal.package.main_tree or "") if case["proposed onto this main"] == "yes" else "e" * 40,
    )
    return find_rejection(goal, resolved, record, TREE)


def refused(case: DecisionCase) -> str:
    """Return the sentence of the table that the text is, or the text."""
    text = find(case)
    sentences = sorted({row.outcome for row in CONTENT.rows} - {""}, key=len, reverse=True)
    return next((sentence for sentence in sentences if sentence.casefold() in text.casefold()), text)


@pytest.mark.parametrize("row", CONTENT.rows, ids=str)
def test_rejection_follows_the_table(row: TableRow[str]) -> None:
    assert CONTENT.mistakes(row, refused) == []


@pytest.fixture
def world() -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge", deployment=True)
    for number, color in enumerate(("red", "green"), start=1):
        world.publish("blueprints", "web", blueprint("web", app_yaml=app(color)), number)
    world.variants["web"] = spec()
    world.run()
    world.merge("edge", draft(world))
    world.run()
    return world


def the_change(world: ModelWorld) -> Change:
    (change,) = world.run().changes
    assert world.plan().is_empty
    return change


def hotfix(world: ModelWorld) -> None:
    """A person changes a value on main that we write: the package's name in its context."""
    files = world.repositories["edge"].at(MAIN).packages["web"]
    text = files["package-context.yaml"].data.decode().replace("name: web", "name: fixed")
    world.edit("edge", "web", {"package-context.yaml": text})


def test_a_hotfix_of_a_managed_value_is_proposed_to_be_set_again(world: ModelWorld) -> None:
    hotfix(world)

    change = the_change(world)

    assert (change.op, change.reason, change.waits) == (Op.EDIT, Reason.CONTENT_CHANGED, False)
    assert change.message == "The package on main changed"
    assert Exit.WAITING not in world.plan().exits
    world.merge("edge", draft(world))
    world.run()
    assert the_change(world).reason is Reason.UP_TO_DATE


def test_a_hotfix_that_people_insist_on_is_told_with_what_to_write(world: ModelWorld) -> None:
    hotfix(world)
    world.run()
    ref = draft(world)
    world.close("edge", ref.removeprefix("refs/heads/"))
    del world.repositories["edge"].refs[ref]

    change = the_change(world)

    assert (change.op, change.reason, change.waits) == (Op.KEEP, Reason.REJECTED, True)
    assert change.message == (
        "Its pull request #2 was closed. It is proposed again when it changes, or when annotation "
        'reconciler.dev/retry: "1" is set on PackageVariant default/web in variants/web.yaml'
    )
    world.annotations["web"] = {RETRY: "1"}
    assert the_change(world).op is Op.EDIT


def test_a_rollback_on_main_names_its_commit_and_the_next_value_to_write(world: ModelWorld) -> None:
    before = world.repositories["edge"].at(MAIN).packages["web"]
    world.annotations["web"] = {RETRY: "4"}
    world.variants["web"] = spec(2)
    world.run()
    world.merge("edge", draft(world))
    world.run()
    commit = world.push("edge", {"web": before})

    change = the_change(world)

    assert change.reason is Reason.REJECTED
    assert change.message.startswith(f"This content was reverted on main in {commit[:12]}. ")
    assert f'{RETRY}: "5" is set on PackageVariant default/web' in change.message
    world.annotations["web"] = {RETRY: "5"}
    assert the_change(world).op is Op.UPDATE


def test_a_hotfix_after_a_rollback_is_no_second_rollback(world: ModelWorld) -> None:
    before = world.repositories["edge"].at(MAIN).packages["web"]
    world.variants["web"] = spec(2)
    world.run()
    world.merge("edge", draft(world))
    world.run()
    world.push("edge", {"web": before})
    world.run()
    hotfix(world)

    change = the_change(world)

    assert (change.op, change.reason) == (Op.UPDATE, Reason.UPSTREAM_CHANGED)


@pytest.mark.parametrize(
    ("pulls", "is_rejected"),
    [
        ({3: PullState.CLOSED, 7: PullState.MERGED}, False),
        ({3: PullState.MERGED, 7: PullState.CLOSED}, True),
        ({3: PullState.OPEN, 7: PullState.CLOSED}, False),
        ({7: PullState.CLOSED, 12: PullState.CLOSED}, True),
    ],
)
def test_newest_pull_request_of_a_package_decides_whether_it_was_rejected(pulls, is_rejected) -> None:
    made = [
        PullRequest(f"drafts/web/packagevariant-{n}", "main", "", "", number=n, state=state)
        for n, state in pulls.items()
    ]
    elsewhere = PullRequest("drafts/web2/packagevariant-1", "main", "", "", number=99, state=PullState.CLOSED)

    texts = {find(CASE, (*ordered, elsewhere)) for ordered in (made, made[::-1])}

    assert texts == ({f"Its pull request #{max(pulls)} was closed"} if is_rejected else {""})


@pytest.mark.parametrize(("group", "text"), [("reconciler/g/1", "Its pull request #4 was closed"), ("", "")])
def test_closed_pull_request_of_the_recorded_group_rejects_its_packages(group: str, text: str) -> None:
    pull = PullRequest("reconciler/g/1", "main", "", "", number=4, state=PullState.CLOSED)

    assert find(CASE, (pull,), group=group) == text


# Requests for rejected content

REQUESTS: DecisionTable[bool] = DecisionTable(
    {
        "annotation": ("none", "as recorded", "another"),
        "record": ("none", "without a retry", "with a retry"),
        "ticked box": ("none", "this content", "the draft's content", "another content", "another package"),
        "package": ("rendered", "blocked"),
    },
    [
        ({"annotation": "another"}, True, "the annotation has a value that no run has seen"),
        ({"ticked box": "the draft's content"}, True, "a person ticked the box of the draft"),
        ({"ticked box": "this content", "package": "rendered"}, True,
            "a person ticked the box of this content"),
        ({"annotation": "none", "record": "with a retry"}, False,
            "the annotation was removed, which asks for nothing"),
        ({}, False, "nobody asked"),
    ],
    {
        "what no run recorded is another value": {"annotation": "as recorded",
            "record": ("none", "without a retry")},
    },
)  # fmt: skip


def is_requested(case: DecisionCase) -> bool:
    texts = {"none": {}, "as recorded": {RETRY: "1"}, "another": {RETRY: "2"}}
    variant = replace(desired("a variant"), annotations=texts[case["annotation"]])
    fresh = Package(oid("c1")) if case["package"] == "rendered" else Blocked(Reason.MERGE_CONFLICT, "")
    tree = {"this content": "c1", "the draft's content": "d1"}.get(case["ticked box"], "c2")
    key = PACKAGE._replace(path="api") if case["ticked box"] == "another package" else PACKAGE
    tree = "c1" if case["ticked box"] == "another package" else tree
    ticked = {ask_key(key, oid(tree))} if case["ticked box"] != "none" else set()
    record = (
        None if case["record"] == "none" else a_record(retry="1" if case["record"] == "with a retry" else "")
    )
    inventory = replace(
        ModelWorld().inventory(),
        records={record.key: record} if record else {},
        retry_requests=frozenset(ticked),
    )
    pin = Pin(KEY, "", "web/v1", 1, Commit(OLD, 1), OLD)
    goal = replace(target(CASE), key=PACKAGE, draft=a_draft())
    resolved = a_resolved(variant=variant, view=goal.view.key, pin=pin)
    rendered = RenderedVariant(variant.key, fresh)
    return Case(goal, resolved, rendered, a_context(inventory), Op.UPDATE).is_asked_again


@pytest.mark.parametrize("row", REQUESTS.rows, ids=str)
def test_rejected_content_is_proposed_again_only_on_request(row: TableRow[bool]) -> None:
    assert REQUESTS.mistakes(row, is_requested) == []


# Retries


@pytest.mark.parametrize(
    ("fields", "retry", "want"),
    [
        ({}, "", f'annotation {RETRY}: "1" is set on PackageVariant default/web in web.yaml'),
        ({}, "4", 'annotation reconciler.dev/retry: "5" is set on PackageVariant default/web in web.yaml'),
        ({}, "again",
            'annotation reconciler.dev/retry: "1" is set on PackageVariant default/web in web.yaml'),
        ({}, "\u0664",
            'annotation reconciler.dev/retry: "1" is set on PackageVariant default/web in web.yaml'),
        ({"set_key": ObjectName("default", "fleet")}, "",
            'annotation reconciler.dev/retry: "1" is set on PackageVariantSet default/fleet in web.yaml'),
        ({"key": ObjectName("default", "dependencies@prod")}, "",
            'annotation reconciler.dev/retry: "1" is set on Repository edge in web.yaml'),
        ({"requested_by": ("prod/gateway",)}, "",
            "a PackageVariant default/web with another reconciler.dev/retry declares it"),
    ],
)  # fmt: skip
def test_what_people_write_to_have_it_proposed_again(fields: dict[str, Any], retry: str, want: str) -> None:
    variant = replace(a_desired(), **fields)

    assert retry_text(variant, retry) == (f"It is proposed again when it changes, or when {want}")


def test_boxes_of_a_dashboard_are_ticked_and_found_again() -> None:
    keys = [ask_key(PACKAGE, oid(tree)) for tree in ("a1", "a2")]
    text = "\n".join(["# Fleet", *(f"{ask_box(key)} web" for key in keys), ""])

    assert ask_box(keys[0]) == f"- [ ] <!-- reconciler:ask {keys[0]} -->"
    assert asked_keys(text) == frozenset()
    ticked = tick_boxes(text, {keys[1], "unknown"})
    assert ticked == text.replace(
        f"- [ ] <!-- reconciler:ask {keys[1]}", f"- [x] <!-- reconciler:ask {keys[1]}"
    )
    assert asked_keys(ticked) == {keys[1]}
    assert asked_keys(ticked.replace("[x]", "[X]").replace("\n", "\r\n")) == {keys[1]}
    assert asked_keys(f"  {ticked.splitlines()[2]}") == frozenset()


def test_key_is_of_exactly_this_content_of_a_package() -> None:
    key = ask_key(PACKAGE, oid("a1"))

    assert len(key) == 16
    assert len({key, ask_key(PACKAGE, oid("a2")), ask_key(PACKAGE, None), ask_key(KEY, oid("a1"))}) == 4
    assert dashboard_key("fleet") == "dashboard/fleet"
