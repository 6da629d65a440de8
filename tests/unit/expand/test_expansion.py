"""Expansion as a whole: targets, templates, names, who stalls and why."""

from collections import ChainMap
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand import Desired, expand
from reconciler.expand.expansion import empty_selections
from reconciler.expand.variants import set_key, variant_key
from reconciler.inventory.inventory import Inventory, Source
from reconciler.inventory.snapshot import Snapshot
from reconciler.krm.yaml import load_documents
from reconciler.names.ids import ObjectName
from reconciler.names.problems import Problem
from reconciler.plan.set_diff import diff_variants
from reconciler.policy import Limits, Policy
from reconciler.policy.rollouts import RolloutPolicy, Wave
from tests.support.sets import (
    FIVE_EXPRESSIONS,
    KIND,
    a_package,
    blueprints,
    cluster,
    fleet,
    package_set,
    record_all,
    repository,
    select,
    snapshot,
    source,
    variant,
    world,
)
from tests.support.values import replace

BY_NAME = {"downstream": {"repoExpr": "'edge'", "packageExpr": "target.name"}}
THREE = (cluster("b", region="eu"), cluster("a", region="eu"), cluster("c", region="us"))


def names(desired: Desired) -> list[str]:
    return [v.key.name for v in desired.variants]


def conditions(desired: Desired, name: str = "fleet") -> dict[str, tuple[str, str, str]]:
    conditions = desired.conditions[set_key(ObjectName("default", name))]
    return {c.type: (c.status, c.reason, c.message) for c in conditions}


class Case(NamedTuple):
    reason: str
    targets: list[dict[str, Any]]
    want: list[str]


CASES = [
    Case("explicit repositories default to the upstream package", [{"repositories": [{"name": "edge"}]}],
        ["fleet-edge-app"]),
    Case("explicit packages", [{"repositories": [{"name": "edge", "packageNames": ["x", "y"]}]}],
        ["fleet-edge-x", "fleet-edge-y"]),
    Case("a repository selector goes by labels", [{"repositorySelector": {"matchLabels": {"tier": "edge"}}}],
        ["fleet-edge-app"]),
    Case("an object selector goes by labels", [select(BY_NAME, region="eu")],
        ["fleet-edge-a", "fleet-edge-b"]),
    Case("targets add up", [select(BY_NAME, region="us"), {"repositories": [{"name": "edge"}]}],
        ["fleet-edge-app", "fleet-edge-c"]),
    Case("objectSelector.name is honoured",
        [{"objectSelector": {"apiVersion": KIND[0], "kind": KIND[1], "name": "b"}, "template": BY_NAME}],
        ["fleet-edge-b"]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_targets(case: Case) -> None:
    views = (
        blueprints(),
        repository("edge", labels={"tier": "edge"}),
        repository("core", labels={"tier": "core"}),
    )

    desired = expand(world(package_set(targets=case.targets), views=views, snapshot=snapshot(*THREE)))

    assert names(desired) == case.want
    assert conditions(desired)["Ready"][:2] == ("True", "Reconciled")


@pytest.mark.parametrize("namespace", ["default", "other"])
def test_selectors_see_own_namespace_and_cluster_scoped_objects(namespace: str) -> None:
    held = snapshot(*(cluster(f"in-{name or 'all'}", namespace=name) for name in ("default", "other", "")))
    complete = frozenset({(kind, namespace) for kind, _ in held.complete})
    views = tuple(repository(name, namespace=namespace) for name in ("edge", "blueprints"))
    views = (replace(views[1], packages=blueprints().packages), views[0])
    pvs = package_set(targets=[select(BY_NAME)], namespace=namespace)

    desired = expand(world(pvs, snapshot=replace(held, complete=complete), views=views))

    assert names(desired) == ["fleet-edge-in-all", f"fleet-edge-in-{namespace}"]


def test_generated_variant_has_defaults_owner_and_input_times() -> None:
    held = snapshot(*THREE, time=77)
    pvs = package_set(targets=[select(BY_NAME, region="us")], at=source(time=55))

    (generated,) = expand(world(pvs, snapshot=held)).variants

    assert (generated.spec.adoption_policy, generated.spec.deletion_policy) == ("adoptNone", "delete")
    assert generated.set_key == pvs.key
    assert generated.times == (55, 77)


def test_variant_keeps_its_uid_and_mutators_are_those_of_its_pipeline() -> None:
    (generated,) = expand(world(variant(metadata={"uid": "given"}, mutators=[{"image": "x"}]))).variants

    assert (generated.uid, generated.spec.mutators) == ("given", None)
    assert generated.spec.pipeline is not None
    assert [f.image for f in generated.spec.pipeline.mutators or ()] == ["x"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("revision", 0, "must be 1 or greater, not 0"),
        ("revision", -2, "must be 1 or greater, not -2"),
        ("revision", "v0", "must be 1 or greater, not 0"),
        ("workspaceName", "${BRANCH}", "contains the variable ${BRANCH}, which nothing substitutes"),
        ("workspaceName", "{{ branch }}", "contains the variable {{ branch }}, which nothing substitutes"),
    ],
)
def test_upstream_that_names_no_revision_is_refused(field: str, value: int | str, message: str) -> None:
    upstream = {"repo": "blueprints", "package": "app", "workspaceName": "v1", field: value}

    desired = expand(world(variant(upstream=upstream)))

    assert desired.variants == ()
    assert [p.message for p in desired.problems] == [f"spec.upstream.{field} {message}"]


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ({"revision": -1}, {"branch": "main"}),
        ({"revision": "main"}, {"branch": "main"}),
        ({"workspaceName": "main"}, {"branch": "main"}),
        ({"revision": -1, "workspaceName": "main"}, {"branch": "main"}),
        ({"revision": "main", "workspaceName": "main"}, {"branch": "main"}),
        ({"revision": -1, "workspaceName": "v1"}, {"workspaceName": "v1"}),
        ({"revision": "v1.2.0"}, {"workspaceName": "v1.2.0"}),
        ({"revision": "v1"}, {"revision": 1}),
        ({"workspaceName": "", "tag": "v1"}, {"tag": "v1"}),
        ({"workspaceName": "main", "tag": "", "version": ""}, {"branch": "main"}),
        ({"workspaceName": "main", "revision": 1}, {"workspaceName": "main", "revision": 1}),
    ],
)
def test_upstream_means_what_porch_means_by_it(selectors: dict[str, Any], expected: dict[str, Any]) -> None:
    upstream = {"repo": "blueprints", "package": "app", **selectors}

    (authored,) = expand(world(variant(upstream=upstream))).variants

    assert authored.spec.upstream is not None
    found = authored.spec.upstream.model_dump(exclude_none=True)
    assert found == {"repo": "blueprints", "package": "app", **expected}


def test_workspace_of_a_revision_comes_before_the_branch_of_that_name() -> None:
    upstream = {"repo": "blueprints", "package": "app", "workspaceName": "main"}
    view = blueprints()
    (first, *_) = view.packages["app"].published
    named = replace(view, packages={"app": a_package("app", published=(replace(first, workspace="main"),))})

    (authored,) = expand(world(variant(upstream=upstream), views=(named, repository("edge")))).variants

    assert authored.spec.upstream is not None
    assert authored.spec.upstream.model_dump(exclude_none=True) == upstream


def test_revision_and_workspace_that_differ_are_no_name_of_one_revision() -> None:
    upstream = {"repo": "blueprints", "package": "app", "revision": "main", "workspaceName": "v1"}

    with pytest.raises(ValidationError, match=r"upstream\.revision\n  Input should be a valid integer"):
        variant(upstream=upstream)


EVERYTHING = (
    "spec.upstream is a required field; spec.targets[0] must specify one of `repositories`,"
    " `repositorySelector`, or `objectSelector`; spec.targets[0].template.adoptionPolicy can only be"
    ' "adoptNone" or "adoptExisting"'
)


def test_invalid_set_has_all_messages_of_porch() -> None:
    desired = expand(world(package_set(spec={"targets": [{"template": {"adoptionPolicy": "x"}}]})))

    assert conditions(desired)["Stalled"] == ("True", "ValidationError", EVERYTHING)
    assert len(desired.problems) == 3
    assert desired.stalled == {set_key(ObjectName("default", "fleet"))}
    assert desired.targets == {}


def test_invalid_variant_stalls_alone() -> None:
    desired = expand(world(variant("bad", downstream={}), variant("good")))

    assert names(desired) == ["good"]
    conditions = {
        c.type: (c.status, c.reason) for c in desired.conditions[variant_key(ObjectName("default", "bad"))]
    }
    assert conditions == {"Stalled": ("True", "ValidationError"), "Ready": ("False", "Error")}


class Marks:
    """A manifest in which each field has a line of its own, and each character its column."""

    def mark(self, path: tuple[str | int, ...]) -> tuple[int, int]:
        return line_of(*path), 1

    def mark_inside(self, path: tuple[str | int, ...], offset: int) -> tuple[int, int]:
        return line_of(*path), offset + 2


def line_of(*path: str | int) -> int:
    return sum(map(ord, "/".join(map(str, path))))


class Stall(NamedTuple):
    reason: str
    world: Inventory
    condition: str
    problem: Reason
    message: str
    path: tuple[str | int, ...]
    hint: str


def single_set(target: dict[str, Any], **fields: Any) -> Inventory:
    return world(package_set(targets=[target]), **fields)


def followed(upstream: dict[str, Any]) -> Inventory:
    return world(package_set(spec={"upstream": upstream, "targets": [EDGE]}))


EDGE = {"repositories": [{"name": "edge", "packageNames": ["mine"]}]}
FIRST = ("spec", "targets", 0)
UNREAD = Problem(
    Location("repositories.yaml", 3), Reason.REPOSITORY_UNAVAILABLE, "Connection refused", "Wait"
)
REFUSED = Problem(Location("repositories.yaml", 3), Reason.REPOSITORY_REFUSED, "Two addresses", "Correct it")
STALLED = frozenset({repository("gone").owner})
UNSERVED = 'no matches for kind "Cluster" in version "example.dev/v1"'
IMPORT = "import one with `reconciler snapshot import"
SERVE = (
    "Install the CustomResourceDefinition of Cluster.example.dev in the cluster, or list the kind when the "
    "snapshot is imported: --kinds Cluster.example.dev."
)
REGISTER = "Register it as a Repository object in the set's namespace."
STALLS = [
    Stall("the upstream does not exist", followed({"repo": "blueprints", "package": "app", "revision": 9}),
        "UpstreamNotFound", Reason.UPSTREAM_NOT_FOUND,
        "could not find upstream package revision 'app/9' in repo 'blueprints'",
        ("spec", "upstream"), "Ask for one that is published: v1, v2."),
    Stall("the package of the upstream does not exist",
        followed({"repo": "blueprints", "package": "apps", "revision": 1}),
        "UpstreamNotFound", Reason.UPSTREAM_NOT_FOUND,
        "could not find upstream package revision 'apps/1' in repo 'blueprints'", ("spec", "upstream"),
        "Correct the name, or publish it first: there is no package apps yet. Did you mean app?"),
    Stall("the repository of the upstream is not registered",
        followed({"repo": "gone", "package": "app", "revision": 1}), "UpstreamNotFound",
        Reason.UPSTREAM_NOT_FOUND, "could not find upstream package revision 'app/1' in repo 'gone'",
        ("spec", "upstream"), "Register the repository in the namespace of the set."),
    Stall("the upstream repository cannot be read", single_set(EDGE,
        views=(replace(blueprints(), packages={}, problem=UNREAD),)), "UnexpectedError",
        Reason.REPOSITORY_UNAVAILABLE, "Repository default/blueprints could not be read: Connection refused",
        ("spec", "upstream", "repo"), "Wait"),
    Stall("the upstream repository is refused and cannot be read", single_set(EDGE,
        views=(replace(blueprints(), packages={}, problem=REFUSED),)), "UnexpectedError",
        Reason.REPOSITORY_REFUSED, "Repository default/blueprints could not be read: Two addresses",
        ("spec", "upstream", "repo"), "Correct it"),
    Stall("the manifest of the upstream repository is wrong", replace(
        followed({"repo": "gone", "package": "app", "revision": 1}), stalled=STALLED), "UpstreamNotFound",
        Reason.UPSTREAM_NOT_FOUND, "could not find upstream package revision 'app/1' in repo 'gone'",
        ("spec", "upstream"), "Correct the manifest of Repository default/gone."),
    Stall("there is no snapshot", single_set(select(BY_NAME)), "NoMatchingTargets",
        Reason.NO_MATCHING_TARGETS, UNSERVED, (*FIRST, "objectSelector"),
        f"There is no snapshot in : {IMPORT} --kinds Cluster.example.dev`."),
    Stall("the kind is not served",
        single_set(select(BY_NAME), snapshot=snapshot(complete=False, served=frozenset({("v1", "Pod")}))),
        "NoMatchingTargets", Reason.NO_MATCHING_TARGETS, UNSERVED, (*FIRST, "objectSelector"), SERVE),
    Stall("nothing is known of the kind", single_set(select(BY_NAME), snapshot=snapshot(complete=False)),
        "NoMatchingTargets", Reason.NO_MATCHING_TARGETS, UNSERVED, (*FIRST, "objectSelector"), SERVE),
    Stall("an expression fails on one object",
        single_set(select({**BY_NAME, "labelExprs": [{"key": "r", "valueExpr": "target.labels.region"}]}),
            snapshot=snapshot(*THREE, cluster("d", line=40))), "UnexpectedError", Reason.INVALID_EXPRESSION,
        "target default/d (snapshot/clusters.yaml:40): template.labelExprs[0].valueExpr: no such key: region",
        (*FIRST, "template", "labelExprs", 0, "valueExpr"),
        "Test for it first, as in has(target.labels.x) ? target.labels.x : 'none'."),
    Stall("the repository of an object is not registered",
        single_set(select({}), snapshot=snapshot(cluster("nowhere", line=7))), "UnexpectedError",
        Reason.REPOSITORY_NOT_FOUND,
        'target default/nowhere (snapshot/clusters.yaml:7): repository "nowhere" could not be loaded',
        FIRST, REGISTER),
    Stall("the repository of a template is not registered",
        single_set({"repositories": [{"name": "edge"}], "template": {"downstream": {"repo": "gone"}}}),
        "UnexpectedError", Reason.REPOSITORY_NOT_FOUND,
        'target edge/app: repository "gone" could not be loaded', FIRST, REGISTER),
    Stall("the repository is of another namespace", single_set({"repositories": [{"name": "edge"}]},
        views=(blueprints(), repository("edge", namespace="other"))), "UnexpectedError",
        Reason.REPOSITORY_NOT_FOUND, 'target edge/app: repository "edge" could not be loaded',
        FIRST, REGISTER),
    Stall("the name of a variant is no object name",
        single_set({"repositories": [{"name": "edge", "packageNames": ["a/b"]}]}), "ValidationError",
        Reason.INVALID_NAME,
        'target edge/a/b: the variant is invalid: "fleet-edge-a/b" is not a valid object name', FIRST,
        "Use lower-case letters, digits, - and . only, and no / in the package name. "
        "A set names another package in template.downstream.package."),
    Stall("an expression gives an empty package",
        single_set({"repositories": [{"name": "edge"}], "template": {"downstream": {"packageExpr": "''"}}}),
        "ValidationError", Reason.VALIDATION_ERROR,
        "target edge/app: the variant is invalid: missing required field spec.downstream.package",
        FIRST, "Add the field."),
    Stall("there are too many targets", single_set(select(BY_NAME), snapshot=snapshot(*THREE),
        policy=Policy(limits=Limits(targets_per_set=2))), "ValidationError", Reason.VALIDATION_ERROR,
        "the set has 3 targets, more than 2",
        ("spec", "targets"), "Correct spec.targets; docs/package-variant-sets.md describes it."),
    Stall("an extension is unknown", world(package_set(targets=[EDGE],
        annotations={"reconciler.dev/cel-extensions": "math"})), "ValidationError", Reason.VALIDATION_ERROR,
        "unknown CEL extension: math",
        ("metadata", "annotations", "reconciler.dev/cel-extensions"), "Known: strings."),
]  # fmt: skip


@pytest.mark.parametrize("case", STALLS, ids=lambda c: c.reason)
def test_one_invalid_target_stalls_only_its_set(case: Stall) -> None:
    (declared,) = case.world.sets
    marked = replace(declared, source=replace(declared.source, marks=Marks()))
    others = () if {"cannot", "namespace"} & {*case.reason.split()} else (variant(),)

    desired = expand(replace(case.world, sets=(marked,), variants=others))

    assert conditions(desired)["Stalled"] == ("True", case.condition, case.message)
    location = Location("sets.yaml", line_of(*case.path), 1)
    subject = "PackageVariantSet default/fleet"
    assert desired.problems == (Problem(location, case.problem, case.message, case.hint, subject),)
    assert names(desired) == [v.key.name for v in others]


def problem_of(target: dict[str, Any], **fields: Any) -> Problem:
    """Return the problem of a set with one target, in which each field has a line of its own."""
    marked = replace(source("sets.yaml"), marks=Marks())
    (problem,) = expand(world(package_set(targets=[target], at=marked), **fields)).problems
    return problem


@pytest.mark.parametrize(
    ("downstream", "path"),
    [
        ({"package": "x.lock"}, (*FIRST, "template", "downstream", "package")),
        ({"packageExpr": "'x.lock'"}, (*FIRST, "template", "downstream", "packageExpr")),
        ({"repo": "edge"}, (*FIRST, "repositories", 0, "packageNames", 0)),
        (None, (*FIRST, "repositories", 0, "packageNames", 0)),
    ],
)
def test_package_path_that_is_not_valid_is_a_problem_of_the_field_that_names_it(
    downstream: dict[str, str] | None, path: tuple[str | int, ...]
) -> None:
    template = {} if downstream is None else {"template": {"downstream": downstream}}
    target = {"repositories": [{"name": "edge", "packageNames": ["x.lock"]}], **template}

    problem = problem_of(target)

    assert 'package path "x.lock" is not valid' in problem.message
    assert problem.reason is Reason.INVALID_NAME
    assert problem.location == Location("sets.yaml", line_of(*path), 1)


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"cluster": "prod", "path": "snapshots/prod"},
            f"There is no snapshot in snapshots/prod: {IMPORT} --cluster prod --kinds Cluster.example.dev`."),
        ({"clusters": {"prod": Snapshot(), "dev": Snapshot()}},
            "Say in which clusters it selects: annotate the set with reconciler.dev/clusters: dev,prod"),
    ],
)  # fmt: skip
def test_missing_snapshot_is_told_by_its_place(fields: dict[str, Any], hint: str) -> None:
    assert problem_of(select(BY_NAME), snapshot=Snapshot(**fields)).hint == hint


@pytest.mark.parametrize(
    ("target", "kind", "namespace", "name"),
    [
        ({"repositories": [{"name": "edge"}]}, "", "", ""),
        ({"repositorySelector": {"matchLabels": {"a": "b"}}}, "Repository", "default", "edge"),
        (select({"downstream": {"repo": "edge"}}), "Cluster", "default", "a"),
        (select({"downstream": {"repo": "edge"}}), "Cluster", "", "a"),
    ],
    ids=["named", "a repository", "an object", "an object of the cluster"],
)
def test_variant_names_the_object_that_its_target_selected(
    target: dict[str, Any], kind: str, namespace: str, name: str
) -> None:
    views = (blueprints(), repository("edge", labels={"a": "b"}))
    objects = snapshot(cluster("a", namespace=namespace))

    (made,) = expand(world(package_set(targets=[target]), views=views, snapshot=objects)).variants

    shown = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
    assert str(made.target or "") == (shown if kind else "")
    assert made.target_path == FIRST


def test_invalid_targets_are_counted_after_the_first_ten() -> None:
    held = snapshot(*(cluster(f"c{n:02}") for n in range(25)))
    bad = {**BY_NAME, "labelExprs": [{"key": "r", "valueExpr": "target.labels.region"}]}

    desired = expand(single_set(select(bad), snapshot=held))

    assert len(desired.problems) == 11
    assert desired.problems[-1].message.startswith("15 more targets fail; the last one: target default/c24")


def test_set_without_targets_is_ready_with_a_warning() -> None:
    inventory = single_set(select(BY_NAME, region="nowhere"), snapshot=snapshot(*THREE))
    desired = expand(inventory)

    nothing = "sets.yaml:1: PackageVariantSet default/fleet selects no target"
    assert list(empty_selections(desired, inventory)) == [nothing]
    targets = [select(BY_NAME, region="nowhere"), {"repositories": [{"name": "edge"}]}]
    partly = world(package_set(targets=targets), snapshot=snapshot(*THREE))
    assert list(empty_selections(expand(partly), partly)) == [
        "sets.yaml:1: spec.targets[0] of PackageVariantSet default/fleet selects nothing"
    ]
    assert conditions(desired)["Ready"][2].endswith("warning: no target is selected")
    assert desired.problems == ()
    assert desired.targets == {ObjectName("default", "fleet"): 0}


def test_repositories_can_be_selected_as_objects_of_their_kind() -> None:
    selector = {"apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "Repository", "name": "edge"}

    assert names(expand(single_set({"objectSelector": selector}))) == ["fleet-edge-app"]


class Collision(NamedTuple):
    reason: str
    world: Inventory
    problem: Reason
    stalled: set[str]
    message: str


COLLISIONS = [
    Collision("two targets of one set", world(package_set(targets=[EDGE, EDGE])),
        Reason.DUPLICATE_DOWNSTREAM, {"fleet"},
        "PackageVariantSet default/fleet (sets.yaml:1) and PackageVariantSet default/fleet (sets.yaml:1)"
        " have one downstream: package mine in repository edge"),
    Collision("two objects of one set",
        single_set(select({"downstream": {"repo": "edge", "package": "same"}}),
        snapshot=snapshot(*THREE[:2])), Reason.DUPLICATE_DOWNSTREAM, {"fleet"},
        "PackageVariantSet default/fleet (sets.yaml:1, target default/a (snapshot/clusters.yaml:1)) and "
        "PackageVariantSet default/fleet (sets.yaml:1, target default/b (snapshot/clusters.yaml:1))"
        " have one downstream: package same in repository edge"),
    Collision("a set and a variant", world(package_set(targets=[EDGE]), variant()),
        Reason.DUPLICATE_DOWNSTREAM, {"fleet", "mine"},
        "PackageVariant default/mine (variants.yaml:1) and PackageVariantSet default/fleet (sets.yaml:1)"
        " have one downstream: package mine in repository edge"),
    Collision("two variants by two views of one place",
        world(variant("a", downstream={"repo": "edge", "package": "x/y"}),
        variant("b", downstream={"repo": "edge-x", "package": "y"}),
        views=(blueprints(), repository("edge"), repository("edge-x", url="host/edge", directory="x"))),
        Reason.DUPLICATE_DOWNSTREAM, {"a", "b"},
        "PackageVariant default/a (variants.yaml:1) and PackageVariant default/b (variants.yaml:1)"
        " have one downstream: package x/y in repository edge"),
    Collision("two sets whose parts give one name",
        world(package_set("a", targets=[{"repositories": [{"name": "b-c", "packageNames": ["d"]}]}]),
        package_set("a-b", targets=[{"repositories": [{"name": "c", "packageNames": ["d"]}]}]),
        views=(blueprints(), repository("b-c"), repository("c"))), Reason.AMBIGUOUS_IDENTIFIER, {"a", "a-b"},
        "PackageVariantSet default/a (sets.yaml:1) and PackageVariantSet default/a-b (sets.yaml:1)"
        " give one name to different variants: a-b-c-d is d in b-c and d in c"),
]  # fmt: skip


@pytest.mark.parametrize("case", COLLISIONS, ids=lambda c: c.reason)
def test_conflict_stalls_both_owners_and_names_both(case: Collision) -> None:
    desired = expand(case.world)

    assert desired.variants == ()
    assert {owner.name for owner in desired.stalled} == case.stalled
    hint = "Change or remove one of them: nothing is changed for either until then."
    assert {(p.reason, p.message, p.hint) for p in desired.problems} == {(case.problem, case.message, hint)}


@pytest.mark.parametrize(
    "established", ["set", "variant", "both", "nobody", "at another path", "in another repository"]
)
def test_newcomer_stalls_alone(established: str) -> None:
    fleet = package_set(targets=[{"repositories": [{"name": "edge", "packageNames": ["a", "web"]}]}])
    single = variant("single", downstream={"repo": "edge", "package": "web"})
    west = (blueprints(), repository("west"))
    before = {
        "set": [world(fleet)],
        "variant": [world(single)],
        "both": [world(fleet), world(single)],
        "at another path": [world(variant("single", downstream={"repo": "edge", "package": "old"}))],
        "in another repository": [
            world(variant("single", downstream={"repo": "west", "package": "web"}), views=west)
        ],
    }
    records = dict(ChainMap(*map(record_all, before.get(established, []))))
    assert len(records) == {"set": 2, "both": 3, "nobody": 0}.get(established, 1)

    desired = expand(world(fleet, single, records=records))

    stalled = {"set": {"single"}, "variant": {"fleet"}}.get(established, {"single", "fleet"})
    assert {owner.name for owner in desired.stalled} == stalled
    assert {problem.owner.name for problem in desired.problems if problem.owner} == stalled
    assert len(desired.variants) == {"set": 2, "variant": 1}.get(established, 0)


def test_owner_with_an_invalid_manifest_is_not_expanded() -> None:
    inventory = world(
        package_set(targets=[EDGE]), variant("other", downstream={"repo": "edge", "package": "o"})
    )
    key = set_key(ObjectName("default", "fleet"))

    problem = Problem(Location("sets.yaml", 9), Reason.UNKNOWN_FIELD, "Unknown field spec.x").owned_by(key)

    desired = expand(replace(inventory, stalled=frozenset({key}), problems=(problem,)))

    assert names(desired) == ["other"]
    assert key in desired.stalled
    assert conditions(desired)["Stalled"] == ("True", "ValidationError", "Unknown field spec.x")
    elsewhere = expand(replace(inventory, stalled=frozenset({key})))
    assert conditions(elsewhere)["Stalled"] == ("True", "ValidationError", "")


def test_error_in_a_block_scalar_has_its_line() -> None:
    text = b"""apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata: {name: fleet}
spec:
  upstream: {repo: blueprints, package: app, revision: 1}
  targets:
  - repositories: [{name: edge}]
    template:
      downstream:
        packageExpr: |
          'a' +
            cluster.name
"""
    document = load_documents(text)[0]
    pvs = package_set(spec=document.value["spec"], at=Source(Location("sets.yaml", 1), marks=document))

    (problem,) = expand(world(pvs)).problems

    assert problem.location == Location("sets.yaml", 12, 13)


def test_trace_has_the_origin_of_each_field() -> None:
    template = {
        **BY_NAME,
        "labels": {"a": "b"},
        "labelExprs": [{"key": "region", "valueExpr": "target.labels.region"}],
    }
    inventory = single_set(select(template, region="us"), snapshot=snapshot(*THREE))

    (generated,) = expand(inventory, trace=True).variants

    assert dict(generated.trace) == {
        "downstream.repo": "template.downstream.repoExpr: 'edge'",
        "downstream.package": "template.downstream.packageExpr: target.name",
        "labels.a": "literal",
        "labels.region": "template.labelExprs[0].valueExpr: target.labels.region",
    }
    default = "the target's default"
    for target, repo in ((select({"downstream": {"repo": "edge"}}, region="us"), "literal"), (EDGE, default)):
        plain = single_set(target, snapshot=snapshot(*THREE))
        trace = dict(expand(plain, trace=True).variants[0].trace)
        assert trace == {"downstream.repo": repo, "downstream.package": default}
    assert expand(inventory).variants[0].trace == {}
    assert expand(inventory).variants[0].spec == generated.spec


def test_one_invalid_target_of_a_thousand_stalls_the_set() -> None:
    inventory = fleet(1000, share=1.0, template=FIVE_EXPRESSIONS, bad=777)
    good = fleet(1000, share=0.01, template=FIVE_EXPRESSIONS)
    inventory = replace(inventory, records=record_all(good))

    desired = expand(inventory)
    diff = diff_variants(desired, inventory)

    (problem,) = desired.problems
    assert problem.message == (
        "target default/cluster-000777 (snapshot/clusters.yaml:778):"
        " template.labelExprs[0].valueExpr: no such key: region"
    )
    assert (diff.create, diff.update, diff.delete, diff.transfer) == ((), (), (), ())
    assert {change.reason for change in diff.keep} == {Reason.OWNER_STALLED}
    assert len(diff.keep) == 10


def test_variants_inherit_annotations_of_their_set() -> None:
    asked = {"reconciler.dev/retry": "1", "reconciler.dev/on-conflict": "local"}
    inheriting = package_set(
        targets=[{"repositories": [{"name": "edge"}]}], annotations={**asked, "team": "a"}
    )

    (generated,) = expand(world(inheriting)).variants

    assert generated.annotations == asked


@pytest.mark.parametrize(
    ("tiers", "value", "lacks"),
    [
        ("", "web/v1", "spec.rollouts has no policy"),
        ("b", "web/v1", "no policy in spec.rollouts selects this set"),
        ("ba", "web/v1", ""),
        ("b", "false", ""),
    ],
)
def test_order_for_a_rollout_of_a_set_that_no_policy_selects_is_an_error(
    tiers: str, value: str, lacks: str
) -> None:
    policies = (RolloutPolicy((Wave("all"),), {"matchLabels": {"tier": tier}}) for tier in tiers)
    order = {"reconciler.dev/rollout-start": value}
    ordered = package_set(targets=[EDGE], labels={"tier": "a"}, annotations=order)

    desired = expand(world(ordered, policy=Policy(rollouts=tuple(policies))))

    message = f"reconciler.dev/rollout-start is an order for a rollout, and {lacks}"
    assert [str(problem.message) for problem in desired.problems] == [message] * bool(lacks)
