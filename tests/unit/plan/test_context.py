"""Planned packages: which are in scope, and the Repository that each is reported under (law 3)."""

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import GROUP
from reconciler.base.defects import DefectError
from reconciler.expand import expand
from reconciler.inventory.inventory import Commit, GroupBranch, PackageState, RepositoryRole, RepositoryView
from reconciler.names.ids import ObjectKey, ObjectName, PackageKey
from reconciler.plan.context import build_context, make_target
from reconciler.render.rendered import Rendered
from reconciler.resolve.fleet import ResolvedFleet
from reconciler.resolve.ownership import downstream_packages
from reconciler.resolve.resolution import Resolution
from tests.support.plan_values import EDGE, URL, a_draft, a_record, oid
from tests.support.sets import a_package, blueprints, package_set, repository, variant, world
from tests.support.values import replace


def seen_under(*views: RepositoryView, wanted: str = "edge") -> dict[str, str]:
    """Return the Repository of every planned package, where one variant wants `mine` in `wanted`."""
    inventory = world(variant(downstream={"repo": wanted, "package": "mine"}), views=(blueprints(), *views))
    desired = expand(inventory)
    resolution = Resolution(downstreams=downstream_packages(desired.variants, inventory))
    context = build_context(inventory, ResolvedFleet(desired, resolution), Rendered())
    return {key.path: target.view.key.name for key, target in context.targets.items() if key.url == URL}


def packages(*paths: str, owner: str = "", location: str = "") -> dict[str, PackageState]:
    header = KptfileHeader(owner=owner, location=location)
    return {path: a_package(path, main_tree=oid("b1"), main_header=header) for path in paths}


@pytest.mark.parametrize(
    ("place", "label"),
    [
        ({"url": f"{URL}-2"}, "default/edge"),
        ({"directory": "site"}, "default/edge"),
        ({}, "edge"),
        ({"name": "north", "directory": "site"}, "edge"),
    ],
)
def test_repository_has_its_namespace_where_another_place_has_its_name(place, label) -> None:
    other = repository(**{"name": "edge", "url": URL, **place}, namespace="team")

    assert world(views=(EDGE, other)).label(EDGE.key) == label


FACTS = [name for name in RepositoryView.__struct_fields__ if name not in {"packages", "problem"}]


def test_what_a_bug_breaks_is_left_out_and_stays_theirs() -> None:
    """A variant, a set, a record, a package and a Repository, each beside one that is sound."""
    groups = [GroupBranch("", Commit(oid("a1"), 1), paths) for paths in (("fellow", "broken"), ("sound",))]
    view = replace(EDGE, packages=packages("broken", "sound"), groups=tuple(groups))
    other = repository("other", cluster="dev", unavailable="warn", role=RepositoryRole.READ)
    views = (view, blueprints(), other)
    manifests = (variant("v1"), variant("v2"), package_set("s1"), package_set("s2"))
    records = {ObjectName("default", name): a_record(name=name) for name in ("r1", "r2")}
    inventory = world(*manifests, views=views, records=records)
    declared = [*inventory.declared]
    units = [*(key for key in declared if key.name[1] == "1"), ObjectName("default", "r1")]
    units += [PackageKey(EDGE.url, "broken"), ObjectKey(GROUP, "Repository", "default", "other")]
    every = [*inventory.units()]
    assert {*units} < {*every}
    assert len(every) == len({*every}) == 4 + 2 + 3 + 2 + len(blueprints().packages)

    part = inventory.without({unit: DefectError(KeyError("odd")) for unit in units})

    assert [v.key.name for v in (*part.variants, *part.sets)] == ["v2", "s2"]
    assert part.stalled == {key for key in declared if key.name[1] == "1"}
    assert part.claims == {ObjectName("default", "v1"): ("edge", "mine")}
    assert [key.name for key in (*part.records, *part.broken_records)] == ["r2", "r1"]
    assert [*part.repositories[EDGE.key].packages] == ["sound"]
    assert [*part.repositories[EDGE.key].broken] == ["broken"]
    assert [v.key.name for v in part.repositories.values() if not v.is_available] == ["other"]
    hidden = {key.path: problem for key, problem in part.hidden.items()}
    assert hidden == dict.fromkeys(("broken", "fellow"), part.repositories[EDGE.key].broken["broken"])
    unusable = part.repositories[other.key]
    assert [getattr(unusable, fact) for fact in FACTS] == [getattr(other, fact) for fact in FACTS]
    assert part.repositories[views[1].key] is views[1]
    assert len(part.problems) == 3
    assert inventory.without({}) is inventory


@pytest.mark.parametrize("wanted", ["alias", "edge"])
def test_package_of_two_repositories_is_reported_under_the_one_that_variants_name(wanted: str) -> None:
    states = packages("theirs") | packages("ours", owner="default/default/gone")
    views = [repository(name, url=URL, packages=states) for name in ("alias", "edge")]

    assert seen_under(*views, wanted=wanted) == dict.fromkeys(("mine", "ours", "theirs"), wanted)


def test_repository_that_no_variant_names_has_only_packages_with_our_annotation_in_scope() -> None:
    theirs = packages("theirs")
    ours = packages("ours", owner="default/default/gone", location="unused/ours")
    copy = packages("copy", owner="default/default/gone", location="unused/ours")
    foreign = packages("foreign", owner="other/default/web", location="unused/foreign")
    drafted = {"drafted": a_package("drafted", drafts=(a_draft(path="drafted"),))}
    tags_only = {"tagged": a_package("tagged")}
    unused = repository(
        "unused", url=URL, packages={**theirs, **ours, **copy, **foreign, **drafted, **tags_only}
    )

    assert seen_under(unused, repository("edge", url="host/elsewhere")) == dict.fromkeys(
        ("copy", "drafted", "ours"), "unused"
    )


def test_package_whose_deletion_is_proposed_stays_in_scope_after_it_is_gone() -> None:
    branches = {
        "reconciler/default/delete/gone": Commit(oid("a1"), 1),
        "deletionProposed/old/v1": Commit(oid("a2"), 1),
    }
    edge = repository("edge", url=URL, branches={**branches, "deletionProposed/odd": Commit(oid("a3"), 1)})

    assert seen_under(edge) == {"gone": "edge", "mine": "edge"}
    unread = repository("x", url="host/x", branches=branches, role=RepositoryRole.READ)
    inventory = world(views=(edge, unread))
    context = build_context(inventory, ResolvedFleet(expand(inventory), Resolution()), Rendered())
    assert context.proposed_deletions == {
        PackageKey(URL, "gone"): (("refs/heads/reconciler/default/delete/gone", oid("a1")),),
        PackageKey(URL, "old"): (("refs/heads/deletionProposed/old/v1", oid("a2")),),
    }


def test_first_open_draft_counts_and_all_others_are_beside_it() -> None:
    header = KptfileHeader(owner="default/default/web", location="edge/web")
    refs = [f"refs/heads/drafts/web/packagevariant-{n}" for n in (1, 2, 3)]
    drafts = tuple(a_draft(ref=ref, header=header) for ref in refs)

    target = make_target(EDGE, a_package(drafts=drafts), world())

    assert target.draft is not None
    assert {target.draft.ref, *(other.ref for other in target.others)} == set(refs)
    assert len(target.others) == 2


def test_packages_of_repositories_that_another_shard_plans_are_out_of_scope() -> None:
    edge = repository("edge", packages=packages("theirs"))
    read = replace(edge, role=RepositoryRole.READ)

    assert seen_under(edge) == {"theirs": "edge", "mine": "edge"}
    assert seen_under(read) == {}
    assert edge.key == ObjectName("default", "edge")
