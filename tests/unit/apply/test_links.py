"""Links in the text of pull requests: the pages of each forge, and none where they are not known."""

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.apply.links import NO_LINKS, Links, UpstreamLog, find_web, local_origins
from reconciler.base.errors import Location
from reconciler.git.repository import Mirrors
from reconciler.names.ids import Oid, PackageKey
from reconciler.plan.changes import Change, Op, PullRequestContent, UpstreamCommits
from reconciler.policy import ForgeKind, ForgeRule
from tests.support.git import make_repository
from tests.support.plan_values import a_conflict
from tests.support.values import replace
from tests.unit.apply.world import Edge

RULES = (
    ForgeRule("https://git.example.com:3000/acme", ForgeKind.GITEA),
    ForgeRule("https://git.example.com/acme", ForgeKind.GITLAB),
    ForgeRule("https://git.example.com/local", ForgeKind.LOCAL),
    ForgeRule("https://ghe.example.com/", ForgeKind.GITHUB),
    ForgeRule("ssh://git@git.example.com/acme", ForgeKind.GITLAB),
)


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/acme/web.git", "https://github.com/acme/web"),
        ("https://token@github.com/acme/web", "https://github.com/acme/web"),
        ("git@github.com:acme/web.git", "https://github.com/acme/web"),
        ("ssh://git@codeberg.org/acme/web.git", "https://codeberg.org/acme/web"),
        ("https://git.example.com/acme/a/b.git", "https://git.example.com/acme/a/b"),
        ("https://git.example.com:3000/acme/web/", "https://git.example.com:3000/acme/web"),
        ("ssh://git@git.example.com/acme/web", ""),
        ("https://git.example.com/local/web", ""),
        ("https://other.example.com/acme/web", ""),
        ("/srv/git/web.git", ""),
        ("https://ghe.example.com/acme/we(b", ""),
    ],
)
def test_pages_are_known_by_the_rule_or_the_public_host(remote: str, address: str) -> None:
    web = find_web(remote, RULES)

    assert (web.address if web else "") == address


@pytest.mark.parametrize(
    ("remote", "compare", "directory", "line"),
    [
        ("https://ghe.example.com/acme/web", "/compare/a...b", "/tree/c/x%20y/web",
            "/blob/c/m%5B1%5D.yaml#L7"),
        ("https://git.example.com/acme/web", "/-/compare/a...b", "/-/tree/c/x%20y/web",
            "/-/blob/c/m%5B1%5D.yaml#L7"),
        ("https://git.example.com:3000/acme/web", "/compare/a...b", "/src/commit/c/x%20y/web",
            "/src/commit/c/m%5B1%5D.yaml#L7"),
    ],
)  # fmt: skip
def test_addresses_are_those_of_the_forge(remote: str, compare: str, directory: str, line: str) -> None:
    web = find_web(remote, RULES)

    assert web is not None
    assert web.compare("a", "b") == remote + compare
    assert web.directory("c", "x y/web") == remote + directory
    assert web.line("c", "m[1].yaml", 7) == remote + line
    assert [web.line("c", "m", line).partition("#")[2] for line in (0, 1, 7)] == ["", "L1", "L7"]


MAIN, HEAD, COMMIT, OLD, NEW = ("0" * 40, "1" * 40, "2" * 40, "3" * 40, "4" * 40)
EDGE, UP, CONTROL = (f"https://github.com/acme/{name}" for name in ("edge", "up", "control"))


def repository(remote: str, packages: tuple[str, ...] = (), **branches: str) -> Any:
    """Return a repository with packages on MAIN, whose only file is `fleet.yaml` at COMMIT."""
    refs = {f"refs/heads/{name}": Oid(oid) for name, oid in branches.items()}
    return SimpleNamespace(
        remote=remote,
        refs=lambda: refs,
        subtree=lambda commit, path: "tree" if commit == MAIN and path in packages else None,
        blob_at=lambda commit, path: "blob" if (commit, path) == (COMMIT, "fleet.yaml") else None,
    )


@pytest.fixture
def change(tmp_path: Path) -> Change:
    upstream = UpstreamCommits(f"{UP}.git", "dir/web", OLD, NEW)
    return replace(
        Edge(tmp_path).change("apps/web"),
        before=Oid("5" * 40),
        location=Location("fleet.yaml", 7),
        request=PullRequestContent(Op.UPDATE, upstream=upstream),
    )


LINKS = Links((), repository(CONTROL), Oid(COMMIT))
ALL = {
    "package": f"{EDGE}/tree/{MAIN}/apps/web",
    "manifest": f"{CONTROL}/blob/{COMMIT}/fleet.yaml#L7",
    "upstream": f"{UP}/compare/{OLD}...{NEW}",
}


def links_of(change: Change, links: Links = LINKS, edge: str = EDGE, **branches: str) -> dict[str, str]:
    own = repository(edge, ("apps/web",), **(branches or {"main": MAIN}))
    return dict(links.of(change, own, "main"))


def test_package_manifest_and_upstream_of_a_change_are_linked(change: Change) -> None:
    assert links_of(change) == ALL


def without(name: str) -> dict[str, str]:
    return {key: address for key, address in ALL.items() if key != name}


def test_package_that_main_does_not_have_is_not_linked(change: Change) -> None:
    new = replace(change, package=change.package._replace(path="apps/new"))
    assert links_of(new) == without("package")
    assert links_of(change, main=HEAD) == without("package")
    assert links_of(change, other=MAIN) == without("package")
    assert links_of(change, edge="https://unknown.example/acme/edge") == without("package")


def test_manifest_is_linked_if_the_control_repository_has_its_file(change: Change) -> None:
    elsewhere = replace(change, location=Location("other.yaml", 7))
    assert links_of(elsewhere) == links_of(replace(change, location=None)) == without("manifest")
    assert links_of(change, Links()) == links_of(change, NO_LINKS) == without("manifest")
    assert links_of(change, replace(LINKS, commit=None)) == without("manifest")
    unknown = replace(LINKS, control=repository("https://unknown.example/control"))
    assert links_of(change, unknown) == without("manifest")


def test_upstream_is_linked_as_a_difference_or_as_what_is_new(change: Change) -> None:
    def upstream(remote: str, before: str) -> str | None:
        request = PullRequestContent(Op.UPDATE, upstream=UpstreamCommits(remote, "dir/web", before, NEW))
        return links_of(replace(change, request=request)).get("upstream")

    assert upstream(UP, OLD) == f"{UP}/compare/{OLD}...{NEW}"
    assert upstream(UP, NEW) == upstream(UP, "") == f"{UP}/tree/{NEW}/dir/web"
    assert upstream("https://unknown.example/up", OLD) is None
    assert links_of(replace(change, request=None)) == without("upstream")
    assert links_of(replace(change, request=PullRequestContent(Op.UPDATE))) == without("upstream")


def test_links_follow_the_rules_of_the_configuration(change: Change) -> None:
    rules = (ForgeRule("https://github.com/acme/up", ForgeKind.GITEA), ForgeRule(EDGE, ForgeKind.LOCAL))

    assert links_of(change, replace(LINKS, rules=rules)) == without("package")
    request = PullRequestContent(Op.CREATE, upstream=UpstreamCommits(UP, "web", "", NEW))
    linked = links_of(replace(change, request=request), replace(LINKS, rules=rules))
    assert linked["upstream"] == f"{UP}/src/commit/{NEW}/web"


@pytest.mark.parametrize(("has_base", "has_head", "is_known"), list(product([True, False], repeat=3)))
def test_whole_difference_is_linked_where_both_branches_and_the_pages_are_known(
    has_base: bool, has_head: bool, is_known: bool
) -> None:
    branches = ({"main": MAIN} if has_base else {}) | ({"draft": HEAD} if has_head else {})
    mirror = repository(EDGE if is_known else "/srv/edge.git", **branches)

    address = LINKS.whole_difference(mirror, "main", "draft")

    expected = f"{EDGE}/compare/{MAIN}...{HEAD}"
    assert address == (expected if has_base and has_head and is_known else "")


def test_commits_of_an_upstream_have_their_first_line_and_those_elsewhere_are_left_out(
    tmp_path: Path,
) -> None:
    repo = make_repository(tmp_path / "up.git", {"web/Kptfile": "1", "README.md": "1"})
    old = repo.oid("main")
    changed = repo.commit({"web/Kptfile": "2"}, message="Grow web\n\nBecause it is small.\n")
    new = repo.commit({"README.md": "2"}, message="Tell of it\n")
    log = UpstreamLog(Mirrors(tmp_path / "cache"))

    def titles(before: str, after: str) -> list[tuple[str, str]]:
        upstream = UpstreamCommits(str(repo.path), "web", before, after)
        return [(change.commit, change.subject) for change in log.changes(upstream)]

    assert titles(old, new) == titles(new, old) == [(changed, "Grow web")]
    assert titles(changed, new) == titles("", new) == []
    assert titles("1" * 40, new)[0] == (changed, "Grow web")


def test_local_value_that_is_deleted_is_since_the_commit_that_deleted_it(
    tmp_path: Path, change: Change
) -> None:
    old, other = ("kind: ConfigMap\nmetadata:\n  name: conf\ndata:\n  a: " + value for value in "12")
    repo = make_repository(tmp_path / "edge.git", {"README.md": "1"})
    repo.commit({"web/conf.yaml": old, "web/x.yaml": old}, message="Clone\n")
    repo.commit({"web/conf.yaml": None}, message="Drop conf\n")
    repo.commit({"web/x.yaml": other}, message="Change x\n")
    notes = (
        a_conflict("conf.yaml", "", other, None, "ConfigMap conf", "of conf"),
        a_conflict("x.yaml", "data.a", "3", "2", "ConfigMap conf", "of x"),
    )
    mirror = Mirrors(tmp_path / "cache").open(str(repo.path))
    origins = local_origins(
        mirror, "main", replace(change, package=PackageKey(str(repo.path), "web"), conflicts=notes)
    )

    assert {name: origin.subject for name, origin in origins.items()} == {
        "of conf": "Drop conf",
        "of x": "Change x",
    }
    assert "a: 1" in (origins["of conf"].replaced or "")
