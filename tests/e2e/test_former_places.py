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
from tests.e2e.test_check import run
from tests.support.edge_fleet import CONFIGURATION, WAVES, EdgeFleet, blueprint
from tests.support.git import Repo, make_repository
from tests.support.http_git import serve
from tests.support.small_world import repository, variant
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
    "directory": (
        ("mono", "sites/west"),
        "clusters/west/web",
        "directory clusters/west",
        "directory sites/west",
    ),
    "address": (("fresh", ""), "clusters/west/web", "../mono.git", "../fresh.git"),
    "both": (("fresh", "west"), "clusters/west/web", "../mono.git", "../fresh.git"),
}


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
        assert "and the package is not merged there yet" in left
    said = world.run("approve", "--all")
    assert said.code == Exit.DONE
    assert "approved west/web" in said.out
    assert f"{old}:" not in said.out
    assert f"approved {old}: removed" in world.run("approve", "--all").out
    world.apply()
    assert not on_main(world, "mono", "clusters/west/web")
    assert decided(world) == dict.fromkeys(("east/web", "rome/web", "west/web"), ("keep", "UpToDate"))


@pytest.mark.parametrize("selected", [True, False], ids=["selected", "named"])
def test_a_deletion_waits_for_no_other_package_that_is_only_handed_over(
    world: EdgeFleet, *, selected: bool
) -> None:
    if not selected:
        world.want(2, target={"repositories": [{"name": "west"}, {"name": "rome"}]})
    world.settle()
    renamed = registered("west", *PLACES["west"]).replace("name: west\n", "name: west-two\n", 1)
    change(world, {"west": renamed, "rome": None})
    if not selected:
        world.want(2, target={"repositories": [{"name": "west-two"}]})
    world.apply()

    assert decided(world)["rome/web"][0] == "keep"
    assert set(opened(world)) == {"rome/web", "west-two/web"}
    said = world.run("approve", "--all")
    assert "approved rome/web: removed" in said.out
    assert "not merged there yet" not in said.err
    assert "has its package now" not in world.run("explain", "rome/web").out


def test_an_outdated_checkout_shows_no_rollout_that_never_began(world: EdgeFleet) -> None:
    world.want(1, target=SELECTED)
    world.configure()
    world.settle()
    world.want(2, target=SELECTED)
    assert "rollout web/v2" in world.run("plan").out
    git(world.root, "clone", "-q", str(world.control), "old")
    world.want(1, target=SELECTED)
    world.settle()

    said = run(world.root / "old", "plan")

    assert "behind main" in said.out + said.err
    assert "rollout web/v2" not in said.out
    assert "rollout web/v2" not in run(world.root / "old", "status").out


def test_a_package_that_moved_with_its_directory_leaves_only_a_draft_to_close(world: EdgeFleet) -> None:
    repo = Repo(world.root / "mono.git")
    paths = [
        p for p in git(repo.path, "ls-tree", "-r", "--name-only", "main").split() if "clusters/west/" in p
    ]
    moved: dict[str, str | None] = dict.fromkeys(paths)
    moved |= {p.replace("clusters", "sites"): repo.read("main", p).decode() for p in paths}
    repo.commit(moved)
    change(world, {"west": registered("west", "mono", "sites/west")})

    assert decided(world)["clusters/west/web"] == ("delete", "Moved")
    world.apply()

    assert opened(world).keys() == {"east/web", "rome/web", "west/web"}
    assert "clusters/west/web" not in decided(world)


def test_the_text_of_a_deletion_says_where_its_repository_is_now(world: EdgeFleet) -> None:
    def text() -> str:
        """Return the text of the one pull request that deletes a package."""
        items = json.loads(world.run("pr", "list", "--output", "json").out)["items"]
        (found,) = (each["name"] for each in items if each["title"] == "Delete web")
        return world.run("pr", "show", found).out

    change(world, {"rome": None})
    world.apply()
    assert "| package | `rome/web` |" in text()
    assert "default/rome is not registered any more" in text()
    assert "Deletes a package that no manifest asks for any more." in text()
    change(world, {"rome": registered("rome", "fresh", "")})
    world.apply()
    assert "| package | `../rome/web` |" in text()
    assert "is not registered any more" not in text()
    assert "at its former place: its manifest asks for it at another one now" in text()
    change(world, {"rome": registered("rome", "rome", "").replace("fleet: web", "fleet: none")})
    world.apply()
    assert "| package | `rome/web` |" in text()


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


def test_what_only_a_package_of_a_repository_that_is_gone_needs_goes_after_it(world: EdgeFleet) -> None:
    """The package goes first: its deletion may be declined, and then it needs the other one."""
    need = {"package": {"refName": "db.io"}}
    web = {"refName": "web.io", "version": "3.0.0", "dependencies": [need]}
    upstream = Repo(world.root / "blueprints.git")
    for name, number, spec in (("db", 1, {"refName": "db.io", "version": "1.0.0"}), ("web", 3, web)):
        value = {"apiVersion": "data.packaging.carvel.dev/v1alpha1", "kind": "Package", "spec": spec}
        needs = {f"{name}/package.yaml": json.dumps({**value, "metadata": {"name": name}})}
        upstream.commit(blueprint(number, package=name) | needs, message=f"{name} v{number}\n")
        upstream.tag(f"{name}/v{number}")
    world.want(3, target=SELECTED)
    world.settle()
    assert on_main(world, "rome", "db")
    change(world, {"rome": None})

    decisions = decided(world)
    assert (decisions["rome/web"], decisions["rome/db"]) == (("delete", "PlaceGone"), ("keep", "StillNeeded"))
    world.apply()
    world.settle()

    assert not on_main(world, "rome", "web")
    assert not on_main(world, "rome", "db")
    assert world.is_quiet()


def test_a_repository_that_is_renamed_hands_its_package_over(world: EdgeFleet) -> None:
    change(world, {"west": None, "occident": registered("occident", *PLACES["west"])})

    assert decided(world)["occident/web"][0] == "transfer"
    assert "west/web" not in decided(world)
    world.apply()
    assert opened(world).keys() == {"east/web", "rome/web", "occident/web"}


def test_a_group_is_approved_after_its_repository_is_renamed(world: EdgeFleet) -> None:
    """Its branch keeps the name that the Repository had."""
    change(world, {"rome": registered("rome", *PLACES["rome"]).replace("fleet: web", "role: own")})
    own = variant("rome", "web", revision=1).replace("web-rome", "own")
    world.configure("  pullRequests: {groupBy: repository}\n")
    change(world, {"own": own})
    world.settle()
    change(world, {"own": own.replace("revision: 1", "revision: 2")})
    world.run("apply")
    roma = registered("roma", *PLACES["rome"]).replace("fleet: web", "role: own")
    moved = own.replace("revision: 1", "revision: 2").replace("repo: rome", "repo: roma")
    change(world, {"rome": None, "roma": roma, "own": moved})
    world.run("apply")

    said = world.run("approve", "roma/*")

    assert said.code == Exit.DONE
    assert "approved roma/web" in said.out


def test_a_repository_that_is_renamed_and_moved_leaves_its_old_package_under_its_old_name(
    world: EdgeFleet,
) -> None:
    change(world, {"west": None, "occident": registered("occident", "mono", "sites/occident")})

    rows = decided(world)
    assert rows["west/web"] == ("delete", "PlaceGone")
    assert rows["occident/web"] == ("create", "New")
    world.apply()
    world.settle()
    assert on_main(world, "mono", "sites/occident/web")
    assert not on_main(world, "mono", "clusters/west/web")


def test_a_package_at_a_former_place_is_remembered_after_its_variant_goes(world: EdgeFleet) -> None:
    change(world, {"rome": registered("rome", "fresh", "")})
    world.run("apply")
    change(world, {"rome": None})

    rows = decided(world)

    assert rows["rome/web"] == ("delete", "PlaceGone")
    # Its text says why nobody wants it now.
    assert rows["../rome/web"] == ("update", "PullRequestOutdated")
    world.settle()
    assert not on_main(world, "rome", "web")


def test_a_repository_that_comes_back_takes_its_package_back(world: EdgeFleet) -> None:
    change(world, {"west": registered("west", "fresh", "")})
    world.run("apply")
    change(world, {"west": registered("west", *PLACES["west"])})

    rows = decided(world)
    assert rows["west/web"][0] == "update"
    assert rows["../fresh/web"] == ("delete", "Moved")
    world.apply()
    world.settle()
    world.apply()
    assert decided(world).keys() == {"east/web", "rome/web", "west/web"}
    assert image(world) == "v2"


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


def test_a_proposed_deletion_ends_where_its_repository_has_another_branch(world: EdgeFleet) -> None:
    Repo(world.root / "mono.git").commit({"README.md": "prod\n"}, branch="prod")
    Repo(world.control).commit({"manifests/set.json": None})
    world.run("apply")
    (number,) = (n for n, pull in world.pulls("west").items() if pull["title"] == "Delete web")
    change(world, {"west": None, "bern": registered("bern", *PLACES["west"], branch="prod")})

    world.apply()

    assert decided(world)["west/web@main"] == ("keep", "PlaceGone")
    pull = json.loads(git(world.root / "mono.git", "show", f"refs/reconciler/pulls/{number}:pull.json"))
    assert pull["state"] == "closed"


def test_a_deletion_at_a_former_place_that_people_decline_is_not_proposed_again(world: EdgeFleet) -> None:
    change(world, {"rome": registered("rome", "fresh", "")})
    world.run("apply")
    (number,) = (number for number, pull in world.pulls("../rome").items() if pull["title"] == "Delete web")

    world.run("pr", "close", f"../rome#{number}")
    world.apply()

    assert decided(world)["../rome/web"] == ("keep", "Rejected")
    assert on_main(world, "rome", "web")


def test_a_former_place_keeps_its_name_when_another_one_ends(world: EdgeFleet) -> None:
    """Both were places of `rome`; at one of them is a draft, which the first run closes."""
    world.settle()
    world.want(2, name="shop", target=SELECTED)
    world.run("apply")
    change(world, {"rome": registered("rome", "fresh", "")})
    world.run("apply")
    change(world, {"rome": None})

    world.apply()

    assert decided(world)["../rome/web"] == ("keep", "DeletionProposed")


def test_what_is_left_on_two_branches_has_a_row_each(world: EdgeFleet) -> None:
    mono = Repo(world.root / "mono.git")
    mono.commit({"README.md": "prod\n"}, branch="prod")
    change(world, {"west": registered("west", *PLACES["west"], branch="prod")})
    world.settle()
    change(world, {"west": registered("west", "mono", "sites/west", branch="prod")})

    world.apply()

    rows = decided(world)
    assert rows["../mono/clusters/west/web"] == ("keep", "DeletionProposed")
    assert rows["clusters/west/web@main"] == ("keep", "Moved")
    world.settle()
    assert not any(on_main(world, "mono", "clusters/west/web", branch) for branch in ("main", "prod"))
    assert decided(world).keys() == {"east/web", "rome/web", "west/web"}


def test_a_deletion_names_the_package_and_the_revision_of_its_own_branch(world: EdgeFleet) -> None:
    """Tags of both branches are beside each other; that of the other branch is newer."""
    rome = Repo(world.root / "rome.git")
    world.settle()
    rome.point("refs/heads/prod", rome.oid("main"))
    change(world, {"rome": registered("rome", "rome", "", branch="prod")})
    world.apply()
    change(world, {"rome": None, "roma": registered("roma", "rome", "")})
    world.settle()
    world.want(1, target=SELECTED)
    world.settle()
    change(world, {"roma": None, "rome": registered("rome", "rome", "d")})
    world.apply()

    left, aside = "../rome/web", "roma/web@main"
    assert {name: decided(world)[name] for name in (left, aside)} == {
        left: ("keep", "DeletionProposed"),
        aside: ("keep", "PlaceGone"),
    }
    assert opened(world)[left] == "Delete web"
    (marker,) = (ref for ref in world.all_refs()["rome.git"] if "deletionProposed" in ref)
    assert rome.tree(marker, "web") == rome.tree("prod", "web") == rome.tree("web/v2", "web")
    said = world.run("approve", left)
    assert said.out.startswith(f"approved {left}: removed")
    assert (on_main(world, "rome", "web", "prod"), on_main(world, "rome", "web")) == (False, True)


def test_what_another_branch_has_is_no_edit_of_a_draft(world: EdgeFleet) -> None:
    """Nobody is asked about a draft that was made onto the branch of people, whichever place is looked at."""
    Repo(world.root / "mono.git").commit({"README.md": "prod\n"}, branch="prod")
    world.settle()
    change(world, {"west": None, "oslo": registered("oslo", *PLACES["west"], branch="prod")})
    world.run("apply")
    change(world, {"oslo": None})

    world.apply()

    assert not any("drafts/clusters/west" in ref for ref in world.all_refs()["mono.git"])


def test_a_declined_deletion_of_a_package_that_moved_is_not_proposed_again(world: EdgeFleet) -> None:
    alone = variant("rome", "web", revision=2).replace("web-rome", "own")
    change(world, {"rome": registered("rome", "rome", "").replace("fleet: web", "role: own"), "own": alone})
    world.settle()
    change(
        world,
        {
            "own": alone.replace("repo: rome", "repo: east").replace(
                "east\n    package: web", "east\n    package: own"
            )
        },
    )
    world.run("apply")
    (number,) = (number for number, pull in world.pulls("rome").items() if pull["title"] == "Delete web")

    world.run("pr", "close", f"rome#{number}")
    world.apply()

    assert decided(world)["rome/web"] == ("keep", "Rejected")


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


@pytest.mark.parametrize("renamed", [False, True])
def test_each_branch_that_cannot_be_read_needs_a_consent_of_its_own(
    world: EdgeFleet, *, renamed: bool
) -> None:
    Repo(world.root / "rome.git").commit({"README.md": "prod\n"}, branch="prod")
    world.settle()
    change(world, {"rome": registered("rome", "rome", "", branch="prod")})
    world.settle()
    if renamed:
        change(world, {"rome": None, "roma": registered("roma", "rome", "", branch="prod")})
        world.settle()
    change(world, {"roma" if renamed else "rome": None})
    before = {name for name in decided(world) if "west" not in name and "east" not in name}
    shutil.move(world.root / "rome.git", world.root / "away.git")
    world.apply()

    rows = {name: row for name, row in world.rows().items() if name not in {"east/web", "west/web"}}
    assert rows.keys() == before
    assert len(rows) == 2
    consents = [row["message"].partition("spec.consents: {")[2].partition(":")[0] for row in rows.values()]
    for number, consent in enumerate(consents):
        world.configure(f"  consents: {{{consent}: Torn down}}\n")
        world.run("plan")
        (row,) = (row for name, row in world.rows().items() if name not in {"east/web", "west/web"})
        assert consents[1 - number] in row["message"]
    world.apply()
    world.configure(f"  consents: {{{consents[0]}: Torn down, {consents[1]}: Torn down}}\n")
    world.apply()
    assert decided(world).keys() == {"east/web", "west/web"}


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


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize(
    ("broken", "reason"),
    [("brnch", "OwnerStalled"), ("kind", "OwnerStalled"), ("yaml", "ManifestUnreadable")],
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
    for command in (("approve",), ("pr", "merge"), ("pr", "close")):
        for pattern in ("west/*", "*", "mono/*", "east/clusters/*"):
            assert world.run(*command, pattern).code == Exit.USAGE
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


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("gone", [False, True])
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


@pytest.mark.parametrize("paused", [False, True])
def test_a_draft_that_is_kept_at_a_former_place_is_left(world: EdgeFleet, *, paused: bool) -> None:
    """Its variant is paused, or the new address of its Repository cannot be read."""
    alone = variant("rome", "web", revision=1).replace("web-rome", "own")
    label = registered("rome", *PLACES["rome"]).replace("fleet: web", "role: own")
    change(world, {"rome": label, "own": alone})
    world.settle()
    change(world, {"own": alone.replace("revision: 1", "revision: 2")})
    world.run("apply")
    moved = registered("rome", "fresh" if paused else "nowhere", "").replace("fleet: web", "role: own")
    pause = alone.replace("revision: 1", "revision: 2").replace(
        "metadata:\n", f'metadata:\n  annotations: {{reconciler.dev/paused: "{str(paused).lower()}"}}\n'
    )
    change(world, {"rome": moved, "own": pause})
    world.run("apply")
    before = world.all_refs()["rome.git"]

    said = world.run("approve", "--all")

    assert "Approve it by name, ../rome#" in said.err + said.out
    assert world.all_refs()["rome.git"] == before


def test_a_pull_request_without_any_repository_is_listed_by_its_path_alone(world: EdgeFleet) -> None:
    change(world, {"west": None})
    git(world.control, "branch", "-D", "reconciler/fleet/state")
    git(world.control, "branch", "-D", "reconciler/fleet/status")
    world.run("apply")

    assert opened(world)["clusters/west/web"] == "Update web"
    said = world.run("approve", "--all")
    assert "clusters/west/web, is left: no registered Repository is there" in said.err + said.out
    said = world.run("approve", "clusters/west/web")
    assert said.code == Exit.REFUSED
    assert "No registered Repository is at clusters/west/web" in said.out + said.err
    assert world.run("approve", "clusters/*").code == Exit.USAGE
    assert world.run("pr", "merge", "clusters/west/web").code == Exit.REFUSED
    assert world.run("pr", "close", "clusters/west/web").code == Exit.DONE


def test_a_draft_that_could_not_be_closed_is_tried_again(world: EdgeFleet) -> None:
    change(world, {"lima": registered("lima", "fresh", "lima")})
    world.run("apply")
    change(world, {"lima": registered("lima", "mono", "clusters/lima")})
    hook = world.root / "fresh.git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)

    assert world.run("apply").code == Exit.REFUSED
    hook.unlink()

    assert decided(world)["../fresh/lima/web"] == ("delete", "Moved")
    world.apply()
    assert {"../fresh/lima/web", "lima/web"} & opened(world).keys() == {"lima/web"}


@pytest.mark.parametrize("text", ["", "kind: [\n"])
def test_two_repositories_at_one_place(world: EdgeFleet, text: str) -> None:
    """The other one has what is gone now, and nothing of one that is not understood."""
    change(world, {"twin": registered("twin", *PLACES["west"]).replace("fleet: web", "role: twin")})
    world.apply()
    change(world, {"west": text or None})

    rows = decided(world)

    assert ("west/web" in rows, "twin/web" in rows) == (bool(text), not text)
    assert rows.get("west/web", rows.get("twin/web")) in {
        ("keep", "ManifestUnreadable"),
        ("delete", "NotDesired"),
    }
    world.run("approve", "--all")
    assert image(world) == "v1"


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


def test_a_fleet_at_another_path_remembers_what_people_declined(world: EdgeFleet) -> None:
    """Its addresses are relative; the records were made where it was before."""
    world.run("pr", "close", "east/web", "--comment", "No")
    change(world, {"rome": None})
    world.apply()
    before = decided(world)
    world.run("pr", "close", "west/web", "--comment", "No")
    (draft,) = (ref for ref in world.all_refs()["mono.git"] if "heads/drafts/clusters/west/" in ref)
    git(world.root / "mono.git", "update-ref", "-d", draft)
    elsewhere = world.root.with_name("elsewhere")
    world.root.rename(elsewhere)
    there = EdgeFleet(elsewhere, world.clock, timed=world.timed)

    there.apply()

    assert before["rome/web"] == ("keep", "DeletionProposed")
    assert decided(there) == {**before, "west/web": ("keep", "Rejected")}
    assert opened(there) == {"rome/web": "Delete web"}
    shutil.rmtree(elsewhere)


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


MOVES_OF_ONE = {
    "another downstream": ("one", "apps/web"),
    "another name and downstream": ("two", "apps/web"),
}


@pytest.mark.parametrize("is_edited", [False, True])
@pytest.mark.parametrize("move", MOVES_OF_ONE)
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
    assert "the package is not merged there yet" in said.err
    world.apply()
    said = world.run("approve", "--all")
    assert ("approved rome/web-one: removed" in said.out) != is_edited
    assert ("what people may have edited is in the old package alone" in said.err) == is_edited
    if is_edited:
        assert on_main(world, "rome", "web-one")
        assert "approved rome/web-one: removed" in world.run("approve", "rome/web-one").out


def test_edits_at_a_former_place_are_left_to_people(world: EdgeFleet) -> None:
    mono = Repo(world.root / "mono.git", time=1_767_400_000)
    mono.commit({"clusters/west/web/mine.yaml": "a: 1\n"})
    world.run("apply")
    change(world, {"west": registered("west", "mono", "sites/west")})
    world.apply()
    for _ in range(2):
        said = world.run("approve", "--all")
        world.apply()

    assert "what people may have edited is in the old package alone" in said.err
    assert on_main(world, "mono", "clusters/west/web")
    assert on_main(world, "mono", "sites/west/web")


@pytest.mark.parametrize("grouped", ["package", "repository"])
@pytest.mark.parametrize("is_edited", [False, True])
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
