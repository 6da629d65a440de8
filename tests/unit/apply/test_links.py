"""Links in the text of pull requests: the pages of each forge, and none where they are not known."""

from pathlib import Path
from typing import Any

import pytest

from reconciler.apply.links import Links, UpstreamLog, find_web, known_bases, local_origins
from reconciler.base.errors import Location
from reconciler.base.redact import MASK
from reconciler.git.repository import Mirrors
from reconciler.names.ids import PackageKey
from reconciler.plan.changes import Op, PullRequestContent, UpstreamCommits
from reconciler.policy import ForgeKind, ForgeRule, Limits
from reconciler.render.update import Conflict
from reconciler.report.report import UpstreamChange
from tests.support.git import PERSON, make_repository
from tests.support.plan_values import a_change, a_conflict
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


COMMIT, OLD, NEW = ("2" * 40, "3" * 40, "4" * 40)
EDGE, UP, CONTROL = (f"https://github.com/acme/{name}" for name in ("edge", "up", "control"))


def content(before: str = OLD, remote: str = f"{UP}.git") -> PullRequestContent:
    return PullRequestContent(Op.UPDATE, upstream=UpstreamCommits(remote, "dir/web", before, NEW))


ALL = {
    "package": f"{EDGE}/tree/MAIN/db",
    "manifest": f"{CONTROL}/blob/SOURCE/fleet.yaml#L7",
    "upstream": f"{UP}/compare/{OLD}...{NEW}",
}


@pytest.mark.parametrize(
    ("fields", "base", "links"),
    [
        ({}, "main", ALL),
        ({"package": PackageKey("file:///edge", "new")}, "main", {**ALL, "package": None}),
        ({}, "gone", {**ALL, "package": None}),
        ({"location": Location("other.yaml", 7)}, "main", {**ALL, "manifest": None}),
        ({"location": None}, "main", {**ALL, "manifest": None}),
        ({"request": None}, "main", {**ALL, "upstream": None}),
        ({"request": content(remote="/srv/up")}, "main", {**ALL, "upstream": None}),
        ({"request": content("")}, "main", {**ALL, "upstream": f"{UP}/tree/{NEW}/dir/web"}),
        ({"request": content(NEW)}, "main", {**ALL, "upstream": f"{UP}/tree/{NEW}/dir/web"}),
    ],
)
def test_links_lead_to_what_is_there(
    tmp_path: Path, fields: dict[str, Any], base: str, links: dict[str, str | None]
) -> None:
    edge = Edge(tmp_path)
    mirror, source = edge.mirror(), make_repository(tmp_path / "control.git", {"fleet.yaml": "a: 1"})
    control = Mirrors(tmp_path / "cache").open(str(source.path))
    control.fetch()
    mirror.remote, control.remote = f"{EDGE}.git", f"{CONTROL}.git"
    main, commit = edge.repo.oid("main"), source.oid("main")
    change = replace(edge.change("db"), location=Location("fleet.yaml", 7), request=content())

    made = dict(Links((), control, commit).of(replace(change, **fields), mirror, base))
    differences = [
        Links().whole_difference(mirror, *names) for names in (("main", "main"), ("main", "x"), ("x", "main"))
    ]

    expected = {name: link for name, link in links.items() if link}
    assert {n: link.replace(main, "MAIN").replace(commit, "SOURCE") for n, link in made.items()} == expected
    assert differences == [f"{EDGE}/compare/{main}...{main}", "", ""]


@pytest.mark.parametrize("package", ["apps/web", ""])
@pytest.mark.parametrize("text", ["port 3\n", None], ids=["changed", "deleted"])
def test_value_of_a_conflict_comes_from_the_newest_commit_that_set_it(
    tmp_path: Path, package: str, text: str | None
) -> None:
    path = f"{package}/notes.txt".lstrip("/")
    repo = make_repository(tmp_path / "edge.git", {path: "port 1\n"})
    repo.commit({path: "port 2\n"})
    newest = repo.commit({path: text}, message="Set it\n\nBecause.\n")
    repo.commit({"other/notes.txt": "port 4\n"})
    mirror = Mirrors(tmp_path / "cache").open(str(repo.path))
    mirror.fetch()
    note = a_conflict("notes.txt", "", "port 9\n", text, name="x")
    change = a_change(package=PackageKey("file:///edge", package), conflicts=(note,))

    origins = local_origins(mirror, "main", change)

    assert origins == {"x": UpstreamChange(newest, "Set it", PERSON.name, replaced="port 2\n")}
    assert local_origins(mirror, "gone", change) == {}


@pytest.mark.parametrize(
    ("note", "base"),
    [
        (a_conflict("a.yaml", "f", "1", "2", name="x"), "0"),
        (a_conflict("a.yaml", "f", "1", "2", name="x", base="9"), "9"),
        (a_conflict("a.yaml", "f", MASK, "2", name="x"), None),
        (a_conflict("a.yaml", "f", "1", MASK, name="x"), None),
        (a_conflict("a.yaml", "f", "1", "2", name="y"), None),
    ],
    ids=["unknown", "known", "hidden upstream", "hidden here", "of no commit"],
)
def test_conflict_has_the_value_that_a_commit_replaced_where_it_knows_none(
    note: Conflict, base: str | None
) -> None:
    origins = {"x": UpstreamChange(COMMIT, "Set it", "Ada", replaced="0")}

    (found,) = known_bases(a_change(conflicts=(note,)), origins).conflicts

    assert found == replace(note, base=base)


def test_commits_of_an_upstream_have_their_first_line_and_those_elsewhere_are_left_out(
    tmp_path: Path,
) -> None:
    repo = make_repository(tmp_path / "up.git", {"web/Kptfile": "1", "README.md": "1"})
    old = repo.oid("main")
    changed = repo.commit({"web/Kptfile": "2"}, message="Grow web\n\nBecause it is small.\n")
    new = repo.commit({"README.md": "2"}, message="Tell of it\n")
    log = UpstreamLog(Mirrors(tmp_path / "cache"), Limits())

    def titles(before: str, after: str) -> list[tuple[str, str]]:
        upstream = UpstreamCommits(str(repo.path), "web", before, after)
        return [(change.commit, change.subject) for change in log.changes(upstream)]

    assert titles(old, new) == titles(new, old) == [(changed, "Grow web")]
    assert titles(changed, new) == titles("", new) == []
    assert titles("1" * 40, new)[0] == (changed, "Grow web")
