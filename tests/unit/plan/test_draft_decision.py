"""What happens to the draft of a package, and the causes that every change of content names."""

from collections.abc import Callable, Mapping

import pytest

from reconciler.api.porch import (
    Downstream,
    Function,
    InjectionSelector,
    PackageContext,
    PackageVariantSpec,
    Pipeline,
    Upstream,
)
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import Commit, Draft, Inventory, PullState, Source
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.ids import Lifecycle, PackageKey
from reconciler.names.objects import Files
from reconciler.plan.changes import Change, ClosePull, Op, WriteDraft
from reconciler.plan.compose import Parts, asked_text, compose
from reconciler.plan.context import PlanTarget
from reconciler.plan.decide import Case as DraftCase
from reconciler.plan.decide import content_causes, decide_output
from reconciler.plan.drafts import close_pulls, is_proposed, wanted_pull
from reconciler.plan.rejection import RETRY
from reconciler.policy import FunctionPolicy, OpenOn
from reconciler.records.state import ConflictRecord
from reconciler.render.rendered import Blocked, Package, Rendered, RenderedVariant
from reconciler.render.update import Conflict as RenderConflict
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.model import MAIN, ModelWorld, blueprint
from tests.support.plan_values import (
    PACKAGE,
    WEB,
    a_conflict,
    a_context,
    a_desired_variant,
    a_draft,
    a_pin,
    a_pull,
    a_record,
    a_resolved,
    oid,
    stateless,
)
from tests.support.points import team_point
from tests.support.sets import a_package, repository
from tests.support.sets import world as plain_world
from tests.support.values import replace

POINT = team_point("optional")
SET_LABELS = "ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.2.0"
APP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata:\n  {}: here\n"


class Cluster(ModelWorld):
    """A world with one object to inject."""

    code = "old"

    def inventory(self) -> Inventory:
        team = SnapshotObject(
            "hr.example.com/v1",
            "Team",
            "default",
            "blue",
            {},
            {},
            {"spec": {"code": self.code}},
            Location("s"),
        )
        objects = {("hr.example.com/v1", "Team"): (team,)}
        return replace(super().inventory(), snapshot=Snapshot(present=True, objects=objects))


def spec(**more: object) -> PackageVariantSpec:
    given: dict[str, object] = {
        "upstream": Upstream(repo="blueprints", package="web", revision=1),
        "downstream": Downstream(repo="edge", package="web"),
        "injectors": [InjectionSelector(name="blue")],
        "package_context": PackageContext(data={"region": "east", "zone": "a"}),
        "pipeline": labelled("old"),
        **more,
    }
    return PackageVariantSpec(**given)


def labelled(value: str) -> Pipeline:
    return Pipeline(mutators=[Function(name="label", image=SET_LABELS, config_map={"team": value})])


def edited(world: Cluster, **more: object) -> None:
    world.variants["web"] = world.variants["web"].model_copy(update=more)


def edit_context(world: Cluster) -> None:
    edited(world, package_context=PackageContext(data={"region": "west", "zone": "a"}))


def edit_pipeline(world: Cluster) -> None:
    edited(world, pipeline=labelled("new"))


def change_object(world: Cluster) -> None:
    world.code = "new"


def hotfix(world: Cluster) -> None:
    world.edit("edge", "web", {"notes.yaml": APP.format("note")})


def release(world: Cluster) -> None:
    world.publish("blueprints", "web", blueprint("web", team_yaml=POINT, new_yaml=APP.format("new")), 2)
    edited(world, upstream=Upstream(repo="blueprints", package="web", revision=2))


CAUSES: Mapping[str, tuple[Callable[[Cluster], None], str]] = {
    "context": (edit_context, "spec.packageContext.data.region"),
    "pipeline": (edit_pipeline, "spec.pipeline.mutators[0].configMap.team"),
    "object": (change_object, "object Team blue"),
    "main": (hotfix, "the package on main"),
    "upstream": (release, "web/v1 -> web/v2"),
}


@pytest.fixture(params=["draft", "published", "edited draft"])
def world(request: pytest.FixtureRequest) -> Cluster:
    world = Cluster()
    world.add_repository("blueprints")
    world.add_repository("edge")
    world.publish("blueprints", "web", blueprint("web", team_yaml=POINT), 1)
    world.variants["web"] = spec()
    world.run()
    world.merge("edge", world.drafts("edge")[0])
    world.run()
    if request.param != "published":
        edited(world, package_context=PackageContext(data={"region": "east", "zone": "b"}))
        world.run()
        edited(world, package_context=PackageContext(data={"region": "east", "zone": "c"}))
        world.run()
    if request.param == "edited draft":
        world.edit("edge", "web", {"mine.yaml": APP.format("mine")}, ref=world.drafts("edge")[0])
        world.run()
    assert world.plan().is_empty
    return world


def told(change: Change) -> str:
    message = change.message.replace("The package", "the package").replace("Object", "object")
    return f"{change.upstream_from} -> {change.upstream_to}; {message}"


@pytest.mark.parametrize("causes", [*((cause,) for cause in CAUSES), tuple(CAUSES)], ids="+".join)
def test_every_cause_is_named(world: Cluster, causes: tuple[str, ...]) -> None:
    for cause in causes:
        CAUSES[cause][0](world)

    (change,) = world.run().changes

    writes = [write for write in change.writes if isinstance(write, WriteDraft)]
    if causes == ("main",) and world.drafts("edge") == []:
        assert (change.op, writes) == (Op.PUBLISH, []), "a hotfix on its own is published as it is"
        return
    assert writes
    assert change.reason in {Reason.CONTENT_CHANGED, Reason.UPSTREAM_CHANGED}
    for cause in causes:
        assert CAUSES[cause][1] in told(change)
    for other in CAUSES.keys() - {*causes}:
        assert CAUSES[other][1] not in told(change)
    assert world.plan().is_empty


NOT_KEPT = "The edit of people there does not survive"


@pytest.mark.parametrize("text", ["code: old", "kind: Team"])
def test_edit_that_an_injected_object_writes_over_is_named(world: Cluster, text: str) -> None:
    """What people changed beside the injected value stays."""
    (branch,) = [name for name in world.drafts("edge") if "mine.yaml" in files(world, name)] or [MAIN]
    team = files(world, branch)["team.yaml"].data.decode()
    edit = "code: mine" if text.startswith("code") else f"{text} # mine"
    world.edit("edge", "web", {"team.yaml": team.replace(text, edit)}, ref=branch)
    change_object(world)

    changes = [world.run().changes[0] for _ in range(2)]

    lost = (
        "team.yaml: object blue writes spec.code of Team team anew. The edit of people there does not survive"
    )
    expected = (lost,) if text.startswith("code") else ()
    assert [tuple(change.overwritten) for change in changes] == [expected, expected]


def files(world: Cluster, branch: str) -> Files:
    return world.repositories["edge"].at(branch).packages["web"]


def compatible_functions(world: Cluster) -> None:
    world.policy = replace(world.policy, functions=FunctionPolicy(compatible=True))


def deployed(world: Cluster) -> None:
    world.repositories["edge"].deployment = True


def decide_conflicts(world: Cluster) -> None:
    world.annotations["web"] = {"reconciler.dev/on-conflict": "local"}


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (compatible_functions, "the configuration of functions"),
        (deployed, "spec.deployment of the Repository"),
        (decide_conflicts, "the conflict policies"),
    ],
)
def test_what_is_configured_is_named_beside(world: Cluster, act, words) -> None:
    """None of these changes the content here by itself, so something else does: both are told."""
    act(world)
    edit_context(world)

    (change,) = world.run().changes

    assert change.op is Op.EDIT
    assert words in told(change)
    assert "spec.packageContext.data.region" in change.message


def test_causes_read_as_a_sentence(world: Cluster) -> None:
    hotfix(world)
    edit_pipeline(world)
    (first,) = world.plan().changes
    release(world)
    (second,) = world.plan().changes

    causes = "spec.pipeline.mutators[0].configMap.team and the package on main"
    assert first.message == f"{causes} changed"
    assert second.message == f"{causes} also changed"


ON_MAIN, NEW, EDITED = oid("b1"), oid("c9"), oid("d9")
ENGINE = {"engine": "1"}
AT_BRANCH = replace(a_pin(), ref="main", revision=-1)
FORM = "this version of the tool makes"
ASKED = (ConflictRecord(path="a.yaml", field="spec", upstream="1", local="2"),)


@pytest.mark.parametrize(
    ("record", "resolved", "draft", "cause"),
    [
        (None, {}, True, "Nothing was recorded of the last time; the package is not what it should be"),
        ({"inputs": "", "facts": {"engine": "0"}}, {}, True, "The version of this tool changed"),
        ({"inputs": "", "facts": ENGINE}, {}, True, "Something that it is made from changed"),
        ({"inputs": ""}, {}, True, f"Something that it is made from changed, or {FORM} it in another form"),
        ({"inputs": ""}, {"local": EDITED}, True, "The package on main changed"),
        ({"inputs": "", "path": "other"}, {"local": EDITED}, True,
            f"Something that it is made from changed, or {FORM} it in another form"),
        ({"output_tree": oid("e9")}, {}, True, f"No input changed: {FORM} the draft in another form"),
        ({"inputs": "", "failed": True}, {}, True, "A function that failed or could not run was tried again"),
        ({"failed": True}, {"pin": AT_BRANCH}, True, "It follows main instead of web/v1; same commit"),
        ({"conflicts": ASKED}, {"local": NEW}, False, "It was merged before a run finished its draft"),
        ({"conflicts": ASKED, "local_tree": EDITED}, {"local": EDITED}, False,
            "No input changed, but the draft that was proposed is gone"),
        ({"conflicts": ASKED}, {"local": NEW}, True,
            "No input changed, but the draft is not what was proposed"),
        ({}, {}, True, "No input changed, but the draft is not what was proposed"),
        ({}, {}, False, "No input changed, but the draft that was proposed is gone"),
        ({"inputs": ""}, {"pin": AT_BRANCH}, True, "It follows main instead of web/v1; same commit"),
        ({"inputs": ""}, {"pin": AT_BRANCH}, False, "It follows main instead of web/v1; same commit"),
        ({"inputs": ""},
            {"pin": a_pin(package=PackageKey("host/mirror", "web"), remote="https://host/mirror")}, False,
            "The upstream repository was https://host/blueprints, and is https://host/mirror; same commit"),
    ],
)  # fmt: skip
def test_cause_of_a_change_is_what_changed(record, resolved, draft, cause) -> None:
    opened = a_draft() if draft else None
    given = {"pin": a_pin(), "base": a_pin(), "draft_base": a_pin(), "inputs": "same", "facts": ENGINE}
    content = RenderedVariant(WEB, Package(NEW), None, time=30)
    records = {} if record is None else {WEB: a_record(**{"inputs": "same", "output_tree": NEW, **record})}
    context = a_context(replace(plain_world(), records=records), rendered=Rendered({WEB: content}))
    target = PlanTarget(PACKAGE, repository("edge"), a_package(), draft=opened)
    case = DraftCase(target, a_resolved(**{**given, **resolved}), content, context, Op.UPDATE)

    assert content_causes(case, opened) == cause


def test_open_conflicts_ask_for_answers_and_values_on_main_for_a_file() -> None:
    def asks(name: str, *paths: str) -> str:
        return asked_text([a_conflict(path, "spec.x", "1", "2", "", name) for path in paths])

    assert asks("") == ""
    assert asks("000001-abcdef", "b.yaml", "a.yaml", "a.yaml") == (
        "3 conflicts in a.yaml, b.yaml: answer them in the pull request, or with reconciler answer"
    )
    assert asks("000001-abcdef", "a.yaml").startswith("1 conflict in a.yaml: answer it in")
    ways = "Restore the file on main, remove its first line to make it yours, or declare the package"
    assert asks("", "a.yaml") == f"1 generated value in a.yaml stays as people set it. {ways}"
    assert (
        asks("", *"abcdef")
        == f"6 generated values in a, b, c and 3 more files stay as people set them. {ways}"
    )


# The decision about a draft, whatever the content is

PLAIN = ("main's", "new", "new, with a conflict", "new, functions failed", "blocked")
STANDING = (
    "the draft's",
    "the draft's, merged anew",
    "the draft's, its merge is blocked",
    "the draft's, merged with failed functions",
    "new, merged without effect",
    "new, not merged",
)
MERGED = (
    *STANDING[1:],
    "new, merged",
    "new, merged with a conflict",
    "new, a conflict waits in the draft",
    "new, merged with failed functions",
    "new, its merge is blocked",
)
BLOCKING = ("blocked", "new, its merge is blocked")
FAILING = ("new, functions failed", "new, merged with failed functions")
REFUSED = {"pull request": "closed", "requested again": "no"}
Decided = tuple[Op, Reason, bool]
DRAFTS: DecisionTable[Decided] = DecisionTable(
    {
        "tag": ("stands", "moved"),
        "draft": ("none", "untouched", "edited"),
        "content": (*PLAIN, STANDING[0], *MERGED),
        "main": ("as the draft left it", "changed"),
        "pull request": ("none", "open", "closed"),
        "requested again": ("no", "yes"),
    },
    [
        ({"tag": "moved"}, (Op.KEEP, Reason.UPSTREAM_TAG_MOVED, True), "a person consents to the new commit"),
        ({"content": BLOCKING}, (Op.BLOCK, Reason.MERGE_CONFLICT, True), "it cannot be made"),
        ({"content": "main's", "draft": "none"}, (Op.KEEP, Reason.UP_TO_DATE, False), "main is up to date"),
        ({"content": "main's", "draft": "untouched"}, (Op.CLOSE, Reason.DRAFT_SUPERSEDED, False),
            "main is up to date, and the draft has nothing to propose"),
        ({"content": "main's"}, (Op.KEEP, Reason.DRAFT_EDITED, True),
            "main is up to date, and the draft is left to the person who edited it"),
        ({"draft": "none", **REFUSED}, (Op.KEEP, Reason.REJECTED, True),
            "this content was rejected, and its branch is gone"),
        ({"content": STANDING, "main": "changed", "pull request": ("none", "open")},
            (Op.EDIT, Reason.CONTENT_CHANGED, False), "the draft takes in what changed on main"),
        ({"content": STANDING, "main": "changed", "requested again": "yes"},
            (Op.EDIT, Reason.CONTENT_CHANGED, False),
            "the draft is requested again, and takes in what changed on main"),
        ({"content": STANDING, "draft": "untouched", "pull request": "open"},
            (Op.KEEP, Reason.UP_TO_DATE, False), "the draft waits for a review"),
        ({"content": STANDING, "pull request": "open"}, (Op.KEEP, Reason.DRAFT_EDITED, False),
            "the edited draft waits for a review"),
        ({"content": "new, a conflict waits in the draft", "pull request": "open"},
            (Op.KEEP, Reason.MERGE_CONFLICT, True), "the draft waits for answers"),
        ({"content": (*STANDING, "new, a conflict waits in the draft"), **REFUSED},
            (Op.KEEP, Reason.REJECTED, True), "the draft was rejected"),
        ({"content": STANDING}, (Op.UPDATE, Reason.PULL_REQUEST_MISSING, False),
            "the draft gets its pull request"),
        ({"content": "new, a conflict waits in the draft"}, (Op.UPDATE, Reason.PULL_REQUEST_MISSING, True),
            "the draft with a conflict gets its pull request"),
        ({"content": FAILING, "draft": ("untouched", "edited"), "pull request": "open"},
            (Op.KEEP, Reason.PIPELINE_FAILED, False), "the good draft stays while functions fail"),
        ({"content": FAILING, "draft": ("untouched", "edited"), **REFUSED},
            (Op.KEEP, Reason.PIPELINE_FAILED, True),
            "the good draft stays while functions fail, and was rejected"),
        ({"content": FAILING, "draft": ("untouched", "edited")}, (Op.UPDATE, Reason.PIPELINE_FAILED, False),
            "the good draft stays while functions fail, and gets its pull request"),
        ({"content": ("new, with a conflict", "new, merged with a conflict")},
            (Op.UPDATE, Reason.UPSTREAM_CHANGED, True), "the draft is written and needs answers"),
        ({}, (Op.UPDATE, Reason.UPSTREAM_CHANGED, False), "the draft is written"),
    ],
    {
        "only an edited draft is merged with": {"draft": ("none", "untouched"), "content": MERGED},
        "without a draft nothing is its content": {"draft": "none", "content": STANDING[0]},
        "an edited draft is always merged with": {"draft": "edited",
            "content": ("new", "new, with a conflict", "new, functions failed", STANDING[0])},
        "without a draft main has not changed since": {"draft": "none", "main": "changed"},
        "without a branch no pull request is open": {"draft": "none", "pull request": "open"},
    },
)  # fmt: skip
OPEN_CONFLICT = (RenderConflict("a.yaml", "", "a", "0", "1", "2", "changed"),)
FAILED = ("Functions failed: set-image",)


def rendered(case: Case, draft: Draft | None) -> RenderedVariant:
    """Return the content of a case: rendered afresh, and merged with the edits of a draft."""
    name = case["content"]
    tree = ON_MAIN if name == "main's" else NEW
    tree = (draft.written or tree) if draft and name.startswith("the draft's") else tree
    fresh: Package | Blocked = Package(tree)
    blocked = Blocked(Reason.MERGE_CONFLICT, "conflict")
    if name == "blocked":
        fresh = blocked
    elif name == "new, with a conflict":
        fresh = Package(tree, conflicts=OPEN_CONFLICT)
    elif name == "new, functions failed":
        fresh = Package(tree, unready=FAILED, failed=True)
    anew, there = Package(EDITED), Package(draft.tree if draft else tree)
    merged: dict[str, Package | Blocked] = {
        "the draft's, merged anew": anew,
        "the draft's, its merge is blocked": blocked,
        "the draft's, merged with failed functions": replace(anew, unready=FAILED, failed=True),
        "new, merged without effect": there,
        "new, merged": anew,
        "new, merged with a conflict": replace(anew, conflicts=OPEN_CONFLICT),
        "new, a conflict waits in the draft": replace(there, conflicts=OPEN_CONFLICT),
        "new, merged with failed functions": replace(anew, unready=FAILED, failed=True),
        "new, its merge is blocked": blocked,
    }
    return RenderedVariant(WEB, fresh, merged.get(name), time=30)


def decided(case: Case) -> Decided:
    draft = None if case["draft"] == "none" else a_draft(behind=case["main"] == "changed", base_tree=ON_MAIN)
    if draft is not None and case["draft"] == "edited":
        draft = replace(draft, tree=oid("d8"), has_foreign_commits=True)
    content = rendered(case, draft)
    states = {"open": (a_pull(),), "closed": (a_pull(PullState.CLOSED),)}
    view = repository("edge", head=Commit(oid("e1"), 1))
    state = a_package(main_tree=ON_MAIN, drafts=(draft,) if draft else ())
    pulls = states.get(case["pull request"], ())
    target = PlanTarget(PACKAGE, view, state, owner=WEB, main_owner=WEB, draft=draft, pulls=pulls)
    annotations = {RETRY: "1"} if case["requested again"] == "yes" else {}
    source = Source(Location("web.yaml"))
    variant = a_desired_variant(source=source, annotations=annotations)
    moved = "web/v1 moved" if case["tag"] == "moved" else ""
    resolved = a_resolved(
        variant=variant,
        view=view.key,
        pin=a_pin(2),
        base=a_pin(1),
        local=ON_MAIN,
        draft=draft,
        draft_base=a_pin(1),
        inputs="same",
        moved=moved,
    )
    fresh = content.fresh.tree if isinstance(content.fresh, Package) else ""
    record = a_record(inputs="same", output_tree=(draft.written if draft else fresh) or "")
    inventory = replace(plain_world(views=(view,)), records={WEB: record})
    context = a_context(inventory, rendered=Rendered({WEB: content}))
    change = stateless(
        compose(Parts(decide_output(DraftCase(target, resolved, content, context, Op.UPDATE))))
    )
    check_effects(change, draft)
    return change.op, change.reason, change.waits


def check_effects(change: Change, draft: Draft | None) -> None:
    """What is kept or blocked has no effect, and what a person committed stays below what we write."""
    assert change.pending is (change.op not in {Op.KEEP, Op.BLOCK})
    for write in change.writes:
        if isinstance(write, WriteDraft) and draft is not None:
            assert (write.ref, write.expect) == (draft.ref, draft.tip.oid)
            assert write.onto == (draft.tip.oid if draft.append_only else oid("e1"))
        else:
            assert draft is None or not draft.append_only


@pytest.mark.parametrize("row", DRAFTS.rows, ids=str)
def test_draft_is_written_kept_or_closed_as_the_table_says(row: Row[Decided]) -> None:
    assert DRAFTS.mistakes(row, decided) == []


def test_every_open_pull_request_of_branches_that_go_is_closed_but_not_that_of_a_group() -> None:
    heads = ["drafts/web/b", "drafts/web/a", "reconciler/default/group/x/1"]
    pulls = (
        a_pull(head=heads[0], number=9),
        *(a_pull(head=head, number=number) for number, head in enumerate(heads)),
        a_pull(PullState.MERGED, head=heads[1], number=4),
        a_pull(head="drafts/web/stays", number=5),
    )
    goal = PlanTarget(PACKAGE, repository("edge"), a_package(), pulls=pulls)

    closed = close_pulls(goal, [f"refs/heads/{head}" for head in heads], "why")

    assert closed == tuple(
        ClosePull(n, head, "why") for n, head in ((0, heads[0]), (1, heads[1]), (9, heads[0]))
    )


@pytest.mark.parametrize("state", [None, *PullState])
@pytest.mark.parametrize("open_on", OpenOn)
@pytest.mark.parametrize("lifecycle", [None, Lifecycle.DRAFT, Lifecycle.PROPOSED])
def test_pull_request_is_a_draft_until_it_is_proposed_or_people_say_otherwise(
    lifecycle: Lifecycle | None, open_on: OpenOn, state: PullState | None
) -> None:
    draft = a_draft(lifecycle=lifecycle) if lifecycle else None
    pulls = () if state is None else (a_pull(state, head="drafts/web/w1", number=7, draft=False),)
    goal = PlanTarget(PACKAGE, repository("edge"), a_package(), pulls=pulls)
    is_open, proposed = state is PullState.OPEN, lifecycle is Lifecycle.PROPOSED

    pull = wanted_pull(goal, "refs/heads/drafts/web/w1", open_on=open_on, proposed=is_proposed(draft))

    if open_on is OpenOn.PROPOSE and not (proposed or is_open):
        assert pull is None
    else:
        assert pull is not None
        assert (pull.number, pull.draft) == ((7, False) if is_open else (0, not proposed))
