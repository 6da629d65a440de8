"""Owners of packages, our drafts of them, and what main has of those; also under renamed Repositories."""

from functools import cache

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import GROUP, PackageVariantSet
from reconciler.base.errors import Location
from reconciler.expand.variants import owner_key
from reconciler.inventory.inventory import (
    Commit,
    Draft,
    Inventory,
    PullRequest,
    PullState,
    Source,
    Sourced,
    UnpublishedRevision,
)
from reconciler.inventory.standing import Removal
from reconciler.names.ids import Lifecycle, ObjectKey, ObjectName, Oid, PackageKey
from reconciler.policy import Policy
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.ownership import (
    SUSPENDED,
    deletion_policy,
    find_owner,
    find_pause,
    is_foreign,
    is_merged,
    may_stand_behind,
    our_drafts,
)
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.plan_values import a_desired_variant, a_record
from tests.support.sets import a_package, package_set, repository, select, variant
from tests.support.sets import world as plain_world
from tests.support.values import replace


def a_set(*policies: str | None) -> Sourced[PackageVariantSet]:
    """Return a set with a target for each deletion policy."""
    return package_set(targets=[select({"deletionPolicy": policy} if policy else {}) for policy in policies])


WEB = ObjectName("default", "web")
HERE = PackageKey("host/edge", "site/web")
OWNERS: DecisionTable[ObjectName | None] = DecisionTable(
    {
        "Kptfile": ("none", "unreadable", "readable"),
        "owner": ("", "fleet/default/web", "other/default/web", "fleet//web", "fleet/default/", "fleet/web"),
        "location": ("this package", "another package", "a Repository of another namespace", "unknown", ""),
        "record": ("none", "this package", "another package", "the same path of another repository"),
    },
    [
        ({"Kptfile": ("none", "unreadable")}, None, "nothing is known of an owner"),
        ({"owner": ("", "other/default/web", "fleet//web", "fleet/default/", "fleet/web")}, None,
            "no variant of this instance is named"),
        ({"location": "this package"}, WEB, "the owner is where it says"),
        ({"record": "this package"}, WEB, "the Repository was renamed, and this is its recorded package"),
        ({}, None, "it is a copy"),
    ],
)  # fmt: skip


@cache
def edges() -> Inventory:
    views = (
        repository("edge", directory="site"),
        repository("west", directory="site"),
        repository("edge", namespace="other", directory="site"),
    )
    return plain_world(views=views, policy=Policy(instance="fleet"))


def record_at(url: str, path: str, manifest: str = "web.yaml") -> PackageVariantRecord:
    return a_record(namespace=WEB.namespace, name=WEB.name, manifest=manifest, url=url, path=path)


def owner_of(case: Case) -> ObjectName | None:
    location = {
        "this package": "edge/web",
        "another package": "edge/api",
        # The Repository of that name in the owner's namespace is another one.
        "a Repository of another namespace": "west/web",
        "unknown": "gone/web",
        "": "",
    }
    records = {
        "this package": record_at(*HERE),
        "another package": record_at("host/edge", "site/api"),
        "the same path of another repository": record_at("host/west", "site/web"),
    }
    record = records.get(case["record"])
    header = KptfileHeader(owner=case["owner"], location=location[case["location"]])
    if case["Kptfile"] == "unreadable":
        header = replace(header, error="not YAML")
    inventory = replace(edges(), records={WEB: record} if record else {})
    return find_owner(header if case["Kptfile"] != "none" else None, HERE, inventory)


MERGED: DecisionTable[bool] = DecisionTable(
    {
        "draft": ("changes the package", "changes nothing", "has no commit"),
        "main now": ("the draft", "something else", "nothing"),
        "main had the draft": ("never", "before the draft began", "since the draft began"),
        "pull request": ("none", "open", "closed", "merged", "merged at an older head", "merged elsewhere"),
    },
    [
        ({"main now": "the draft"}, True, "main has the draft's content"),
        ({"draft": "has no commit"}, True, "nothing is left to merge"),
        ({"pull request": "merged"}, True, "the forge merged this very commit"),
        ({"draft": "changes the package", "main had the draft": "since the draft began"}, True,
            "it was squashed or rebased, and main moved on"),
        ({}, False, "main does not have it"),
    ],
    {
        "a draft that changes nothing began at its own content": {"draft": "changes nothing",
            "main had the draft": "before the draft began"},
    },
)  # fmt: skip
OLD, DRAFTED, OTHER, TIP = (Oid(digit * 40) for digit in "abcd")
HEAD = "drafts/site/web/packagevariant-2"


def a_draft(workspace: str = "packagevariant-2", **fields: object) -> Draft:
    given: dict[str, object] = {
        "path": HERE.path,
        "workspace": workspace,
        "lifecycle": Lifecycle.DRAFT,
        "ref": f"refs/heads/drafts/{HERE.path}/{workspace}",
        "tip": Commit(TIP, 1),
        "tree": DRAFTED,
        "header": KptfileHeader(owner="fleet/default/web", location="edge/web"),
        "base": Oid("e" * 40),
        "base_tree": OLD,
        **fields,
    }
    return Draft(**given)


def a_pull(state: PullState, head: str = HEAD, oid: str = TIP) -> PullRequest:
    return PullRequest(head, "main", "", "", number=1, state=state, head_oid=oid)


def merged(case: Case) -> bool:
    draft = a_draft()
    if case["draft"] == "changes nothing":
        draft = replace(draft, base_tree=DRAFTED)
    elif case["draft"] == "has no commit":
        draft = replace(draft, base=TIP)
    start = draft.base_tree or OLD
    states = {
        "never": [OTHER, start, OTHER],
        "before the draft began": [DRAFTED, start, OTHER],
        "since the draft began": [start, OTHER, start, DRAFTED, OTHER],
    }[case["main had the draft"]]
    main = {"the draft": DRAFTED, "something else": OTHER, "nothing": None}[case["main now"]]
    pulls = {
        "none": (),
        "open": (a_pull(PullState.OPEN),),
        "closed": (a_pull(PullState.CLOSED),),
        "merged": (a_pull(PullState.CLOSED, "another"), a_pull(PullState.MERGED)),
        "merged at an older head": (a_pull(PullState.MERGED, oid="f" * 40),),
        "merged elsewhere": (a_pull(PullState.MERGED, "drafts/site/api/packagevariant-2"),),
    }[case["pull request"]]
    history = tuple(
        UnpublishedRevision(Commit(Oid(f"{n}" * 40), n), tree, draft.header) for n, tree in enumerate(states)
    )
    return is_merged(draft, a_package(HERE.path, main_tree=main, unpublished=history), pulls)


UNCERTAIN: DecisionTable[bool] = DecisionTable(
    {
        "owner": ("stalled", "not stalled"),
        "desired": ("yes", "no"),
        "record": ("none", "of a readable file", "of a broken file"),
        "manifests": ("read", "a path is unreadable"),
    },
    [
        ({"owner": "stalled"}, True, "its manifest is not understood"),
        ({"desired": "yes"}, False, "its manifest is read"),
        ({"record": "none"}, False, "nothing tells where it was declared"),
        ({"record": "of a broken file"}, True, "its file may declare it"),
        ({"manifests": "a path is unreadable"}, True, "its manifest may be there"),
        ({}, False, "its file was read, and does not declare it"),
    ],
)


def uncertain(case: Case) -> bool:
    stalled = {ObjectKey(GROUP, "PackageVariant", *WEB)} if case["owner"] == "stalled" else set()
    record = record_at(*HERE, manifest="broken.yaml" if "broken" in case["record"] else "web.yaml")
    inventory = edges()
    control = replace(
        inventory.control, readable=case["manifests"] == "read", broken=frozenset({"broken.yaml"})
    )
    records = {} if case["record"] == "none" else {WEB: record}
    desired = {WEB} if case["desired"] == "yes" else set()
    return may_stand_behind(WEB, desired, stalled, replace(inventory, control=control, records=records))


PAUSED: DecisionTable[str] = DecisionTable(
    {
        "suspend": ("yes", "no"),
        "Repository": ("true", "false", "True", "yes", ""),
        "variant": ("paused", "not paused", "none"),
    },
    [
        ({"suspend": "yes"}, SUSPENDED, "the configuration suspends every change"),
        ({"Repository": "true"}, "Paused by annotation", "the Repository is paused"),
        ({"variant": "paused"}, "Paused by annotation", "the variant is paused"),
        ({}, "", "any other text pauses nothing"),
    ],
)


def pause(case: Case) -> str:
    variant = a_desired_variant(
        key=WEB, source=Source(Location("web.yaml")), paused=case["variant"] == "paused"
    )
    inventory = replace(edges(), policy=Policy(suspend=case["suspend"] == "yes"))
    view = repository("edge", annotations={"reconciler.dev/paused": case["Repository"]})
    return find_pause(view, None if case["variant"] == "none" else variant, inventory)


FOREIGN: DecisionTable[bool] = DecisionTable(
    {
        "owner": ("", "fleet/default/web", "other/default/web", "fleet-2/default/web", "none"),
        "location": ("edge/site/web", "theirs/web", "theirs/other", "theirs/b", ""),
    },
    [
        ({"owner": ("", "none", "fleet/default/web")}, False, "no other instance owns it"),
        ({"location": ("edge/site/web", "theirs/web")}, True, "another instance has it here"),
        ({}, False, "it is a copy of another instance's package"),
    ],
)


def foreign(case: Case) -> bool:
    header = KptfileHeader(owner=case["owner"], location=case["location"])
    return is_foreign(None if case["owner"] == "none" else header, HERE.path, "fleet")


OURS: DecisionTable[bool] = DecisionTable(
    {
        "workspace": ("packagevariant-2", "packagevariant-x", "theirs"),
        "written by": ("us", "a person"),
        "pull request": ("none", "open", "closed", "open for another branch", "merged",
            "closed at an older commit", "merged at an older commit"),
        "owner": ("ours", "another instance"),
    },
    [
        ({"workspace": ("packagevariant-x", "theirs")}, False, "we name workspaces otherwise"),
        ({"owner": "another instance"}, False, "it has no owner of this instance"),
        ({"written by": "us"}, True, "we wrote it"),
        ({"pull request": "open"}, True, "a person squashed our commits, and its pull request is open"),
        ({"pull request": ("closed", "merged")}, True,
            "a person squashed our commits or main has them, and its pull request ended at this commit"),
        ({}, False, "a person wrote it"),
    ],
)  # fmt: skip


def ours(case: Case) -> bool:
    owner = "fleet/default/web" if case["owner"] == "ours" else "other/default/web"
    draft = a_draft(
        case["workspace"],
        written=DRAFTED if case["written by"] == "us" else None,
        header=KptfileHeader(owner=owner, location="edge/web"),
    )
    head = draft.ref.removeprefix("refs/heads/")
    pulls = {
        "none": (),
        "open": (a_pull(PullState.OPEN, head, "f" * 40),),
        "closed": (a_pull(PullState.CLOSED, head),),
        "open for another branch": (a_pull(PullState.OPEN, "another"),),
        "merged": (a_pull(PullState.MERGED, head),),
        "closed at an older commit": (a_pull(PullState.CLOSED, head, "f" * 40),),
        "merged at an older commit": (a_pull(PullState.MERGED, head, "f" * 40),),
    }[case["pull request"]]
    inventory = replace(edges(), pulls={HERE.url: pulls})
    package = a_package(HERE.path, drafts=(draft,))
    return our_drafts(package, inventory.repositories[ObjectName("default", "edge")], inventory) == (draft,)


TABLES = {
    "owner": (OWNERS, owner_of),
    "merged draft": (MERGED, merged),
    "uncertain owner": (UNCERTAIN, uncertain),
    "pause": (PAUSED, pause),
    "other instance": (FOREIGN, foreign),
    "our draft": (OURS, ours),
}


@pytest.mark.parametrize(
    ("name", "row"), [pytest.param(n, r, id=f"{n}: {r}") for n, (t, _) in TABLES.items() for r in t.rows]
)
def test_ownership_follows_its_tables(name: str, row: Row[object]) -> None:
    table, decide = TABLES[name]
    assert table.mistakes(row, decide) == []


@pytest.mark.parametrize(
    ("manifest", "recorded", "policy"),
    [
        (None, "orphan", "orphan"),
        (None, "delete", "delete"),
        (variant(), "orphan", "delete"),
        (variant(deletionPolicy="orphan"), "delete", "orphan"),
        (a_set("orphan", "orphan"), "delete", "orphan"),
        (a_set("orphan", None), "delete", "delete"),
        (a_set("orphan", "delete"), "orphan", "orphan"),
        (a_set(None), "orphan", "orphan"),
        (a_set(), "delete", "delete"),
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_policy_at_the_end_is_that_of_the_last_manifest(manifest, recorded, policy, is_there) -> None:
    """A set may be there without the target; a variant that is there is not at its end."""
    is_set = manifest is not None and manifest.manifest.kind == "PackageVariantSet"
    record = a_record(name="mine", set_name="fleet" if is_set else "", deletion_policy=recorded)
    last = manifest and Removal("a.yaml", Oid("e" * 40), last=manifest.manifest)
    removed = {owner_key(record): last} if last and not (is_there and is_set) else {}
    other = package_set("other", targets=[select({"deletionPolicy": "orphan"})])
    inventory = plain_world(other, *([manifest] if is_set and is_there else []))

    inventory = replace(inventory, control=replace(inventory.control, removed=removed))

    assert deletion_policy(record, inventory) == policy
