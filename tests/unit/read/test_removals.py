"""The commit that removed a manifest is the evidence that its packages may go; nothing else is."""

from pathlib import Path

import pytest

from reconciler.api.porch import PackageVariant
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import Commit
from reconciler.inventory.standing import Position, Removal, Removals, Standing
from reconciler.names.ids import ObjectKey, Oid
from reconciler.policy import Policy
from reconciler.read.control import ControlHistory, OpenControl
from reconciler.read.removals import find_removals
from tests.support.git import Repo, make_repository

WEB = ObjectKey("config.porch.kpt.dev", "PackageVariant", "n", "web")
MANIFEST = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata: {name: web}
spec: {upstream: {repo: up, package: web}, downstream: {repo: edge, package: web}}
"""
OTHER = MANIFEST.replace("name: web", "name: other")
POLICY = Policy(default_namespace="n")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """A repository whose `web.yaml` declares the variant."""
    return make_repository(tmp_path / "control.git", {"web.yaml": MANIFEST, "README.md": "1"})


def removals(repo: Repo, standing: Standing, path: str = "web.yaml") -> Removals:
    mirror = Mirrors(repo.path.parent / "cache").open(str(repo.path))
    tip = repo.oid("main")
    opened = OpenControl(mirror, mirror, Commit(tip, repo.time), "main", published=True)
    return find_removals(ControlHistory(opened), tip, [(path, WEB)], standing, POLICY)


def one(repo: Repo, path: str, *, is_file: bool) -> Removal:
    return Removal(path, repo.oid("main"), is_file=is_file)


def by_file(repo: Repo) -> Removal:
    repo.commit({"web.yaml": None})
    return one(repo, "web.yaml", is_file=True)


def from_file(repo: Repo) -> Removal:
    repo.commit({"web.yaml": OTHER})
    return one(repo, "web.yaml", is_file=False)


def after_a_move(repo: Repo) -> Removal:
    repo.commit({"web.yaml": None, "sub/all.yml": f"{OTHER}---\n{MANIFEST}", "sub/notes.txt": MANIFEST})
    repo.commit({"sub/all.yml": OTHER})
    return one(repo, "sub/all.yml", is_file=False)


def twice(repo: Repo) -> Removal:
    repo.commit({"web.yaml": None})
    repo.commit({"web.yaml": MANIFEST})
    return by_file(repo)


def after_damage(repo: Repo) -> Removal:
    repo.commit({"web.yaml": "a: ["})  # a file that cannot be read may declare it
    return by_file(repo)


def on_a_branch(repo: Repo) -> Removal:
    gone = repo.commit({"web.yaml": None}, branch="x", start="main")
    repo.commit({"README.md": "2"})
    repo.merge("x")
    return Removal("web.yaml", gone, is_file=True)


def on_both_sides(repo: Repo) -> Removal:
    repo.commit({"web.yaml": None}, branch="x", start="main")
    later = repo.commit({"web.yaml": None})
    repo.merge("x")
    return Removal("web.yaml", later, is_file=True)


def by_a_merge(repo: Repo) -> Removal:
    repo.commit({"other.yaml": OTHER}, branch="x", start="main")
    ours = repo.commit({"README.md": "2"})
    without = repo.git[repo.oid("x")]
    repo.commit({"web.yaml": None}, branch="y", start="x")
    merge = repo.write(repo.tree("y"), [ours, Oid(str(without.id))], message="Merge\n")
    repo.point("refs/heads/main", merge)
    return Removal("web.yaml", merge, is_file=True)


@pytest.mark.parametrize(
    "remove", [by_file, from_file, after_a_move, twice, after_damage, on_a_branch, on_both_sides, by_a_merge]
)
@pytest.mark.parametrize("is_applied", [True, False], ids=["after the last run", "whenever"])
def test_last_commit_that_took_an_object_away_is_its_evidence(repo: Repo, remove, is_applied) -> None:
    first = repo.oid("main")
    expected = remove(repo)
    for number in (3, 4):
        repo.commit({"README.md": str(number)})
    applied = first if is_applied else repo.oid("main")  # a refused deletion was removed before

    found = removals(repo, Standing(applied=applied))

    assert (found.by_key[WEB]._replace(last=None), found.unproven) == (expected, {})


def test_evidence_has_the_manifest_as_it_was_before_the_commit(repo: Repo) -> None:
    applied = repo.oid("main")
    repo.commit({"web.yaml": MANIFEST.replace("spec: {", "spec: {deletionPolicy: orphan, ")})
    from_file(repo)

    last = removals(repo, Standing(applied=applied)).by_key[WEB].last

    assert isinstance(last, PackageVariant)
    assert last.spec.deletion_policy == "orphan"


def test_manifest_that_was_damaged_before_it_went_says_nothing(repo: Repo) -> None:
    after_damage(repo)

    assert removals(repo, Standing()).by_key[WEB].last is None


def test_object_that_the_last_run_had_is_searched_after_it_alone(repo: Repo) -> None:
    repo.commit({"web.yaml": None})
    applied = repo.commit({"web.yaml": MANIFEST})
    repo.point("refs/heads/main", repo.write(repo.tree("main"), [applied], message="Nothing\n"))

    found = removals(repo, Standing(applied=applied))

    assert found.by_key == {}
    assert found.unproven[WEB].startswith(f"No commit removed {WEB.subject} from web.yaml, so nothing proves")


@pytest.mark.parametrize("position", [Position.CURRENT, Position.REWRITTEN])
def test_object_that_no_commit_removed_is_unproven_unless_people_agreed_to_a_moved_branch(
    repo: Repo, position: Position
) -> None:
    found = removals(repo, Standing(position, applied=Oid("1" * 40)), path="never.yaml")

    assert found.by_key == {}
    assert [*found.unproven] == ([] if position is Position.REWRITTEN else [WEB])


def test_history_that_is_cut_off_says_how_to_fetch_it(repo: Repo) -> None:
    repo.commit({"web.yaml": None})
    (repo.path / "shallow").write_text(f"{repo.oid('main')}\n")

    (why,) = removals(repo, Standing()).unproven.values()

    assert why.startswith(
        f"The history of the control repository is cut off before a commit that removed {WEB.subject}"
    )
    assert "git fetch --unshallow" in why
