"""The graph of packages: versions on main and in review, folding, chains of upstreams, hostile names."""

import json
import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.graph import Edge, Graph, GraphNode, Group, NodeRole, Subject
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import PackageState
from reconciler.names.ids import PackageKey
from reconciler.plan.changes import Change, Op, Plan
from reconciler.plan.fleet_graph import CHAINS, MOST_BOXES, MOST_REVISIONS, fleet_graph
from reconciler.plan.fleet_packages import (
    SINGLE,
    FleetPackage,
    UpstreamVersion,
    fleet_packages,
    published_upstreams,
)
from reconciler.report.graph import Picture, draw, graph_value
from tests.support.model import ModelWorld, blueprint
from tests.support.plan_values import EDGE, PACKAGE, WEB, a_draft, a_target, oid, web_context
from tests.support.schema import output_violations

KEPT = Change(PACKAGE, EDGE.key, Op.KEEP, Reason.UP_TO_DATE, variant=WEB, before=oid("b1"))
SET = "PackageVariantSet default/web"


def upstream(
    version: int = 1, name: str = "blueprints/web", *, is_registered: bool = True
) -> UpstreamVersion:
    repository, _, package = name.partition("/")
    key = PackageKey(f"host/{repository}", package)
    return UpstreamVersion(key, name, f"{package}/v{version}", is_registered=is_registered)


def a_package(
    name: str, main: UpstreamVersion | None = None, review: UpstreamVersion | None = None, **fields
) -> FleetPackage:
    repository, _, path = name.partition("/")
    return FleetPackage(
        **{
            "group": SET,
            "name": name,
            "repository": repository,
            "cluster": "",
            "state": "in review" if review else "published",
            "package": PackageKey(f"host/{repository}", path),
            "main": main,
            "review": review,
            "on_main": main is not None,
            "in_review": review is not None,
            **fields,
        }
    )


def graph_of(*packages: FleetPackage) -> Graph:
    return fleet_graph(packages, {}, packages)


def text_of(*packages: FleetPackage) -> list[str]:
    return draw(graph_of(*packages), Picture.TEXT).splitlines()


def test_set_leads_to_upstream_revisions_and_packages_on_main_and_in_review() -> None:
    moves = a_package("edge-1/web", upstream(1), upstream(2), cluster="prod")
    new = a_package("edge-2/web", None, upstream(2))

    graph = graph_of(moves, new)

    v1, v2 = "host/blueprints//web web/v1", "host/blueprints//web web/v2"
    states = (("in review", 1),)
    (group,) = graph.groups
    assert graph.subject is Subject.PACKAGES
    assert group == Group(
        f"{SET}: 2 packages in 2 repositories; 1 on main at web/v1; 2 in review at web/v2",
        (
            GraphNode(
                "set",
                SET,
                NodeRole.ROOT,
                packages=("edge-1/web", "edge-2/web"),
                states=(("in review", 2),),
            ),
            GraphNode(v1, "blueprints/web web/v1", NodeRole.REVISION, ("1 on main",), version="web/v1"),
            GraphNode(v2, "blueprints/web web/v2", NodeRole.REVISION, ("2 in review",), version="web/v2"),
            GraphNode("packages 0.0", "edge-2/web", packages=("edge-2/web",), states=states),
            GraphNode(
                "packages 1.0",
                "edge-1/web",
                notes=("cluster prod", "web/v1 on main, web/v2 in review"),
                packages=("edge-1/web",),
                states=states,
            ),
        ),
        (
            Edge("set", v1, "", 1, 0),
            Edge("set", v2, "", 0, 2),
            Edge(v2, "packages 0.0", "in review", 0, 1),
            Edge(v1, "packages 1.0", "on main", 1, 0),
            Edge(v2, "packages 1.0", "in review", 0, 1),
        ),
        members=("prod",),
    )


def test_other_change_of_the_same_revision_is_one_edge() -> None:
    (group,) = graph_of(a_package("edge-1/web", upstream(1), upstream(1))).groups

    assert group.edges[-1][2:] == ("on main and in review", 1, 1)


@pytest.mark.parametrize(
    ("on_main", "in_review", "label", "notes"),
    [
        (False, False, "", ("neither on main nor in review", "stalled")),
        (True, False, "on main", ("stalled",)),
        (False, True, "in review", ("stalled",)),
        (True, True, "on main and in review",
         ("an unknown upstream on main, an unknown upstream in review", "stalled")),
    ],
)  # fmt: skip
def test_package_without_upstream_is_below_its_set(
    label: str, notes: tuple[str, ...], *, on_main: bool, in_review: bool
) -> None:
    package = a_package("edge-1/web", state="stalled", on_main=on_main, in_review=in_review)

    (group,) = graph_of(package).groups

    assert [(node.role, node.label, node.notes) for node in group.nodes] == [
        (NodeRole.ROOT, SET, ()),
        (NodeRole.PACKAGE, "edge-1/web", notes),
    ]
    assert group.edges == (Edge("set", "packages 0.0", label, int(on_main), int(in_review)),)


def fleet(count: int, version: int, *, start: int = 0, **fields) -> list[FleetPackage]:
    return [a_package(f"edge-{i:03}/web", upstream(version), **fields) for i in range(start, start + count)]


def test_packages_that_are_alike_are_one_box_with_their_number() -> None:
    packages = [*fleet(312, 2), *fleet(3, 1, start=312)]

    assert text_of(*packages) == [
        f"{SET}: 315 packages in 315 repositories; 312 on main at web/v2; 3 on main at web/v1",
        "  ├─ blueprints/web web/v1",
        "  │    3 on main",
        "  │  ├─ edge-312/web [on main]",
        "  │  ├─ edge-313/web [on main]",
        "  │  └─ edge-314/web [on main]",
        "  └─ blueprints/web web/v2",
        "       312 on main",
        "     └─ 312 packages in 312 repositories [on main]",
    ]


@pytest.mark.parametrize(("count", "boxes"), [(MOST_BOXES, MOST_BOXES), (MOST_BOXES + 1, 1)])
def test_folding_begins_above_the_limit(count: int, boxes: int) -> None:
    (group,) = graph_of(*fleet(count, 1)).groups

    assert [node.role for node in group.nodes].count(NodeRole.PACKAGE) == boxes
    assert group.title == f"{SET}: {count} packages in {count} repositories at web/v1"


def test_folded_box_counts_states_and_keeps_every_name() -> None:
    packages = [*fleet(20, 1), *fleet(4, 1, start=20, state="paused")]

    box = graph_of(*packages).groups[0].nodes[-1]

    assert (box.label, box.notes) == ("24 packages in 24 repositories", ("4 paused, 20 published",))
    assert box.packages == tuple(package.name for package in packages)


def test_packages_of_one_repository_are_one_box_with_their_names() -> None:
    packages = [a_package(f"edge-1/w{number}", upstream(1)) for number in range(7)]

    box = graph_of(*packages).groups[0].nodes[-1]

    assert (box.label, box.notes) == ("7 packages in edge-1", ("w0, w1, w2, w3, w4, 2 more",))


def test_fleet_of_many_upstreams_and_revisions_stays_readable() -> None:
    packages = [
        a_package(f"edge-{i // 5}/w{i % 5}", upstream(1 + i % 40, f"hub/web-{i % 300}"))
        for i in range(10_000)
    ]

    graph = graph_of(*packages)

    assert len(draw(graph, Picture.TEXT).splitlines()) < 4 * MOST_REVISIONS
    (group,) = graph.groups
    assert sum(node.role is NodeRole.REVISION for node in group.nodes) == MOST_REVISIONS
    assert sum(edge.main for edge in group.edges if edge.source == "set") == 10_000
    assert any(node.label.endswith("at other revisions") for node in group.nodes)


def test_revisions_are_in_the_order_of_their_numbers() -> None:
    (group,) = graph_of(*(a_package(f"edge-{n}/web", upstream(n)) for n in (10, 9, 1))).groups

    versions = [node.version for node in group.nodes if node.role is NodeRole.REVISION]
    assert versions == ["web/v1", "web/v9", "web/v10"]


def test_upstream_outside_of_the_registered_repositories_is_drawn_as_such() -> None:
    (group,) = graph_of(a_package("edge-1/web", upstream(1, "host.io/web", is_registered=False))).groups

    assert [node.role for node in group.nodes] == [NodeRole.ROOT, NodeRole.OUTSIDE, NodeRole.PACKAGE]


# Chains


NEAR = a_package("near/web", upstream(1), group=SINGLE)


def test_package_made_from_a_made_package_is_a_chain() -> None:
    far = a_package("far/web", upstream(1, "near/web"), upstream(2, "near/web"), group=SINGLE)

    assert graph_of(NEAR).groups[-1].title.startswith(SINGLE)
    chains = graph_of(NEAR, far).groups[-1]
    assert chains == Group(
        CHAINS,
        (
            GraphNode("chain 0", "host/blueprints//web", NodeRole.OUTSIDE),
            GraphNode(
                "chain 1", "near/web", notes=(SINGLE,), packages=("near/web",), states=(("published", 1),)
            ),
            GraphNode(
                "chain 2", "far/web", notes=(SINGLE,), packages=("far/web",), states=(("in review", 1),)
            ),
        ),
        (
            Edge("chain 0", "chain 1", "web/v1 on main", 1, 0),
            Edge("chain 1", "chain 2", "web/v1 on main, web/v2 in review", 1, 1),
        ),
    )


def test_chain_is_drawn_up_from_the_packages_that_are_shown() -> None:
    far, other = (a_package(f"{name}/web", upstream(1, "near/web")) for name in ("far", "other"))

    graph = fleet_graph((NEAR, far, other), {}, [far])

    assert [node.label for node in graph.groups[-1].nodes] == ["host/blueprints//web", "near/web", "far/web"]
    assert graph.description.endswith("near/web from host/blueprints//web, far/web from near/web.")


def test_many_packages_of_one_step_are_one_box() -> None:
    far = [a_package(f"far-{i}/web", upstream(1 + i % 2, "near/web")) for i in range(MOST_BOXES + 2)]

    chains = graph_of(NEAR, *far).groups[-1]

    assert chains.nodes[-1].label == "14 packages in 14 repositories"
    assert chains.edges[-1][2:] == ("7 at web/v1 on main, 7 at web/v2 on main", 14, 0)


def test_circle_of_upstreams_is_drawn_once() -> None:
    one = a_package("one/web", upstream(1, "two/web"))
    two = a_package("two/web", upstream(1, "one/web"))

    graph = graph_of(one, two)

    assert {node.label for node in graph.groups[-1].nodes} == {"one/web", "two/web"}
    assert all(draw(graph, picture) for picture in Picture)


# Plans


LINKS = ("hub", "blueprints", "near", "far")


def chain_world() -> ModelWorld:
    """Return a world where a package of a hub was taken by another hub by hand, and by us from there."""
    world = ModelWorld()
    for name in LINKS:
        world.add_repository(name)
    world.publish("hub", "web", blueprint("web", a_yaml="a: 1\n"), 1)
    origin = f"repo: {world.repositories['hub'].url}, directory: web, ref: web/v1, commit: {'a' * 40}"
    lock = f"upstreamLock: {{type: git, git: {{{origin}}}}}\n"
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 1\n", Kptfile=_kptfile(lock)), 1)
    for before, here in pairwise(LINKS[1:]):
        world.variants[here] = PackageVariantSpec(
            upstream=Upstream(repo=before, package="web"),
            downstream=Downstream(repo=here, package="web"),
        )
    return world


def _kptfile(extra: str) -> str:
    return f"apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n{extra}"


def test_plan_gives_packages_with_their_upstreams_and_states() -> None:
    world = chain_world()
    world.run()
    world.merge("near", world.drafts("near")[0])
    world.run()

    far, near = fleet_packages(world.plan())

    hub_of = {each.name: (each.main, each.review, each.state) for each in (far, near)}
    key = {name: PackageKey(world.repositories[name].url, "web") for name in LINKS}
    assert hub_of == {
        "near/web": (UpstreamVersion(key["blueprints"], "blueprints/web", "web/v1"), None, "published"),
        "far/web": (None, UpstreamVersion(key["near"], "near/web", "web/v1"), "in review"),
    }
    assert (near.on_main, near.in_review, far.on_main, far.in_review) == (True, False, False, True)
    assert near.names >= {"default/near", "near/web", "near", "blueprints/web"}


def test_chain_goes_on_through_packages_that_nobody_here_made() -> None:
    world = chain_world()
    world.run()
    plan = world.plan()
    packages = fleet_packages(plan)
    assert plan.context is not None

    published = published_upstreams(plan.context.inventory, packages)
    graph = fleet_graph(packages, published, packages)

    assert [node.label for node in graph.groups[-1].nodes][:3] == ["hub/web", "blueprints/web", "near/web"]
    assert graph.groups[-1].edges[0].label == "web/v1 on main"


def test_package_that_is_in_a_draft_only_has_no_version_on_main() -> None:
    header = KptfileHeader(upstream_lock=GitUpstream("r", "web", "web/v1", "a" * 40))
    state = PackageState("web", main_tree=None, main_header=header)
    context = web_context(a_target(package=state, draft=a_draft(header=header)))

    (package,) = fleet_packages(Plan(context=context, changes=(KEPT,)))

    assert (package.on_main, package.main, package.in_review) == (False, None, True)
    assert package.review == UpstreamVersion(PackageKey("r", "web"), "r//web", "web/v1", is_registered=False)
    assert published_upstreams(context.inventory, (package,)) == {}


def test_filters_match_any_name_and_the_cluster() -> None:
    package = a_package("edge-1/web", cluster="prod", names=frozenset({"edge-1/web", "web"}))

    assert package.matches((), "")
    assert package.matches(("nope", "edge-*"), "prod")
    assert not package.matches(("edge",), "")
    assert not package.matches(("web",), "test")


# Forms


HOSTILE = 'a"]; end\n--> <script>&x</script> \x1b[31m`#1;` \\'
HOSTILE_UPSTREAM = UpstreamVersion(PackageKey(HOSTILE, HOSTILE), HOSTILE, HOSTILE)
HOSTILE_FLEET = graph_of(
    a_package(HOSTILE, upstream(1), package=HOSTILE_UPSTREAM.package),
    a_package(
        HOSTILE, HOSTILE_UPSTREAM, HOSTILE_UPSTREAM._replace(version=f"{HOSTILE}2"),
        group=HOSTILE, repository=HOSTILE, cluster=f"{HOSTILE}3", state=HOSTILE,
    ),
)  # fmt: skip


def test_value_is_as_its_schema_says_and_has_counts_and_names() -> None:
    for graph in (HOSTILE_FLEET, graph_of(*fleet(20, 1)), graph_of()):
        assert output_violations("Graph", json.dumps(graph_value(graph))) == []
    value = graph_value(graph_of(*fleet(20, 1)))
    box, edge = value["groups"][0]["nodes"][-1], value["groups"][0]["edges"][-1]
    assert (value["of"], len(box["packages"]), box["states"]) == ("packages", 20, {"published": 20})
    assert (edge["label"], edge["main"], edge["review"]) == ("on main", 20, 0)


def test_hostile_names_stay_text_in_every_form() -> None:
    root = ET.fromstring(draw(HOSTILE_FLEET, Picture.SVG))
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    mermaid = draw(HOSTILE_FLEET, Picture.MERMAID).splitlines()
    dot = re.sub(r'"(\\.|[^"\\])*"', "", draw(HOSTILE_FLEET, Picture.DOT))

    assert tags <= {"svg", "title", "desc", "style", "path", "rect", "text"}
    assert all(line.count('"') in (0, 2) for line in mermaid)
    texts = [text for line in mermaid for text in re.findall('"(.*)"', line)]
    assert all(re.fullmatch(r"(#\d+;|<br/>|[\w ._/:@+-])*", text) for text in texts)
    assert '"' not in dot
    assert "script" not in dot
    assert not any("\x1b" in draw(HOSTILE_FLEET, picture) for picture in Picture)


def test_svg_has_no_words_of_dependencies() -> None:
    text = draw(graph_of(a_package("edge-1/web", upstream(1), upstream(2))), Picture.SVG)

    assert "required" not in text
    assert "also from blueprints/web" in text
