"""Digests of inputs: everything that rendering reads makes another one, and nothing else does (D15)."""

from collections.abc import Callable
from typing import Any

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import InjectionSelector, PackageContext, PackageVariantSpec, Pipeline
from reconciler.base.errors import Location
from reconciler.expand import DesiredVariant
from reconciler.inventory.inventory import Inventory, RepositoryView, Source
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.policy import FunctionPolicy, OnConflict
from reconciler.records.state import ConflictRecord
from reconciler.resolve.resolution import Pin
from reconciler.resolve.up_to_date import (
    find_settled,
    has_charts,
    has_no_edits,
    index_objects,
    input_facts,
    inputs_digest,
    told_facts,
)
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.plan_values import (
    PACKAGE,
    WEB,
    a_desired_variant,
    a_draft,
    a_pin,
    a_record,
    a_resolved,
    oid,
)
from tests.support.sets import a_package, registered, repository, snapshot, world
from tests.support.values import replace

Inputs = tuple[DesiredVariant, RepositoryView, Pin, Inventory]
KIND = ("hr.example.com/v1", "Team")


def a_team(name: str, code: str) -> SnapshotObject:
    return SnapshotObject(*KIND, "default", name, {}, {}, {"spec": {"code": code}}, Location("s.yaml"))


def a_definition(*served: str, **spec: Any) -> SnapshotObject:
    versions = [{"name": name} for name in served]
    spec |= {"group": "hr.example.com", "names": {"kind": "Team"}, "versions": versions}
    kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    return SnapshotObject(*kind, "", "teams", {}, {}, {"spec": spec}, Location("s.yaml"))


def inputs() -> Inputs:
    spec = PackageVariantSpec(injectors=[InjectionSelector(name="blue")])
    variant = a_desired_variant(spec=spec, source=Source(Location("web.yaml"), 5), times=(5,))
    view = repository("edge")
    objects = snapshot(a_team("blue", "1"), a_team("red", "1"))
    return variant, view, a_pin(1), replace(world(views=(view,)), snapshot=objects)


def digest(given: Inputs) -> str:
    variant, view, pin, inventory = given
    objects = index_objects(inventory.snapshot)
    return inputs_digest(input_facts(variant, view, PACKAGE, pin, inventory, objects=objects))


def with_spec(**fields: Any) -> Callable[[Inputs], Inputs]:
    def changed(given: Inputs) -> Inputs:
        variant, *rest = given
        return (replace(variant, spec=variant.spec.model_copy(update=fields)), *rest)

    return changed


def with_variant(**fields: Any) -> Callable[[Inputs], Inputs]:
    return lambda given: (replace(given[0], **fields), *given[1:])


def with_pin(**fields: Any) -> Callable[[Inputs], Inputs]:
    return lambda given: (*given[:2], replace(given[2], **fields), given[3])


def with_policy(**fields: Any) -> Callable[[Inputs], Inputs]:
    return lambda given: (*given[:3], replace(given[3], policy=replace(given[3].policy, **fields)))


def with_objects(*objects: SnapshotObject, **fields: Any) -> Callable[[Inputs], Inputs]:
    return lambda given: (*given[:3], replace(given[3], snapshot=snapshot(*objects, **fields)))


def deployed(given: Inputs) -> Inputs:
    view = given[1]
    spec = view.manifest.spec.model_copy(update={"deployment": True})
    return given[0], replace(view, manifest=view.manifest.model_copy(update={"spec": spec})), *given[2:]


def with_charts(
    kubernetes: str = "1.30", *, is_draft: bool = False, **fields: Any
) -> Callable[[Inputs], Inputs]:
    header = KptfileHeader(has_charts=True)
    drafts = (a_draft(header=None), a_draft(header=header)) if is_draft else ()
    package = a_package("web", main_header=None if is_draft else header, drafts=drafts)
    blueprints = registered("blueprints", packages={"web": package})

    def changed(given: Inputs) -> Inputs:
        variant, view, pin, inventory = with_spec(injectors=None)(given)
        objects = replace(inventory.snapshot, versions={"kubernetes": kubernetes}, **fields)
        views = {registration.key: registration for registration in (view, blueprints)}
        return variant, view, pin, replace(inventory, repositories=views, snapshot=objects)

    return changed


READ: dict[str, Callable[[Inputs], Inputs]] = {
    "package context": with_spec(package_context=PackageContext(data={"a": "b"})),
    "pipeline": with_spec(pipeline=Pipeline(mutators=[])),
    "injectors": with_spec(injectors=[InjectionSelector(name="red")]),
    "conflict policy of the variant": with_variant(annotations={"reconciler.dev/on-conflict": "local"}),
    "another conflict policy": with_variant(annotations={"reconciler.dev/on-conflict": "upstream"}),
    "conflict policy of fields": with_variant(annotations={"reconciler.dev/on-conflict-fields": "a: local"}),
    "default conflict policy": with_policy(on_conflict=OnConflict.LOCAL),
    "another default conflict policy": with_policy(on_conflict=OnConflict.UPSTREAM),
    "functions": with_policy(functions=FunctionPolicy(compatible=True)),
    "instance": with_policy(instance="other"),
    "upstream commit": with_pin(commit=a_pin(2).commit),
    "upstream tree": with_pin(tree=oid("c9")),
    "upstream name": with_pin(ref="web/v9"),
    "upstream number": with_pin(revision=9),
    "upstream address": with_pin(repo="https://elsewhere/blueprints"),
    "deployment": deployed,
    "named object": with_objects(a_team("blue", "2"), a_team("red", "1")),
    "served APIs": with_objects(a_team("blue", "1"), a_team("red", "1"), served=frozenset({KIND})),
    "kinds": with_objects(),
    "served versions": with_objects(a_team("blue", "1"), a_team("red", "1"), a_definition("v1", "v2")),
    "fewer served versions": with_objects(a_team("blue", "1"), a_team("red", "1"), a_definition("v1")),
    "conversion": with_objects(a_team("blue", "1"), a_team("red", "1"),
        a_definition("v1", "v2", conversion={"strategy": "Webhook"})),
    "package": with_variant(key=WEB._replace(name="other")),
    "namespace": with_variant(key=WEB._replace(namespace="other")),
    "upstream package": with_pin(package=PACKAGE),
    "mutators of functions": with_spec(mutators=[]),
    "snapshot of the cluster that is not there": lambda given: (given[0], replace(given[1], cluster="prod"),
        given[2], replace(given[3], snapshot=snapshot(clusters={"prod": Snapshot(cluster="prod",
        path="prod")}))),
    "Kubernetes of charts": with_charts(),
    "Kubernetes of charts in a draft": with_charts("1.31", is_draft=True),
    "served APIs of charts": with_charts(served=frozenset({KIND})),
}  # fmt: skip
UNREAD: dict[str, Callable[[Inputs], Inputs]] = {
    "nothing": lambda given: given,
    "times": with_variant(times=(99,), source=Source(Location("other.yaml"), 99)),
    "other annotations": with_variant(annotations={"reconciler.dev/retry": "1"}),
    "adoption and deletion": with_spec(adoption_policy="adoptExisting", deletion_policy="orphan"),
    "an object that no injector names": with_objects(a_team("blue", "1"), a_team("red", "2")),
    "time of the snapshot": with_objects(a_team("blue", "1"), a_team("red", "1"), time=99, taken=99),
    "suspension": with_policy(suspend=True),
    "Kubernetes without charts": with_objects(
        a_team("blue", "1"), a_team("red", "1"), versions={"kubernetes": "1.31"}
    ),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_rendering_does_not_read_leaves_the_digest(name: str) -> None:
    assert digest(UNREAD[name](inputs())) == digest(inputs())


def test_everything_that_rendering_reads_makes_a_digest_of_its_own() -> None:
    digests = {name: digest(change(inputs())) for name, change in READ.items()}

    assert len({*digests.values(), digest(inputs())}) == len(READ) + 1
    assert inputs_digest({"a": [1, 2], "b": 3}) == inputs_digest({"b": 3, "a": [1, 2]})
    assert inputs_digest({"a": [1, 2], "b": 3}) != inputs_digest({"a": [2, 1], "b": 3})


SETTLED: DecisionTable[str] = DecisionTable(
    {
        "record": ("none", "of these inputs", "of other inputs", "without an output"),
        "functions": ("ran", "failed"),
        "main": ("as recorded", "as the output", "other", "none"),
        "recorded main": ("a package", "none"),
        "draft": ("none", "written as the output", "is the output", "other", "a person's"),
        "conflicts": ("none", "conflicts", "answers"),
    },
    [
        ({"record": ("none", "of other inputs", "without an output")}, "", "nothing is recorded of it"),
        ({"functions": "failed"}, "", "what could not run may run now"),
        ({"main": "other"}, "", "main is not what was merged into"),
        ({"main": "as recorded", "recorded main": "none"}, "", "main is new"),
        ({"main": "none", "recorded main": "a package"}, "", "main is gone"),
        ({"draft": ("a person's", "is the output"), "conflicts": ("conflicts", "answers")}, "",
            "people answer in the draft"),
        ({"main": "as the output", "conflicts": "conflicts"}, "", "functions waited for the answers"),
        ({"main": "as the output"}, "output", "the output is on main"),
        ({"draft": ("written as the output", "is the output")}, "output", "the output is in the draft"),
        ({"draft": "a person's"}, "", "what a person made of the draft is to be judged"),
        ({}, "", "the output is nowhere"),
    ],
)  # fmt: skip

OUTPUT, MERGED = oid("f1"), oid("b1")
RECORDS = {
    "of these inputs": a_record(inputs="now", output_tree=OUTPUT, local_tree=MERGED),
    "of other inputs": a_record(inputs="then", output_tree=OUTPUT, local_tree=MERGED),
    "without an output": a_record(inputs="now", output_tree="", local_tree=MERGED),
}
ASKED = ConflictRecord(path="a.yaml", field="spec", upstream="1", local="2")
DRAFTS = {
    "written as the output": a_draft(tree=OUTPUT, written=OUTPUT),
    "is the output": a_draft(tree=OUTPUT, written=oid("d8"), has_foreign_commits=True),
    "other": a_draft(tree=oid("d9"), written=oid("d9")),
    "a person's": a_draft(tree=oid("d9"), written=OUTPUT, has_foreign_commits=True),
}


def settled(case: Case) -> str:
    record = RECORDS.get(case["record"])
    if record is not None:
        lists = {"conflicts": {"conflicts": (ASKED,)}, "answers": {"answers": (ASKED,)}}
        record = replace(
            record,
            failed=case["functions"] == "failed",
            local_tree="" if case["recorded main"] == "none" else record.local_tree,
            **lists.get(case["conflicts"], {}),
        )
    main = {"as recorded": MERGED, "as the output": OUTPUT, "other": oid("b9"), "none": None}[case["main"]]
    resolved = a_resolved(inputs="now", local=main, draft=DRAFTS.get(case["draft"]))
    return "output" if find_settled(resolved, record) == OUTPUT else ""


@pytest.mark.parametrize("row", SETTLED.rows, ids=str)
def test_package_is_settled_as_the_table_says(row: Row[str]) -> None:
    assert SETTLED.mistakes(row, settled) == []


def test_record_has_small_facts_as_they_are_and_large_ones_as_short_digests() -> None:
    facts = {"engine": 3, "instance": "fleet", "policies": {"default": "ask"}, "upstream": ["x"]}

    recorded = told_facts(facts, "of these inputs", None)

    policies = inputs_digest({"default": "ask"})[:16]
    assert recorded == {"engine": "3", "instance": "fleet", "policies": policies}


CHARTS, PLAIN = KptfileHeader(has_charts=True), KptfileHeader()


@pytest.mark.parametrize(
    ("package", "has_some"),
    [
        ({"main_header": CHARTS}, True),
        ({"main_header": PLAIN, "drafts": (a_draft(header=PLAIN), a_draft(header=CHARTS))}, True),
        ({"main_header": PLAIN, "drafts": (a_draft(header=PLAIN),)}, False),
        ({"main_header": None}, False),
    ],
)
def test_charts_of_a_draft_count_like_those_of_main(package: dict[str, Any], *, has_some: bool) -> None:
    view = registered("blueprints", packages={"web": a_package("web", **package)})
    variant, _, pin, inventory = inputs()

    assert has_charts(pin, variant, replace(inventory, repositories={view.key: view})) is has_some
    assert not has_charts(pin, variant, inventory)


@pytest.mark.parametrize(
    ("record", "resolved", "is_unedited"),
    [
        ({}, {}, True),
        (None, {}, False),
        ({}, {"base": None}, False),
        ({}, {"local": None}, False),
        ({}, {"base": a_pin(2)}, False),
        ({"upstream_tree": oid("c9")}, {}, False),
        ({"output_tree": oid("b9")}, {}, False),
        ({"unedited": (oid("b8"),)}, {}, False),
        ({"unedited": None}, {}, False),
        ({"unedited": (oid("b8"), oid("b1"))}, {}, True),
        ({"spec": {"injectors": [{"name": "blue"}]}}, {}, False),
    ],
)
def test_main_is_replaced_only_where_it_is_what_was_made_of_the_base(record, resolved, is_unedited) -> None:
    made = {"upstream_tree": a_pin(1).tree, "output_tree": oid("b1"), "unedited": (oid("b1"),)}
    outcome = a_resolved(**{"pin": a_pin(2), "base": a_pin(1), "local": oid("b1"), **resolved})

    assert (
        has_no_edits(outcome, {}, None if record is None else a_record(**{**made, **record})) is is_unedited
    )
