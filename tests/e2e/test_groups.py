"""Groups of packages on real repositories: one branch, one pull request, each package judged by itself."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.base.errors import Exit
from tests.support.git import BOT, Repo, kptfile
from tests.support.small_world import CONFIGURATION, app, repository, write_fleet
from tests.support.world import Said, World

pytestmark = pytest.mark.slow

BRANCH = "reconciler/fleet/group/repository/default/edge/1"
FILES = ("Kptfile", "app.yaml", "package-context.yaml")
NEXT = "reconciler/fleet/group/repository/default/edge/2"
GROUPED = CONFIGURATION + "  pullRequests: {{groupBy: {group_by}}}\n"
VARIANT = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata: {{name: {name}, namespace: default, annotations: {{reconciler.dev/retry: "{retry}"}}}}
spec:
  upstream: {{repo: blueprints, package: web, revision: {revision}}}
  downstream: {{repo: edge, package: {name}}}
  deletionPolicy: {deletion}
"""


@dataclass
class Fleet:
    """One downstream repository with many packages of one upstream."""

    world: World
    names: Sequence[str]

    @property
    def edge(self) -> Repo:
        return Repo(self.world.root / "edge.git", time=1_767_400_000)

    @property
    def control(self) -> Repo:
        return Repo(self.world.root / "control.git", time=1_767_300_000)

    def apply(self, *options: str) -> Said:
        """Apply, and see that a second run from nothing has nothing left to do."""
        said = self.world.run("apply", *options)
        before = self.world.all_refs()
        again = self.world.run("apply", *options, cache="another")
        assert self.world.all_refs() == before, again.out
        return said

    def plan(self) -> dict[str, dict[str, Any]]:
        said = self.world.run("plan", "--output", "json")
        return {one["package"]["path"]: one for one in json.loads(said.out)["changes"]}

    def want(self, names: Sequence[str], revision: int = 2, retry: int = 0, deletion: str = "delete") -> None:
        files = {
            f"manifests/{n}.yaml": VARIANT.format(name=n, revision=revision, retry=retry, deletion=deletion)
            for n in names
        }
        self.control.commit(files, message="Ask\n")

    def drop(self, name: str) -> None:
        self.control.commit({f"manifests/{name}.yaml": None}, message="Not any more\n")

    def heads(self) -> list[str]:
        refs = (ref.removeprefix("refs/heads/") for ref in self.edge.refs() if ref.startswith("refs/heads/"))
        return sorted(head for head in refs if head != "main")

    def pulls(self) -> list[tuple[str, str]]:
        """Return state and head of every pull request, by number."""
        items = json.loads(self.world.run("pr", "list", "--all", "--output", "json").out)["items"]
        return [(one["state"], one["head"]) for one in items]

    def image(self, name: str, where: str = BRANCH) -> str:
        text = self.edge.read(where, f"{name}/app.yaml").decode()
        return text.partition("image: registry.example/web:")[2].strip()


def make_fleet(root: Path, count: int = 3, *, group_by: str = "repository", deployment: bool = True) -> Fleet:
    names = [f"p{number:02}" for number in range(count)]
    revisions = [{"Kptfile": kptfile("web"), "app.yaml": app("web", number)} for number in (1, 2, 3)]
    edge = repository("edge").replace("deployment: true", f"deployment: {str(deployment).lower()}")
    configuration = GROUPED.format(group_by=group_by)
    files = {"manifests/edge.yaml": edge}
    fleet = Fleet(write_fleet(root, "web", revisions, ["edge"], files, configuration=configuration), names)
    fleet.want(names, revision=1)
    return fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return make_fleet(tmp_path / "w")


def held_by_conflict(fleet: Fleet) -> str:
    """A person edits p00 on the group's branch where upstream changes the same; return its `Keep:` line."""
    fleet.apply()
    edited = fleet.edge.read(BRANCH, "p00/app.yaml").decode().replace("web:v1", "web:mine")
    fleet.edge.commit({"p00/app.yaml": edited}, branch=BRANCH, message="Ours\n")
    fleet.want(fleet.names, revision=2)
    assert fleet.apply().code == Exit.WAITING
    said = fleet.world.run("explain", "edge/p00").out
    (line,) = re.findall(r"(Keep: .*)$", said, re.MULTILINE)
    return line


@pytest.mark.parametrize(
    ("choice", "image", "by"),
    [
        (["--keep"], "mine", "keep"),
        (["--take"], "v2", None),  # nothing of people is left
        (["--value", "registry.example/web:third"], "third", "edit"),
    ],
)
def test_a_command_answers_on_the_branch_of_a_group(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, choice: list[str], image: str, by: str | None
) -> None:
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Ada")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "ada@example.com")
    held_by_conflict(fleet)
    others = {name: fleet.edge.read(BRANCH, f"{name}/app.yaml") for name in ("p01", "p02")}

    said = fleet.world.run("answer", "edge/p00", *choice)

    assert said.code == Exit.DONE, said.err
    assert f"pushed {BRANCH}" in said.out
    assert fleet.edge.git[fleet.edge.oid(BRANCH)].author.name == "Ada"
    assert {name: fleet.edge.read(BRANCH, f"{name}/app.yaml") for name in others} == others
    assert fleet.apply().code == Exit.DONE
    assert fleet.pulls() == [("open", BRANCH)]
    assert [fleet.image(name) for name in fleet.names] == [image, "v2", "v2"]
    assert [answer["by"] for answer in fleet.plan()["p00"]["answers"]] == ([by] if by else [])
    assert fleet.world.run("approve", "edge#1").code == Exit.DONE


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
def test_every_package_of_a_merged_group_is_tagged(fleet: Fleet, how: str) -> None:
    fleet.apply()
    fleet.edge.merge(BRANCH, how=how)

    assert fleet.apply().code == Exit.DONE

    assert {r for r in fleet.edge.refs() if "/tags/" in r} == {f"refs/tags/{n}/v1" for n in fleet.names}
    assert fleet.heads() == []
    assert fleet.pulls() == [("merged", BRANCH)]
    fleet.want(fleet.names, revision=2)
    fleet.apply()
    assert fleet.heads() == [NEXT]


def test_a_group_without_a_pull_request_is_approved_by_the_names_of_all_its_packages(fleet: Fleet) -> None:
    never = GROUPED.format(group_by="repository, schedule: ['0 3 29 2 *']")
    fleet.control.commit({"reconciler.yaml": never})
    fleet.world.run("apply")
    before = fleet.world.all_refs()

    one = fleet.world.run("approve", "edge/p00")

    assert one.code == Exit.REFUSED
    assert "shares a draft without a pull request with edge/p01, edge/p02" in one.err
    assert fleet.world.all_refs() == before
    every = fleet.world.run("approve", "edge/p00", "edge/p01", "edge/p02")
    assert "approved edge/p00 and 2 others: merged" in every.out
    shown = fleet.world.run("status").out
    assert shown.count("the next apply: Not applied yet: publish (PublishedByMerge)") == 3
    assert "schedule" not in shown


def test_a_package_shares_its_draft_with_the_others_whatever_its_name_is_spelled_like(fleet: Fleet) -> None:
    never = GROUPED.format(group_by="repository, schedule: ['0 3 29 2 *']")
    below = repository("edge").replace("branch: main", "branch: main\n    directory: packages")
    fleet.control.commit({"reconciler.yaml": never, "manifests/edge.yaml": below})
    fleet.world.run("apply")

    one = fleet.world.run("approve", "edge/packages/p00")

    assert "shares a draft without a pull request with edge/p01, edge/p02" in one.err
    every = fleet.world.run("approve", *(f"edge/packages/{name}" for name in fleet.names))
    assert "approved edge/p00 and 2 others: merged" in every.out


def test_a_package_that_becomes_unready_leaves_the_open_group(fleet: Fleet) -> None:
    fleet.apply()
    fleet.edge.merge(BRANCH)
    fleet.apply()
    fleet.want(fleet.names, revision=2)
    fleet.apply()
    mine = fleet.edge.read("main", "p01/app.yaml").decode().replace("web:v1", "web:mine")
    fleet.edge.commit({"p01/app.yaml": mine}, message="Hotfix\n")

    fleet.apply()

    assert [h for h in fleet.heads() if "drafts/p01" in h]
    changed = fleet.edge.git.diff(fleet.edge.oid("main") + "^", fleet.edge.oid(NEXT))
    assert {d.new_file.path.split("/")[0] for d in changed.deltas} == {"p00", "p02", "p01"}
    assert fleet.image("p01", NEXT) == "mine"


@pytest.mark.parametrize("taken", [1, 3])
def test_packages_that_people_take_out_wait_for_the_pull_request_of_their_group(
    fleet: Fleet, taken: int
) -> None:
    fleet.apply()
    files = {f"{name}/{file}": None for name in fleet.names[:taken] for file in FILES}
    fleet.edge.commit(files, branch=BRANCH, message="Not these\n")
    fleet.apply()

    rows = fleet.world.run("status").out.splitlines()
    tip = fleet.edge.oid(BRANCH)
    approved = fleet.world.run("approve", "--all")

    assert all(any(row.startswith(f"edge/{n} ") and "edge#1" in row for row in rows) for n in fleet.names)
    if taken == len(fleet.names):
        assert (approved.code, "Pull request edge#1 proposes nothing" in approved.out) == (Exit.REFUSED, True)
        assert "A person took p00, p01, p02 out of it" in approved.out
        assert fleet.edge.oid(BRANCH) == tip
    else:
        assert (approved.code, fleet.heads()) == (Exit.DONE, [])


def test_a_branch_that_only_looks_like_a_group_is_nobody_s(fleet: Fleet) -> None:
    fleet.edge.commit(
        {"p00/app.yaml": "kind: Mine\n"},
        branch=BRANCH,
        start="main",
        message='Mine\n\nkpt:{"package":"p00","workspaceName":"packagevariant-1"}\n',
    )
    person = fleet.edge.oid(BRANCH)

    fleet.apply()

    assert fleet.edge.git.descendant_of(fleet.edge.oid(BRANCH), person)


def test_a_forged_line_in_our_name_does_not_take_a_package_in(fleet: Fleet) -> None:
    fleet.apply()
    forged = 'Ours\n\nkpt:{"package":"README.md","workspaceName":"x"}\nkpt:{"package":"../x"}\n'
    fleet.edge.commit({"other.txt": "x\n"}, branch=BRANCH, who=BOT, message=forged)

    assert fleet.apply().code == Exit.DONE


def test_twenty_packages_are_tagged_three_a_push_while_their_next_group_is_written(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "w", 20)
    fleet.apply()
    fleet.edge.merge(BRANCH)
    fleet.want(fleet.names, revision=2)

    assert fleet.apply().code == Exit.DONE

    assert len([ref for ref in fleet.edge.refs() if ref.startswith("refs/tags/")]) == 20
    assert fleet.pulls() == [("merged", BRANCH), ("open", NEXT)]
    assert [fleet.image(name, NEXT) for name in fleet.names] == ["v2"] * 20
    assert fleet.edge.git[fleet.edge.oid(NEXT)].message.count("kpt:") == 20


# Groups and what nobody wants any more, under every grouping

AUTO = GROUPED + "  approval: {{auto: [{{}}]}}\n"


def make_published(root: Path, group_by: str) -> Fleet:
    """Return a fleet with every package on main at its first revision."""
    fleet = make_fleet(root, 2, group_by=group_by, deployment=False)
    fleet.apply()
    fleet.world.run("approve", "--all")
    fleet.apply()
    assert fleet.heads() == []
    return fleet


@pytest.mark.parametrize("joins", ["new", "updated", "unwanted"])
@pytest.mark.parametrize("group_by", ["repository", "upstream"])
def test_no_plan_merges_the_pull_request_of_a_group_that_it_changes(
    tmp_path: Path, group_by: str, joins: str
) -> None:
    fleet = make_published(tmp_path / "w", group_by)
    fleet.want(["p00", "p01"] if joins == "unwanted" else ["p00"])
    fleet.apply()
    fleet.control.commit({"reconciler.yaml": AUTO.format(group_by=group_by)}, message="Approve\n")
    if joins == "unwanted":
        fleet.drop("p01")
    else:
        fleet.want(["p01" if joins == "updated" else "p02"])

    assert {one["op"] for one in fleet.plan().values()}.isdisjoint({"approve"})
    assert fleet.world.run("apply").code == Exit.DONE
    assert fleet.world.run("apply").code == Exit.DONE
    assert fleet.image("p00", "main") == "v2"
