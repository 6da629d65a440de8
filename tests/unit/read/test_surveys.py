"""What a view of a repository holds besides packages: directories, files, owners of code."""

from pathlib import Path

import pygit2
import pytest

from reconciler.base.errors import Location
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import RepositoryRole
from reconciler.names.ids import Oid
from reconciler.names.problems import Problem
from reconciler.policy import ForgeKind, ForgeRule, Limits, Policy, PullRequestPolicy
from reconciler.read.repositories import describe_repositories, read_repositories
from reconciler.read.repositories.discovery import MAX_DEPTH, PackageDirectory, Survey, survey_packages
from tests.support.git import Repo, kptfile, make_repository
from tests.support.reading import read_registered
from tests.support.values import replace
from tests.unit.read.test_repositories import registration


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    files = {
        "README.md": "",
        "a/web/Kptfile": kptfile("web"),
        "a/web/sub/x": "",
        "a/notes.txt": "",
        "b/c/x": "",
        "Kptfile": kptfile("root"),
    }
    return make_repository(tmp_path / "edge.git", files)


def survey(repo: Repo, tmp_path: Path, directory: str = "", *excluded: str) -> Survey:
    mirror = Mirrors(tmp_path / "cache").open(str(repo.path))
    mirror.fetch()
    return survey_packages(mirror, repo.tree("main"), directory, excluded.__contains__)


def paths(found: Survey) -> tuple[set[str], set[str], set[str]]:
    return {package.path for package in found.packages}, {*found.directories}, {*found.files}


def test_survey_of_a_directory_leaves_out_those_of_other_views(repo: Repo, tmp_path: Path) -> None:
    assert paths(survey(repo, tmp_path, "a")) == ({"a/web"}, {"a"}, {"a/notes.txt"})
    assert paths(survey(repo, tmp_path, "a/web")) == ({"a/web"}, set(), set())
    assert paths(survey(repo, tmp_path, "", "a", "b/c")) == (set(), {"", "b"}, {"README.md", "Kptfile"})


def test_malformed_tree_is_a_package_that_cannot_be_read(repo: Repo, tmp_path: Path) -> None:
    cut = Oid(str(repo.git.odb.write(pygit2.enums.ObjectType.TREE, b"100644 x\0cut")))
    root = repo.raw_tree((b"40000", b"odd", cut))
    repo.point("refs/heads/main", repo.write(root, [repo.oid("main")]))

    (package,) = survey(repo, tmp_path).packages

    assert package == PackageDirectory("odd", cut, None)


@pytest.mark.parametrize(("depth", "is_found"), [(MAX_DEPTH, True), (MAX_DEPTH + 2, False)])
def test_packages_are_searched_to_a_depth(repo: Repo, tmp_path: Path, depth: int, is_found: bool) -> None:
    path = "/".join("d" * depth)
    repo.commit({f"{path}/Kptfile": kptfile("deep")})

    assert (path in paths(survey(repo, tmp_path))[0]) is is_found


# Owners of code

GITHUB, GITLAB = ForgeKind.GITHUB, ForgeKind.GITLAB


@pytest.mark.parametrize(("size", "text"), [(20, "* @team" + "\ufffd" * 13), (21, "")])
def test_owners_of_code_that_are_too_long_are_not_read(repo: Repo, tmp_path: Path, size, text) -> None:
    repo.commit({"CODEOWNERS": b"* @team".ljust(size, b"\xff")})
    policy = Policy(
        forges=(ForgeRule(str(repo.path), GITHUB),),
        pull_requests=PullRequestPolicy(code_owners=True),
        limits=Limits(manifest_bytes=20),
    )

    (view,) = read_registered([registration(str(repo.path))], Mirrors(tmp_path / "c"), policy).values()

    assert view.code_owners == text


@pytest.mark.parametrize(("is_used", "branch"), [(True, "main"), (False, "main"), (True, "gone")])
def test_owners_of_code_are_read_where_they_count(repo: Repo, tmp_path: Path, is_used, branch) -> None:
    repo.commit({".github/CODEOWNERS": "* @team", "docs/CODEOWNERS": "* @docs"})
    rules, people = (ForgeRule(str(repo.path), GITHUB),), PullRequestPolicy(code_owners=is_used)
    item = registration(str(repo.path), branch=branch)

    (view,) = read_registered(
        [item], Mirrors(tmp_path / "c"), Policy(forges=rules, pull_requests=people)
    ).values()

    assert view.code_owners == ("* @team" if is_used and branch == "main" else "")


def test_refused_repository_is_not_read(repo: Repo, tmp_path: Path) -> None:
    problem = Problem(Location("r.yaml"), "Refused", "no")
    registrations = [
        registration(str(repo.path)),
        registration(str(tmp_path / "x.git"), name="oci", type="oci"),
    ]

    described = describe_repositories(registrations, Mirrors(tmp_path / "cache"), Policy(), lambda _: problem)
    views = read_repositories(described, Mirrors(tmp_path / "cache"), Policy())

    refused, oci = views.values()
    assert (refused.problem, refused.head, refused.role) == (problem, None, RepositoryRole.PLANNED)
    assert oci.problem is not None
    assert oci.problem != problem
    assert replace(oci, problem=None).is_available
