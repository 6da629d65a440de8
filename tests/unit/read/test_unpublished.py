"""Merged states without a tag: of several views of one repository, and of commits with many packages."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from reconciler.api.porch import Repository
from reconciler.git.commits import PackageAnnotation, parse_annotations
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import RepositoryView, Sourced
from reconciler.policy import Policy
from reconciler.read.repositories import discovery
from tests.support.git import Repo, kptfile, make_repository
from tests.support.reading import read_registered
from tests.unit.read.test_repositories import registration

OURS = kptfile(owner="default/default/pv")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repository(tmp_path / "edge.git", {"web/Kptfile": OURS})


def read(tmp_path: Path, *registrations: Sourced[Repository]) -> Mapping[str, RepositoryView]:
    views = read_registered(registrations, Mirrors(tmp_path / "cache"), Policy())
    return {key.name: view for key, view in views.items()}


def test_package_with_a_link_in_place_of_its_kptfile_is_not_searched(repo: Repo, tmp_path: Path) -> None:
    repo.commit({"web/Kptfile": (OURS.encode(), 0o120000)})

    packages = read(tmp_path, registration(str(repo.path)))["edge"].packages

    assert packages["web"].main_header is not None
    assert packages["web"].main_header.owner == "default/default/pv"
    assert packages["web"].unpublished == ()


def test_views_of_one_branch_and_of_another_have_the_states_of_their_own_packages(
    repo: Repo, tmp_path: Path
) -> None:
    start = repo.commit({"a/web/Kptfile": OURS, "b/web/Kptfile": OURS})
    other = repo.commit({"a/web/x": "1"}, branch="other", start="main")
    repo.tag("b/web/v1")
    fix = repo.commit({"b/web/x": "1"})
    remote = str(repo.path)

    views = read(
        tmp_path,
        registration(remote, name="a", directory="a"),
        registration(remote, name="b", directory="b"),
        registration(remote, name="other", directory="a", branch="other"),
    )

    packages = {name: next(iter(view.packages.values())) for name, view in views.items()}
    states = {name: [state.commit.oid for state in p.unpublished] for name, p in packages.items()}
    assert states == {"a": [start], "b": [fix], "other": [start, other]}


def test_annotations_of_a_commit_of_many_packages_are_parsed_once(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = [f'kpt:{{"package":"p{n}","workspaceName":"w{n}","revision":"1"}}' for n in range(20)]
    repo.commit({f"p{n}/Kptfile": OURS for n in range(20)}, message="\n".join(["Merge", *notes]))
    for number in range(10):
        repo.tag(f"p{number}/v1")
    parsed = []

    def parse(message: str) -> tuple[PackageAnnotation, ...]:
        parsed.append(message)
        return parse_annotations(message)

    monkeypatch.setattr(discovery, "parse_annotations", parse)
    packages = read(tmp_path, registration(str(repo.path)))["edge"].packages

    assert [packages[f"p{n}"].published[0].workspace for n in range(10)] == [f"w{n}" for n in range(10)]
    unpublished = [packages[f"p{n}"].unpublished[0] for n in range(10, 20)]
    assert [state.workspaces for state in unpublished] == [{1: f"w{n}"} for n in range(10, 20)]
    assert len([message for message in parsed if "p19" in message]) == 1
