"""Pictures of a graph: goldens of every form, hostile names, circles, and any order of the inputs."""

import json
import re
from pathlib import Path

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.convert import FleetLocks
from reconciler.dependencies.lock.format import LockUpdate
from reconciler.dependencies.update.fleet import update_locks
from reconciler.report.dependency_graph import dependency_graph, highlight
from reconciler.report.graph import (
    Edge,
    Graph,
    GraphNode,
    Group,
    NodeRole,
    find_path,
    graph_value,
    mermaid,
    text_tree,
)
from tests.support.dependency_manifests import crossplane, install, needs, package, provider, world_of
from tests.support.schema import output_violations
from tests.support.values import replace

FORMS = {"text": text_tree, "mermaid": mermaid}
PICTURES = Path(__file__).parents[3] / "fixtures/graphs"
SHOP = (
    install("shop", "shop.io", "")
    + install("blog", "blog.io", "")
    + package("shop.io", "1.0.0", needs("db.io", ">=1.0.0"), needs("certs.io"))
    + package("blog.io", "2.1.0", needs("db.io", "<2.0.0"), "{gvk: {apiVersion: apps/v1, kind: Deployment}}")
    + package("db.io", "1.4.0", needs("certs.io"), "provides: [{apiVersion: db.io/v1, kind: Database}]")
    + package("certs.io", "1.0.0", "provides: [{apiVersion: certs.io/v1, kind: Issuer}]")
    + "---\n{kind: Cluster, apis: [apps/v1/Deployment]}\n"
)
PLATFORM = (
    provider("platform", "v1.0.0", "Configuration")
    + crossplane("platform", "v1.0.0", "[{provider: x.io/aws, version: '>=v1.0.0'}]")
    + crossplane("aws", "v1.2.0", "[]", "s3.aws.io/v1/Bucket")
)


def fleet_locks(*, reverse: bool = False) -> LockUpdate:
    clusters = [("dev", SHOP), ("test", SHOP), ("prod", PLATFORM)]
    worlds = tuple(replace(world_of(text), cluster=name) for name, text in clusters)
    return update_locks(FleetInputs(worlds[::-1] if reverse else worlds), FleetLocks())


FLEET = dependency_graph(fleet_locks())
WHY = highlight(FLEET, "certs.io")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "graph"), [("fleet", FLEET), ("why", WHY)])
def test_picture_is_as_reviewed(name: str, graph: Graph, form: str, *, update_golden: bool) -> None:
    golden = PICTURES / f"{name}.{form}"
    drawn = FORMS[form](graph)
    if update_golden:
        golden.write_text(drawn)
    assert drawn == golden.read_text()


def test_kind_leads_to_its_owner() -> None:
    (group,) = highlight(FLEET, "Bucket.s3.aws.io").groups

    assert group.path[-1] == "xpkg:x.io/aws@cluster"


@pytest.mark.parametrize("graph", [FLEET, WHY, Graph("none")], ids=["fleet", "why", "empty"])
def test_value_is_as_its_schema_says(graph: Graph) -> None:
    assert output_violations("Graph", json.dumps(graph_value(graph))) == []


def test_picture_does_not_depend_on_the_order_of_clusters() -> None:
    assert dependency_graph(fleet_locks(reverse=True)) == FLEET


HOSTILE = 'a"]; end\n--> <script>&x</script> \x1b[31m`#1;` \\'
NODES = (GraphNode("r", HOSTILE, NodeRole.ROOT), GraphNode("p", HOSTILE, notes=(HOSTILE,)))
HOSTILE_GRAPH = Graph(HOSTILE, (Group(HOSTILE, NODES, (Edge("r", "p", HOSTILE),)),), HOSTILE)
PLAIN = tuple(replace(node, label="a", notes=("a",) * len(node.notes)) for node in NODES)
PLAIN_GRAPH = Graph("a", (Group("a", PLAIN, (Edge("r", "p", "a"),)),), "a")


def test_hostile_names_stay_inside_quotes_in_mermaid() -> None:
    lines = mermaid(HOSTILE_GRAPH).splitlines()

    assert all(line.count('"') in (0, 2) for line in lines)
    texts = [text for line in lines for text in re.findall('"(.*)"', line)]
    assert all(re.fullmatch(r"(#\d+;|<br/>|[\w ._/:@+-])*", text) for text in texts)
    assert len(lines) == len(mermaid(PLAIN_GRAPH).splitlines())


@pytest.mark.parametrize("form", FORMS)
def test_nothing_invisible_is_drawn(form: str) -> None:
    """A variation selector, two fillers that count as letters, a joiner, a tag, an override."""
    hidden = "\ufe0f\u3164\uffa0\u034f\U000e0041\U000e0101\u202e"
    nodes = tuple(replace(node, label=f"a{hidden}b") for node in NODES)

    drawn = FORMS[form](Graph(hidden, (Group(hidden, nodes, (Edge("r", "p", hidden),)),), hidden))

    assert not set(drawn) & set(hidden)


def test_hostile_names_stay_on_their_line_of_text() -> None:
    assert len(text_tree(HOSTILE_GRAPH).splitlines()) == 4
    assert "\x1b" not in text_tree(HOSTILE_GRAPH)


def circle(*steps: str) -> Group:
    edges = tuple(Edge(source, target) for source, target in steps)
    return Group(
        "g", tuple(GraphNode(key, key) for key in sorted({k for step in steps for k in step})), edges
    )


@pytest.mark.parametrize("steps", [("ab", "ba"), ("aa",), ("ab", "bc", "ca", "da")])
def test_circles_are_drawn_once_with_every_node(steps: tuple[str, ...]) -> None:
    group = circle(*steps)

    _, *rows = text_tree(Graph("g", (group,))).splitlines()
    drawn = [row.strip(" │├└─") for row in rows if not row.endswith(" (see above)")]
    assert sorted(drawn) == [node.key for node in group.nodes]
    assert len(mermaid(Graph("g", (group,))).splitlines()) == 10 + len(group.nodes) + len(group.edges)


def test_path_starts_at_a_root_and_is_empty_without_one() -> None:
    group = circle("ab", "bc")

    assert find_path(group, "c") == ()
    rooted = replace(group, nodes=(GraphNode("a", "a", NodeRole.ROOT), *group.nodes[1:]))
    assert find_path(rooted, "c") == ("a", "b", "c")
