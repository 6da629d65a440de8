"""What a generated package takes from those that need it: place, settings, values, parameters and labels."""

from typing import Any

import msgspec
import orjson
import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.model.cluster import build_catalogue
from reconciler.dependencies.model.instances import Instance, MetNeed, Resolved, Slot, SlotKind
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    PackageId,
    PackageNeed,
    Requirement,
    Share,
    Sharing,
    Values,
)
from reconciler.dependencies.solve.alternatives import any_version
from reconciler.dependencies.versions.version import parse_loose
from reconciler.names.problems import Problem
from reconciler.render.delivery import GeneratedPackage, ObjectRef, PackageGraph, name_collisions, owner_of
from tests.support.values import replace


def slot(kind: str = "cluster", namespace: str = "", *path: str) -> Slot:
    return Slot(SlotKind(kind), namespace=namespace, path=path)


def edge(target: Resolved, alias: str = "", id_: str = "") -> MetNeed:
    return MetNeed(
        signature="s", need="package", id=id_ or "id", alias=alias, resolved=target.instance, via="candidate"
    )


def locked(package: str, ecosystem: str = "carvel", where: Slot | None = None, **fields: Any) -> Resolved:
    instance = Instance(ecosystem=ecosystem, name=package, slot=where or slot("namespace", "shop"))
    return Resolved(instance=instance, dialect="d", **{"version": "1.0.0", **fields})


def users(name: str, *edges: MetNeed, ecosystem: str = "carvel", **fields: Any) -> Resolved:
    """Return a package that a user's manifest of the name `my-NAME` installs."""
    kind = {"carvel": "PackageInstall", "bundle": "Installation", "xpkg": "Provider"}[ecosystem]
    named = {"by_user": True, "kind": kind, "name": f"my-{name}", "dependencies": edges, **fields}
    return locked(name, ecosystem, slot("install", "shop", f"my-{name}"), **named)


def install(name: str, *, line: int = 1, **fields: Any) -> Install:
    id_ = PackageId(Ecosystem.CARVEL, name)
    need = PackageNeed(id_, any_version(id_))
    kind = {"kind": "PackageInstall", "location": Location("f.yaml", line)}
    return Install("shop", f"my-{name}", Dialect.CARVEL, need, **{**kind, **fields})


def graph(
    *packages: Resolved,
    installs: dict[str, Install] | None = None,
    candidates: tuple[Candidate, ...] = (),
) -> PackageGraph:
    by_name = {package.instance.name: package.instance for package in packages}
    return PackageGraph(
        {package.instance: package for package in packages},
        {by_name[name]: each for name, each in (installs or {}).items()},
        build_catalogue(candidates),
    )


def requested(package: Resolved, *parents: Resolved, owner: int = 0) -> Resolved:
    names = tuple(parent.instance for parent in parents)
    return msgspec.structs.replace(package, requested_by=names, owner=names[owner])


def only(from_graph: PackageGraph) -> tuple[GeneratedPackage, tuple[Problem, ...]]:
    (made,), problems = from_graph.generated()
    return made, problems


# Objects


@pytest.mark.parametrize(
    ("package", "ref"),
    [
        (locked("x.io/a", "xpkg", slot(), kind="Provider", name="a"), ObjectRef("Provider", "", "a")),
        (locked("db.io"), ObjectRef("PackageInstall", "shop", "db.io")),
        (locked("db.io", where=slot()), ObjectRef("PackageInstall", "spare", "db.io")),
        (
            locked("x.io/mysql", "bundle", slot("for", "shop", "press", "db")),
            ObjectRef("Installation", "shop", "press-db"),
        ),
        (locked("g.io//a/web", "kpt", slot("cluster", "n")), ObjectRef("PackageVariant", "n", "web")),
        (users("db.io"), ObjectRef("PackageInstall", "shop", "my-db.io")),
    ],
)
def test_object_of_a_package_is_that_of_its_ecosystem_or_the_users_own(
    package: Resolved, ref: ObjectRef
) -> None:
    assert replace(graph(package), shared_namespace="spare").ref_of(package) == ref


def test_text_of_an_object_has_its_namespace_if_it_has_one() -> None:
    assert str(ObjectRef("K", "n", "x")) == "K n/x"
    assert str(ObjectRef("K", "", "x")) == "K x"


def test_owner_is_the_parent_that_it_was_made_for_while_that_is_there() -> None:
    first, second = users("a.io"), users("b.io")
    db = requested(locked("db.io"), first, second, owner=1)
    refs = tuple(ObjectRef("PackageInstall", "shop", f"my-{name}") for name in ("a.io", "b.io"))

    made, _ = only(graph(first, second, db))
    assert (made.parents, made.owner, owner_of(made, "PackageInstall")) == (refs, refs[1], refs[1])
    made, _ = only(graph(first, db))
    assert (made.parents, made.owner, owner_of(made, "PackageInstall")) == (refs[:1], None, refs[0])
    assert owner_of(made, "Installation") is None


# Settings


def differs(name: str, of: Install, what: str = "PackageInstall shop/db.io") -> Problem:
    message = f"{what} gets a different {name} from each parent: that of {of} counts"
    hint = "Write a manifest for the package yourself to decide."
    return Problem(of.location, Reason.INHERITED_DIFFERENTLY, message, hint, str(of))


def account(name: str) -> tuple[tuple[str, str], ...]:
    return (("other", '"x"'), ("serviceAccountName", f'"{name}"'))


def test_settings_are_those_of_the_nearest_and_then_the_lowest_install() -> None:
    near, far = users("b.io"), users("a.io")
    middle = requested(locked("m.io"), far)
    db = requested(locked("db.io"), middle, near)
    one, two = (
        install("b.io", inherit=account("near"), line=4),
        install("a.io", inherit=account("far"), line=9),
    )

    made, problems = only_db(graph(near, far, middle, db, installs={"b.io": one, "a.io": two}))
    assert made.settings == {"serviceAccountName": "near"}
    assert (made.location, made.is_complete) == (Location("f.yaml", 4), True)
    assert problems == [differs("serviceAccountName", one)]
    made, problems = only_db(
        graph(near, far, middle, db, installs={"b.io": one, "a.io": replace(two, inherit=())})
    )
    assert (made.settings, problems) == ({"serviceAccountName": "near"}, [])


def only_db(from_graph: PackageGraph) -> tuple[GeneratedPackage, list[Problem]]:
    made, problems = from_graph.generated()
    (db,) = (package for package in made if package.ref.name == "db.io")
    return db, [problem for problem in problems if "db.io gets" in problem.message]


def test_package_is_incomplete_if_an_install_above_it_was_not_read() -> None:
    first, second = users("a.io"), users("b.io")
    db = requested(locked("db.io"), first, second)

    made, _ = only(graph(first, second, db, installs={"b.io": install("b.io", line=3)}))

    assert (made.is_complete, made.location) == (False, Location("f.yaml", 3))
    made, _ = only(graph(first, second, db))
    assert (made.is_complete, made.location) == (False, Location(""))


# Values


def values(*written: tuple[str, str]) -> tuple[Values, ...]:
    return tuple(Values(name, secret, "key") for name, secret in written)


@pytest.mark.parametrize(
    ("given", "secrets"),
    [
        ([("data", "alias")], ["alias"]),
        ([("db.io", "name"), ("data", "alias")], ["alias"]),
        ([("db.io", "name")], ["name"]),
        ([("mysql.io", "need")], ["need"]),
        ([("other.io", "other")], []),
    ],
)
def test_values_are_named_by_alias_before_the_name_of_the_package_or_of_the_need(
    given: list[tuple[str, str]], secrets: list[str]
) -> None:
    db = locked("db.io")
    shop = users("shop.io", edge(db, "data", "carvel:mysql.io"), edge(locked("x.io"), "other"))

    made, problems = only(
        graph(shop, requested(db, shop), installs={"shop.io": install("shop.io", values=values(*given))})
    )

    assert [value.secret for value in made.values] == secrets
    assert problems == ()


def test_values_of_the_lowest_parent_count_and_others_are_told() -> None:
    db = locked("db.io")
    parents = [users(name, edge(db, "data")) for name in ("a.io", "b.io", "c.io")]
    installs = {
        "a.io": install("a.io"),
        "b.io": install("b.io", values=values(("data", "one"))),
        "c.io": install("c.io", values=values(("data", "two"))),
    }

    made, problems = only(graph(*parents, requested(db, *parents), installs=installs))
    assert [value.secret for value in made.values] == ["one"]
    assert problems == (differs("values", installs["b.io"]),)
    installs["c.io"] = replace(installs["c.io"], values=values(("db.io", "one")))
    assert only(graph(*parents, requested(db, *parents), installs=installs))[1] == ()


# Bundles


PRESS = PackageId(Ecosystem.BUNDLE, "press")
DB = locked("mysql", "bundle", slot("for", "shop", "my-press", "db"))


def press(**parameters: Any) -> Candidate:
    written = tuple((name, orjson.dumps(value).decode()) for name, value in parameters.items())
    labels = (("app", "{{ installation.name }}"), ("in", "{{ installation.namespace }}"), ("x", "{{ y }}"))
    requires = (
        Requirement((), alias="db", parameters=written, share=Share(Sharing.EXCLUSIVE, labels=labels)),
        Requirement((), alias="log", parameters=(("not", '"mine"'),)),
    )
    return Candidate(PRESS, parse_loose("1.0.0"), requires=requires, defaults=(("size", "3"),))


def given(**parameters: Any) -> Install:
    return install("press", kind="Installation", inherit=(("parameters", orjson.dumps(parameters).decode()),))


def bundle_graph(candidate: Candidate | None, own: Install | None, where: Slot | None = None) -> PackageGraph:
    parent = users("press", edge(DB, "db"), ecosystem="bundle")
    child = requested(DB, parent)
    if where is not None:
        moved = msgspec.structs.replace(child.instance, slot=where)
        child = msgspec.structs.replace(child, instance=moved)
        parent = users("press", edge(child, "db"), ecosystem="bundle")
    return graph(
        parent, child, installs={"press": own} if own else {}, candidates=(candidate,) if candidate else ()
    )


def test_bundle_gets_the_parameters_of_its_author_and_then_those_of_the_user() -> None:
    written = {"name": "{{ installation.name }}", "size": "${ bundle.parameters.size }", "a": [1]}
    own = given(**{"size": 5, "db#a": "mine", "db#b": True, "log#c": 1, "plain": 1})

    made, problems = only(bundle_graph(press(**written), own))

    assert made.settings == {"parameters": {"a": "mine", "b": True, "name": "my-press", "size": 5}}
    assert list(made.settings["parameters"]) == ["a", "b", "name", "size"]
    assert (made.is_complete, problems) == (True, ())
    made, _ = only(bundle_graph(press(**written), given()))
    assert made.settings == {"parameters": {"a": [1], "name": "my-press", "size": 3}}


def test_parameter_that_is_known_at_run_time_is_told_unless_the_user_gives_it() -> None:
    late = press(url="{{ bundle.outputs.url }}", ok="1")

    made, (problem,) = only(bundle_graph(late, given()))

    assert made.settings == {"parameters": {"ok": "1"}}
    assert (problem.reason, problem.location, problem.subject) == (
        Reason.UNBOUND_INPUT,
        Location("f.yaml", 1),
        "Installation shop/my-press",
    )
    assert problem.message == (
        "Installation shop/my-press-db does not get the parameter url: its value is known at run time only"
    )
    assert problem.hint == (
        "Give it as the parameter ALIAS#url of Installation shop/my-press, or leave it at its default."
    )
    assert only(bundle_graph(late, given(**{"db#url": "x"})))[1] == ()


@pytest.mark.parametrize(("has_bundle", "has_install"), [(True, False), (False, True), (False, False)])
def test_bundle_is_incomplete_where_its_parent_is_unknown(has_bundle: bool, has_install: bool) -> None:
    made, problems = only(
        bundle_graph(press(a="1") if has_bundle else None, given() if has_install else None)
    )

    assert (made.settings, made.is_complete, problems) == ({}, False, ())


def test_parameters_of_the_lowest_parent_count_and_others_are_told() -> None:
    parents = [users(name, edge(DB, "db"), ecosystem="bundle") for name in ("press", "zine")]
    zine = replace(press(a="2", b="3"), id=PackageId(Ecosystem.BUNDLE, "zine"))
    own = {"press": given(), "zine": given()}

    made, problems = only(
        graph(*parents, requested(DB, *parents), installs=own, candidates=(press(a="1"), zine))
    )

    assert made.settings == {"parameters": {"a": "1", "b": "3"}}
    assert problems == (differs("parameter a", own["press"], "Installation shop/my-press-db"),)


def test_labels_select_a_bundle_of_one_parent_alone() -> None:
    made, _ = only(bundle_graph(press(), given()))
    assert made.labels == {"app": "my-press", "in": "shop", "x": "{{ y }}"}

    made, _ = only(bundle_graph(press(), given(), slot("shared", "shop", "group")))
    assert made.labels == {}
    assert only(bundle_graph(None, given()))[0].labels == {}


# Names


def named(package: Resolved, name: str, line: int = 0) -> GeneratedPackage:
    return GeneratedPackage(package, ObjectRef("K", "n", name), (), location=Location("f.yaml", line))


def test_name_that_another_package_has_is_a_problem_of_the_second_one() -> None:
    first, second, third = (named(locked(f"{name}.io"), "x", line) for line, name in enumerate("abc", 5))
    alone = named(locked("d.io"), "y")

    collisions = list(name_collisions((first, second, third, alone), {}))

    where = [(package.package.instance.name, problem.location.line) for package, problem in collisions]
    assert where == [("b.io", 6), ("c.io", 7)]
    assert collisions[0][1] == Problem(
        Location("f.yaml", 6),
        Reason.NAME_TAKEN,
        "K n/x would have to be b.io, but that name is carvel:a.io@namespace/shop's",
        "Write a manifest for b.io under another name; it is used instead.",
        "K n/x",
    )


def test_name_of_an_installation_that_nobody_bound_is_taken_and_the_hint_binds_it() -> None:
    made = msgspec.structs.replace(
        GeneratedPackage(DB, ObjectRef("Installation", "shop", "press-db"), ()),
        parents=(ObjectRef("Installation", "shop", "press"),),
    )
    mysql = PackageId(Ecosystem.BUNDLE, "mysql")
    mine = replace(install("press-db", line=8), need=PackageNeed(mysql, any_version(mysql)))

    ((_, problem),) = name_collisions((made,), {made.ref: mine})

    assert problem.message == (
        "Installation shop/press-db would have to be made for Installation shop/press,"
        " which is not bound to yours"
    )
    assert problem.hint == (
        "Bind an installation that is there: `reconciler.dev/dependencies: {db: NAMESPACE/NAME}`"
        " below `custom` of Installation shop/press; or rename the manifest that has this name."
    )


def test_name_of_a_users_manifest_is_taken() -> None:
    made = named(locked("a.io"), "x", 5)
    mine = install("mine.io", line=8)

    ((package, problem),) = name_collisions((made,), {made.ref: mine})

    assert package is made
    assert problem.location == Location("f.yaml", 8)
    assert problem.message == "K n/x would have to be a.io, but that name is carvel:mine.io's"
