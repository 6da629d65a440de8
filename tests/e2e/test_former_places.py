"""What was placed stays on the books: Repositories that go, move, are renamed or cannot be understood (D36).

Each apply is followed by a second one from a fresh clone, which must write no ref of any repository.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.base.errors import Exit
from tests.support.edge_fleet import WAVES, EdgeFleet, blueprint, make_edges
from tests.support.git import Repo, make_repository
from tests.support.http_git import serve
from tests.support.small_world import CONFIGURATION, repository, variant
from tests.support.world import git, restored

SELECTED = {"repositorySelector": {"matchLabels": {"fleet": "web"}}}
PLACES = {"east": ("mono", "clusters/east"), "west": ("mono", "clusters/west"), "rome": ("rome", "")}


def registered(name: str, repo: str, directory: str, *, branch: str = "main") -> str:
    text = (
        repository(name)
        .replace(f"../{name}.git", f"../{repo}.git")
        .replace("branch: main", f"branch: {branch}")
    )
    text = text.replace("  namespace: default\n", "  namespace: default\n  labels: {fleet: web}\n")
    return f"{text}    directory: {directory}\n" if directory else text


def start(root: Path) -> EdgeFleet:
    """Two clusters in a monorepo and one with a repository of its own; v1 is on main, v2 is in review."""
    root.mkdir()
    upstream = make_repository(root / "blueprints.git")
    for revision in (1, 2):
        upstream.commit(blueprint(revision), message=f"web v{revision}\n")
        upstream.tag(f"web/v{revision}")
    for name in ("mono", "rome", "fresh"):
        make_repository(root / f"{name}.git", {"README.md": f"{name}\n"})
    files = {f"manifests/{name}.yaml": registered(name, *place) for name, place in PLACES.items()}
    files |= {"manifests/blueprints.yaml": repository("blueprints"), "reconciler.yaml": CONFIGURATION}
    make_repository(root / "control.git", files)
    world = EdgeFleet(root)
    world.want(1, target=SELECTED)
    world.settle()
    world.want(2, target=SELECTED)
    world.run("apply")
    return world


@pytest.fixture
def world() -> EdgeFleet:
    return restored("places", start)


def change(world: EdgeFleet, files: Mapping[str, str | None]) -> None:
    Repo(world.control).commit({f"manifests/{name}.yaml": text for name, text in files.items()})


def decided(world: EdgeFleet) -> dict[str, tuple[str, str]]:
    """Return operation and reason of each package of the plan, by its name."""
    return {name: (row["op"], row["reason"]) for name, row in world.rows().items()}


def opened(world: EdgeFleet) -> dict[str, str]:
    """Return the titles of open pull requests by package."""
    said = json.loads(world.run("pr", "list", "--output", "json").out)
    return {pull["package"]: pull["title"].partition(" from ")[0] for pull in said["items"]}


def on_main(world: EdgeFleet, repo: str, path: str, branch: str = "main") -> bool:
    files = git(world.root / f"{repo}.git", "ls-tree", "-r", "--name-only", branch).split()
    return f"{path}/Kptfile" in files


def image(world: EdgeFleet) -> str:
    """Return the revision that main has of west/web."""
    text = Repo(world.root / "mono.git").read("main", "clusters/west/web/app.yaml").decode()
    return text.partition("registry.example/web:")[2].split()[0]


def states(world: EdgeFleet) -> dict[str, str]:
    said: dict[str, Any] = json.loads(world.run("status", "--output", "json").out)
    packages = [owner["package"] for owner in said["items"] if owner.get("package")]
    return {f"{package['repository']}/{package['name']}": package["phase"] for package in packages}


MOVES = {
    "directory": (("mono", "sites/west"), "clusters/west/web", "directory clusters/west",
        "directory sites/west"),
    "address": (("fresh", ""), "clusters/west/web", "../mono.git", "../fresh.git"),
    "both": (("fresh", "west"), "clusters/west/web", "../mono.git", "../fresh.git"),
}  # fmt: skip


@pytest.mark.parametrize("move", MOVES)
def test_a_moved_repository_proposes_the_deletion_of_its_old_package(world: EdgeFleet, move: str) -> None:
    place, old, before, after = MOVES[move]
    change(world, {"west": registered("west", *place)})

    assert decided(world)[old] == ("delete", "Moved")
    row = world.rows()[old]["message"]
    assert before in row
    assert after in row
    world.apply()

    assert opened(world) == {
        old: "Delete web",
        "east/web": "Update web",
        "rome/web": "Update web",
        "west/web": "Create web",
    }
    assert states(world)[old] == "in review"
    assert "default/west moved" in world.run("explain", old).out
    for names in (["--all"], [old.replace("web", "*")]):
        assert "default/west moved" in (left := world.run("approve", *names, "--dry-run").err)
        assert "and the package is not merged at west/web yet" in left
    said = world.run("approve", "--all")
    assert said.code == Exit.DONE
    assert "approved west/web" in said.out
    assert f"{old}:" not in said.out
    assert f"approved {old}: removed" in world.run("approve", "--all").out
    world.apply()
    assert not on_main(world, "mono", "clusters/west/web")
    assert decided(world) == dict.fromkeys(("east/web", "rome/web", "west/web"), ("keep", "UpToDate"))


@pytest.mark.parametrize("name", ["west", "rome"])
def test_a_repository_that_is_gone_proposes_the_deletion_of_its_package(world: EdgeFleet, name: str) -> None:
    change(world, {name: None})

    package = f"{name}/web"
    assert decided(world)[package] == ("delete", "PlaceGone")
    assert f"Repository default/{name} is not registered any more, since commit" in world.run("plan").out
    said = world.run("check", "--base", git(world.control, "rev-parse", "main~1").strip())
    assert f"delete    {package}  (PlaceGone)" in said.out
    world.apply()

    assert opened(world)[package] == "Delete web"
    assert states(world)[package] == "in review"
    world.run("approve", "--all")
    world.apply()
    assert not on_main(world, *("mono", "clusters/west/web") if name == "west" else ("rome", "web"))
    assert package not in decided(world)


def test_a_package_at_a_former_place_waits_for_its_successor_in_a_rollout(world: EdgeFleet) -> None:
    world.configure(WAVES)
    world.run("apply")
    change(world, {"rome": registered("rome", "fresh", "")})
    world.apply()
    row = world.rows()["../rome/web"]
    assert (row["op"], row["reason"]) == ("keep", "AwaitingWave")
    assert "when rome/web, which takes its place in a rollout, is published" in row["message"]
    before = world.all_refs()["rome.git"]

    said = world.run("approve", "--all")

    assert "approved rome/web: web/v1" in said.out
    assert "../rome/web" not in said.out
    assert world.all_refs()["rome.git"] == before


def test_a_deletion_at_a_former_place_that_people_decline_is_not_proposed_again(world: EdgeFleet) -> None:
    change(world, {"rome": registered("rome", "fresh", "")})
    world.run("apply")
    (number,) = (number for number, pull in world.pulls("../rome").items() if pull["title"] == "Delete web")

    world.run("pr", "close", f"../rome#{number}")
    world.apply()

    assert decided(world)["../rome/web"] == ("keep", "Rejected")
    assert on_main(world, "rome", "web")


def test_an_unreadable_former_repository_waits_for_people(world: EdgeFleet) -> None:
    change(world, {"rome": None})
    shutil.move(world.root / "rome.git", world.root / "away.git")

    said = world.apply()

    assert said.code == Exit.WAITING
    assert decided(world)["rome/web"] == ("keep", "PlaceGone")
    assert states(world)["rome/web"] == "held back"
    assert "Repository default/rome is not registered any more" in world.run("explain", "rome/web").out
    for command in (("explain", "--history"), ("approve",), ("pr", "show")):
        assert world.run(*command, "rome/web").code == Exit.UNAVAILABLE
    consent = world.rows()["rome/web"]["message"].partition("spec.consents: {")[2].partition(":")[0]
    world.configure(f"  consents: {{{consent}: Rome was torn down}}\n")
    world.apply()
    assert "rome/web" not in decided(world)
    shutil.move(world.root / "away.git", world.root / "rome.git")
    assert "rome/web" not in decided(world)


def test_all_repositories_that_go_by_mistake_need_consent(world: EdgeFleet) -> None:
    change(world, dict.fromkeys(PLACES))

    said = world.apply()

    assert said.code == Exit.REFUSED
    assert set(decided(world).values()) == {("keep", "DeletionGuard")}
    assert "PackageVariantSet default/web selects nothing any more" in said.err + said.out
    assert all(title == "Update web" for title in opened(world).values())
    change(world, {name: registered(name, *place) for name, place in PLACES.items()})
    world.apply()
    assert set(decided(world).values()) == {("keep", "InReview")}


@pytest.mark.parametrize(
    ("broken", "reason", "outer"),
    [
        ("brnch", "OwnerStalled", True),
        ("kind", "OwnerStalled", False),
        ("yaml", "ManifestUnreadable", False),
        ("yaml", "ManifestUnreadable", True),
    ],
)
def test_nothing_merges_or_closes_a_pull_request_of_a_repository_that_is_not_understood(
    world: EdgeFleet, broken: str, reason: str, *, outer: bool
) -> None:
    text = registered("west", *PLACES["west"])
    wrong = {
        "brnch": text.replace("branch:", "brnch:"),
        "kind": text.replace("kind: Repository", "kind: Repositry"),
        "yaml": "{{{",
    }
    others = {"mono": registered("mono", "mono", "").replace("fleet: web", "role: all")} if outer else {}
    change(world, {"west": wrong[broken], **others})
    world.configure("  approval: {auto: [{selector: {}}]}\n")
    before = world.all_refs()["mono.git"]

    said = world.run("apply")

    assert said.code == Exit.INVALID_INPUT
    assert decided(world)["west/web"] == ("keep", reason)
    assert "west/web" in opened(world)
    said = world.run("approve", "--all")
    assert "west/web, is left: Repository default/west is not" in said.err + said.out
    for command in (
        "approve west/*",
        "approve mono/*",
        "pr merge *",
        "pr merge mono/*",
        "pr close east/clusters/*",
    ):
        assert world.run(*command.split()).code == Exit.USAGE
    after = world.all_refs()["mono.git"]
    west = {ref for ref in before if "clusters/west" in ref or ref.endswith("pulls/4")}
    assert {ref: after.get(ref) for ref in west} == {ref: before[ref] for ref in west}
    change(world, {"west": text})
    world.run("apply")
    assert image(world) == "v2"


@pytest.mark.parametrize("grouped", [False, True])
def test_a_repository_around_one_that_is_gone_does_not_approve_for_it(
    world: EdgeFleet, *, grouped: bool
) -> None:
    """A directory inside that of another Repository; the manifest of its package still asks for it."""
    alone = variant("west", "web", revision=2).replace("web-west", "own")
    label = registered("west", *PLACES["west"]).replace("fleet: web", "role: own")
    around = (
        registered("around", "mono", "clusters").replace("fleet: web", "role: all").replace("true", "false")
    )
    change(world, {"west": label, "around": around, "own": alone})
    world.settle()
    world.configure("  pullRequests: {groupBy: repository}\n" if grouped else "")
    change(world, {"own": alone.replace("revision: 2", "revision: 1")})
    world.run("apply")
    change(world, {"west": None})

    assert decided(world)["around/west/web"] == ("keep", "OwnerStalled")
    for command in (("approve", "--all"), ("approve", "around/*"), ("pr", "merge", "around/*")):
        world.run(*command)
    assert image(world) == "v2"


@pytest.mark.parametrize(("gone", "grouped"), [(True, False), (False, True)])
def test_no_pattern_merges_a_draft_whose_variant_is_not_understood(
    world: EdgeFleet, *, gone: bool, grouped: bool
) -> None:
    """It names a Repository that is gone, or has an error of its own."""
    alone = variant("rome", "web", revision=1).replace("web-rome", "own")
    label = registered("rome", *PLACES["rome"]).replace("fleet: web", "role: own")
    if grouped:
        world.configure("  pullRequests: {groupBy: repository}\n")
    change(world, {"rome": label, "own": alone})
    world.settle()
    change(world, {"own": alone.replace("revision: 1", "revision: 2")})
    world.run("apply")
    broken = {"rome": None} if gone else {"own": alone.replace("revision: 1", "revison: 2")}
    change(world, broken)
    world.run("apply")
    before = world.all_refs()["rome.git"]

    assert decided(world)["rome/web"] == ("keep", "OwnerStalled")
    said = world.run("approve", "--all")
    assert "is left: PackageVariant default/own is not understood" in said.err + said.out
    for command in (("approve",), ("pr", "merge"), ("pr", "close")):
        said = world.run(*command, "rome/*")
        assert said.code == Exit.USAGE
        assert "rome/* matches only what is left: rome#" in said.err + said.out
    assert world.all_refs()["rome.git"] == before
    assert world.run("approve", "rome/web").code == Exit.DONE


@pytest.mark.parametrize("is_copy", [False, True])
def test_one_repository_under_two_addresses_loses_nothing(world: EdgeFleet, *, is_copy: bool) -> None:
    """A forge that renames a repository redirects from the old address; a copy looks the same."""
    text = registered("rome", "rome", "")
    with serve(world.root) as server:
        at = {name: text.replace("../rome.git", server.url(f"{name}.git")) for name in ("rome", "roma")}
        change(world, {"rome": at["rome"]})
        # An address of this machine and one of its server are one place, which people have to say.
        consent = world.rows()["../rome/web"]["message"].partition("spec.consents: {")[2].partition(":")[0]
        world.configure(f"  consents: {{{consent}: The same}}\n")
        world.run("apply")
        (shutil.copytree if is_copy else shutil.move)(world.root / "rome.git", world.root / "roma.git")
        server.moved |= {} if is_copy else {"/rome.git": "/roma.git"}
        change(world, {"rome": at["roma"]})
        before = git(world.root / "roma.git", "for-each-ref")

        said = world.run("plan")

        rows = {name: row for name, row in decided(world).items() if name.endswith("rome/web")}
        assert set(rows.values()) == {("keep", "Moved"), ("keep", "InReview")}
        assert "has the same history: one is a copy, or both are one" in said.out
        assert said.code == Exit.WAITING
        world.run("apply")
        assert git(world.root / "roma.git", "for-each-ref") == before


def single(world: EdgeFleet, name: str, package: str, edge: str = "rome") -> None:
    """Ask for web in a cluster by one manifest, which replaces the one before."""
    text = variant(edge, "web").replace(f"name: web-{edge}", f"name: {name}")
    change(
        world,
        {
            "single.yaml": text.replace(
                f"repo: {edge}\n    package: web", f"repo: {edge}\n    package: {package}"
            )
        },
    )


MOVES_OF_ONE = {"another downstream": ("one", "apps/web"), "another name and downstream": ("two", "apps/web")}


@pytest.mark.parametrize(("move", "is_edited"), [*zip(MOVES_OF_ONE, (True, False), strict=True)])
def test_everything_is_approved_at_the_new_place_first_and_edits_stay_at_the_old_one(
    world: EdgeFleet, move: str, *, is_edited: bool
) -> None:
    Repo(world.control).commit({"manifests/set.json": None})
    world.settle()
    single(world, "one", "web-one")
    world.settle()
    rome = Repo(world.root / "rome.git", time=1_767_400_000)
    if is_edited:
        rome.commit({"web-one/mine.yaml": "a: 1\n"})
        world.run("apply")
    single(world, *MOVES_OF_ONE[move])
    world.apply()

    assert opened(world) == {"rome/web-one": "Delete web-one", "rome/apps/web": "Create apps/web"}
    explained = world.run("explain", "rome/web-one").out
    assert "rome/apps/web" in explained
    assert ("People may have edited the package, and their edits go with it" in explained) == is_edited
    said = world.run("approve", "--all")
    assert "approved rome/apps/web" in said.out
    assert "approved rome/web-one" not in said.out
    assert "the package is not merged at rome/apps/web yet" in said.err
    world.apply()
    said = world.run("approve", "--all")
    assert ("approved rome/web-one: removed" in said.out) != is_edited
    assert ("what people may have edited is in the old package alone" in said.err) == is_edited
    if is_edited:
        assert on_main(world, "rome", "web-one")
        named = world.run("approve", "rome/web-one").out
        assert "approved rome/web-one: removed" in named
        assert "what people may have edited is in the old package alone" in named


def test_set_that_names_its_packages_otherwise_loses_none_before_the_new_ones_are_there() -> None:
    world = make_edges("")
    edited = world.repo("eu1")
    edited.commit({"web/mine.yaml": "a: 1\n"})
    world.run("apply")
    world.want(1, name="front")
    world.run("apply")

    first = world.run("approve", "--all")
    world.run("apply")
    second = world.run("approve", "--all")

    assert (first.out.count("removed"), first.err.count("/front yet")) == (0, 3)
    assert (second.out.count("removed"), second.err.count("people may have edited is in the old")) == (2, 1)
    assert (world.images("front"), world.images()) == (["v1"] * 3, ["", "v1", ""])


def test_another_branch_leaves_the_package_to_people(world: EdgeFleet) -> None:
    mono = Repo(world.root / "mono.git")
    mono.commit({"README.md": "prod\n"}, branch="prod")
    change(world, {"west": registered("west", *PLACES["west"], branch="prod")})

    said = world.apply()
    assert said.code == Exit.WAITING
    assert decided(world)["clusters/west/web@main"] == ("keep", "Moved")
    assert "moved from branch main to branch prod, and the package is still on main" in said.out
    world.settle()
    assert on_main(world, "mono", "clusters/west/web", branch="prod")
    world.want(1, target=SELECTED)
    world.apply()
    assert [row["losses"] for row in world.rows().values()] == [[]] * 4
    world.settle()
    files = git(mono.path, "ls-tree", "-r", "--name-only", "main").split()
    mono.commit({path: None for path in files if path.startswith("clusters/west/")})
    world.apply()
    assert decided(world).keys() == {"east/web", "rome/web", "west/web"}


@pytest.mark.parametrize(("grouped", "is_edited"), [("package", True), ("repository", False)])
def test_policy_deletes_nothing_at_a_former_place(world: EdgeFleet, grouped: str, *, is_edited: bool) -> None:
    mono = Repo(world.root / "mono.git", time=1_767_400_000)
    if is_edited:
        mono.commit({"clusters/west/web/mine.yaml": "a: 1\n"})
        world.run("apply")
    change(world, {"west": registered("west", "mono", "sites/west")})
    policy = f"  approval: {{auto: [{{edited: true}}]}}\n  pullRequests: {{groupBy: {grouped}}}\n"
    Repo(world.control).commit({"reconciler.yaml": CONFIGURATION + policy})

    for _ in range(4):
        world.run("apply")

    assert world.is_quiet()
    assert on_main(world, "mono", "sites/west/web")
    assert on_main(world, "mono", "clusters/west/web")
    assert "clusters/west" in world.run("pr", "list").out


def test_a_repository_that_is_renamed_hands_its_package_over(world: EdgeFleet) -> None:
    change(world, {"west": None, "occident": registered("occident", *PLACES["west"])})

    assert decided(world)["occident/web"][0] == "transfer"
    assert "west/web" not in decided(world)
    world.apply()
    assert opened(world).keys() == {"east/web", "rome/web", "occident/web"}


def test_a_package_of_a_repository_that_is_gone_is_released_where_its_set_orphans(world: EdgeFleet) -> None:
    template = {"template": {"deletionPolicy": "orphan"}}
    text = json.loads(git(world.control, "show", "main:manifests/set.json"))
    text["spec"]["targets"][0]["template"] |= template["template"]
    Repo(world.control).commit({"manifests/set.json": json.dumps(text)})
    world.settle()
    change(world, {"rome": None})

    assert decided(world)["rome/web"] == ("orphan", "Orphaned")
    world.apply()
    world.run("apply")  # with nothing to do its report is kept until something changes, here too
    assert "approved rome/web" in world.run("approve", "--all").out
    world.apply()
    assert "rome.jsonl" not in git(world.control, "ls-tree", "-r", "reconciler/fleet/state")
    assert on_main(world, "rome", "web")
    assert "reconciler.dev/owner" not in Repo(world.root / "rome.git").read("main", "web/Kptfile").decode()
    assert "rome/web" not in decided(world)
