"""Pictures of a graph: goldens, hostile names, circles, and any order of the inputs."""

from pathlib import Path

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import FleetLocks, LockUpdate
from reconciler.dependencies.lock.update import update_locks
from reconciler.dependencies.model.instances import COMPOSITION, OwnershipEntry
from reconciler.dependencies.model.packages import Ecosystem, PackageId
from reconciler.report.locks import Edge, GraphNode, Group, dependency_graph, find_path, highlight, text_tree
from tests.support.dependency_manifests import crossplane, install, needs, package, provider, world_of
from tests.support.values import replace

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


@pytest.mark.parametrize(("name", "groups"), [("fleet", FLEET), ("why", WHY)])
def test_picture_is_as_reviewed(name: str, groups: tuple[Group, ...], *, update_golden: bool) -> None:
    golden = PICTURES / f"{name}.text"
    drawn = "\n".join(text_tree(groups)) + "\n"
    if update_golden:
        golden.write_text(drawn)
    assert drawn == golden.read_text()


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("Bucket.s3.aws.io", "xpkg:x.io/aws@cluster"),
        ("xpkg:x.io/aws@cluster", "xpkg:x.io/aws@cluster"),
        ("xpkg:x.io/aws", "xpkg:x.io/aws@cluster"),
        ("x.io/aws", "xpkg:x.io/aws@cluster"),
        ("aws", "xpkg:x.io/aws@cluster"),
        ("io/aws", ""),
    ],
)
def test_package_has_several_names_and_that_of_its_kind(name: str, end: str) -> None:
    assert [group.nodes[-1].key for group in highlight(FLEET, name)] == [end] * bool(end)


def test_shortest_way_is_shown_to_packages_of_one_name() -> None:
    far, near = (PackageId(Ecosystem.XPKG, f"{host}/acme/shop") for host in ("x.io", "y.io"))
    nodes = (GraphNode("far", "", package=far), GraphNode("via", ""), GraphNode("near", "", package=near))
    edges = (Edge("m", "via"), Edge("via", "far"), Edge("m", "near"))
    group = Group("dev", (GraphNode("m", "manifest m", is_root=True), *nodes), edges)

    assert GraphNode("", "", owns=(f"{COMPOSITION}shops",)).names == ("", "shops")
    (shown,) = highlight([group], "shop")

    assert ([node.key for node in shown.nodes], shown.edges) == (["m", "near"], (Edge("m", "near"),))


def test_locks_of_one_cluster_are_drawn_alone() -> None:
    locks = fleet_locks()

    assert [group.title for group in dependency_graph(locks)] == ["dev, test", "prod"]
    assert [group.title for group in dependency_graph(locks, cluster="test")] == ["test"]
    assert dependency_graph(locks, cluster="none") == ()
    assert text_tree([Group("empty")]) == ["empty", "  no package is locked"]


@pytest.mark.parametrize(
    ("entry", "owns", "notes"),
    [
        ({"controller": "aws-1"}, {"aws": ("Bucket.x.io",)}, {}),
        ({"retained": True}, {}, {"aws": ("Bucket.x.io stays without a controller",)}),
        ({}, {}, {"aws": ("Bucket.x.io is not there yet",)}),
        ({"package": "gone", "retained": True}, {}, {"gone": ("Bucket.x.io goes with it",)}),
        ({"package": "gone", "retained": True, "object": "Configuration/platform"}, {},
            {"platform": ("Bucket.x.io stays without a controller",)}),
        ({"package": "gone", "controller": "g", "object": "Configuration/platform"}, {}, {}),
        ({"package": None}, {}, {}),
    ],
)  # fmt: skip
def test_kind_is_with_its_owner_or_with_what_left_it(entry, owns, notes) -> None:
    """`gone` is a package that nothing installs any more."""
    scope = next(scope for scope in fleet_locks().scopes if scope.cluster == "prod")
    assert scope.after is not None
    aws = next(p.instance for p in scope.after.resolution.packages if "aws" in p.instance.name)
    owners = {"aws": aws, "gone": replace(aws, name="x.io/gone"), None: None}
    owned = OwnershipEntry(**{**entry, "package": owners[entry.get("package", "aws")]})
    resolution = replace(scope.after.resolution, custom_resource_definitions={"Bucket.x.io": owned})
    after = replace(scope.after, resolution=resolution)

    (group,) = dependency_graph(LockUpdate(scopes=(replace(scope, after=after),)))

    names = {node.key: node.key.partition("@")[0].rpartition("/")[2] for node in group.nodes}
    assert {names[node.key]: node.owns for node in group.nodes if node.owns} == owns
    assert {names[node.key]: node.notes for node in group.nodes if node.notes} == notes
    assert [node.label for node in group.nodes if names[node.key] == "gone"] == [
        "x.io/gone, which is removed"
    ] * ("gone" in notes)


def test_picture_does_not_depend_on_the_order_of_clusters() -> None:
    assert dependency_graph(fleet_locks(reverse=True)) == FLEET


HOSTILE = 'a"]; end\n--> <script>&x</script> \x1b[31m`#1;` \\'
NODES = (GraphNode("r", HOSTILE, is_root=True), GraphNode("p", HOSTILE, notes=(HOSTILE,)))
HOSTILE_GROUP = Group(HOSTILE, NODES, (Edge("r", "p", HOSTILE),))


def test_nothing_invisible_is_drawn() -> None:
    """A variation selector, two fillers that count as letters, a joiner, a tag, an override."""
    hidden = "\ufe0f\u3164\uffa0\u034f\U000e0041\U000e0101\u202e"
    nodes = tuple(replace(node, label=f"a{hidden}b") for node in NODES)

    assert not set("".join(text_tree([Group(hidden, nodes, (Edge("r", "p", hidden),))]))) & set(hidden)


def test_hostile_names_stay_on_their_line_of_text() -> None:
    drawn = text_tree([HOSTILE_GROUP])

    assert (len(drawn), len("\n".join(drawn).splitlines())) == (4, 4)
    assert "\x1b" not in "".join(drawn)


def circle(*steps: str) -> Group:
    edges = tuple(Edge(source, target) for source, target in steps)
    return Group(
        "g", tuple(GraphNode(key, key) for key in sorted({k for step in steps for k in step})), edges
    )


@pytest.mark.parametrize("steps", [("ab", "ba"), ("aa",), ("ab", "bc", "ca", "da")])
def test_circles_are_drawn_once_with_every_node(steps: tuple[str, ...]) -> None:
    group = circle(*steps)

    _, *rows = text_tree([group])
    drawn = [row.strip(" │├└─") for row in rows if not row.endswith(" (see above)")]
    assert sorted(drawn) == [node.key for node in group.nodes]


def test_path_starts_at_a_root_and_is_empty_without_one() -> None:
    group = circle("ab", "bc")

    assert find_path(group, "c") == ()
    rooted = replace(group, nodes=(GraphNode("a", "a", is_root=True), *group.nodes[1:]))
    assert find_path(rooted, "c") == ("a", "b", "c")
