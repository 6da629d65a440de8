from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.porch import Repository
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.git.command import process_count
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import Draft, PackageState, RepositoryView, Source, Sourced
from reconciler.names.ids import Lifecycle, ObjectName
from reconciler.policy import OnUnavailable, Policy
from tests.support.git import BOT, Repo, kptfile, make_repository
from tests.support.reading import read_registered

OURS = kptfile(owner="default/default/pv", location="edge/nginx")
W = "drafts/nginx/packagevariant-1"


def registration(remote: str, *, name: str = "edge", **git: Any) -> Sourced[Repository]:
    annotations = git.pop("annotations", None)
    spec = {"type": git.pop("type", "git"), "git": {"repo": remote, **git}}
    metadata = {"name": name, "annotations": annotations}
    manifest = Repository.model_validate(
        {
            "apiVersion": "config.porch.kpt.dev/v1alpha1",
            "kind": "Repository",
            "metadata": metadata,
            "spec": spec,
        }
    )
    return Sourced(ObjectName("default", name), manifest, Source(Location("repositories.yaml", 3)))


Read = Callable[..., Mapping[str, RepositoryView]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read registrations from scratch; views by their name."""

    def views(*registrations: Sourced[Repository]) -> Mapping[str, RepositoryView]:
        views = read_registered(registrations, Mirrors(tmp_path / "cache"), Policy())
        assert all(key == view.key for key, view in views.items())
        return {key.name: view for key, view in views.items()}

    return views


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repository(
        tmp_path / "edge.git", {"nginx/Kptfile": OURS, "nginx/values.yaml": "replicas: 1\n"}
    )


def view_of(read: Read, repo: Repo, **git: Any) -> RepositoryView:
    return read(registration(str(repo.path), **git))["edge"]


def package(read: Read, repo: Repo, path: str = "nginx") -> PackageState:
    return view_of(read, repo).packages[path]


def draft(read: Read, repo: Repo) -> Draft:
    (only,) = package(read, repo).drafts
    return only


# Main


def test_directory_with_a_kptfile_is_a_package_and_not_descended(read: Read, repo: Repo) -> None:
    repo.commit(
        {"a/b/Kptfile": kptfile("b"), "a/b/sub/Kptfile": kptfile("sub"), "a/README.md": "", "c/x": ""}
    )

    view = view_of(read, repo)

    assert sorted(view.packages) == ["a/b", "nginx"]
    assert view.packages["a/b"].main_tree == repo.tree("main", "a/b")
    assert view.packages["a/b"].main_header is not None
    assert view.packages["nginx"].main_header.owner == "default/default/pv"
    assert view.head is not None
    assert (view.head.oid, view.head.time) == (repo.oid("main"), repo.time)


def test_only_the_registered_directory_counts_on_whole_segments(read: Read, repo: Repo) -> None:
    for path in ("cat/a", "catalog/b", "cat-alog/c"):
        repo.commit({f"{path}/Kptfile": kptfile()})
        repo.tag(f"{path}/v1")
        repo.commit({f"{path}/x": "1"}, branch=f"drafts/{path}/w", start="main")

    for directory in ("cat", "/cat/", "cat/."):
        assert sorted(view_of(read, repo, directory=directory).packages) == ["cat/a"]
    assert view_of(read, repo, directory="nowhere").packages == {}


def test_kptfile_directory_makes_no_package(read: Read, repo: Repo) -> None:
    repo.commit({"odd/Kptfile/x": ""})

    assert "odd" not in view_of(read, repo).packages


def test_invalid_kptfile_has_no_owner(read: Read, repo: Repo) -> None:
    repo.commit({"odd/Kptfile": "a: [", "list/Kptfile": "[]", "bin/Kptfile": b"\xff\0", "empty/Kptfile": ""})

    packages = view_of(read, repo).packages

    for path in ("odd", "list", "bin", "empty"):
        header = packages[path].main_header
        assert header is not None
        assert header.error
        assert header.owner == ""


def test_hostile_neighbours_hide_no_package(read: Read, repo: Repo) -> None:
    root = [(b"40000", b"nginx", repo.tree("main", "nginx"))]
    evil = repo.raw_tree((b"40000", b"..", repo.tree("main")), (b"160000", b"sub", "1" * 40), *root)
    repo.point("refs/heads/main", repo.write(evil, [repo.oid("main")]))

    assert sorted(view_of(read, repo).packages) == ["nginx"]


# One repository, many roles


def test_directory_belongs_to_its_most_specific_view(read: Read, repo: Repo) -> None:
    for path in ("clusters/a/nginx", "clusters/b/nginx", "blueprints/nginx"):
        repo.commit({f"{path}/Kptfile": kptfile()})
        repo.tag(f"{path}/v1")
        repo.commit({f"{path}/x": "1"}, branch=f"drafts/{path}/w", start="main")
    remote = str(repo.path)

    views = read(
        registration(remote, name="all"),
        registration(remote, name="clusters", directory="clusters"),
        registration(f"file://{remote}", name="a", directory="clusters/a"),
    )

    assert {name: sorted(view.packages) for name, view in views.items()} == {
        "all": ["blueprints/nginx", "nginx"],
        "clusters": ["clusters/b/nginx"],
        "a": ["clusters/a/nginx"],
    }
    assert len({view.url for view in views.values()}) == 1
    assert views["a"].packages["clusters/a/nginx"].drafts
    assert [views["a"].full_path(path) for path in ("nginx", "/X/", "")] == [
        "clusters/a/nginx",
        "clusters/a/X",
        "clusters/a",
    ]
    assert views["all"].full_path("/nginx/") == "nginx"


# Tags


def test_tags_are_revisions_of_their_package(read: Read, repo: Repo) -> None:
    repo.tag("nginx/v1")
    repo.commit({"nginx/values.yaml": "replicas: 2\n"})
    repo.tag("nginx/v2", message="annotated")
    repo.tag("nginx/v2.0.0")
    repo.tag("nothere/v1")
    repo.tag("v9")

    view = view_of(read, repo)

    revisions = [(r.workspace, r.revision) for r in view.packages["nginx"].published]
    assert revisions == [("v2.0.0", -1), ("v1", 1), ("v2", 2)]
    assert view.packages["nginx"].latest == view.packages["nginx"].published[2]
    assert view.packages["nginx"].published[2].commit.oid == repo.oid("main")
    assert sorted(view.packages) == ["nginx"]
    assert "v9" in view.tags


def test_workspace_is_read_from_the_commit(read: Read, repo: Repo) -> None:
    line = 'kpt:{"package":"nginx","workspaceName":"packagevariant-3","revision":"1"}'
    repo.commit({"nginx/x": "1"}, message=f"Approving\n\n{line}\nkpt:{{broken\n")
    repo.tag("nginx/v1")

    assert package(read, repo).published[0].workspace == "packagevariant-3"


def test_revision_with_proposed_deletion(read: Read, repo: Repo) -> None:
    repo.tag("nginx/v1")
    repo.tag("nginx/v2")
    repo.point("refs/heads/deletionProposed/nginx/v1", repo.oid("main"))
    repo.point("refs/heads/reconciler/default/delete/nginx", repo.oid("main"))

    state = package(read, repo)

    assert [r.lifecycle for r in state.published] == [Lifecycle.DELETION_PROPOSED, Lifecycle.PUBLISHED]


def test_tags_alone_are_history(read: Read, repo: Repo) -> None:
    repo.tag("nginx/v1")
    repo.commit({"nginx/Kptfile": None, "nginx/values.yaml": None, "README": ""})

    assert (package(read, repo).exists, len(package(read, repo).published)) == (False, 1)


# Drafts


def test_our_own_draft(read: Read, repo: Repo) -> None:
    base = repo.oid("main")
    repo.commit({"nginx/values.yaml": "replicas: 2\n"}, branch=W, start="main", who=BOT)

    nginx = draft(read, repo)

    assert (nginx.workspace, nginx.lifecycle, nginx.ref) == (
        "packagevariant-1", Lifecycle.DRAFT, f"refs/heads/{W}",
    )  # fmt: skip
    assert nginx.tree == nginx.written == repo.tree(W, "nginx")
    assert (nginx.base, nginx.base_tree) == (base, repo.tree(base, "nginx"))
    assert not nginx.has_foreign_commits
    assert not nginx.is_edited
    assert nginx.header.owner == "default/default/pv"


def test_new_package_has_no_base_tree(read: Read, repo: Repo) -> None:
    repo.commit({"web/Kptfile": kptfile()}, branch="drafts/web/w", start="main", who=BOT)

    state = package(read, repo, "web")

    assert state.drafts[0].base_tree is None
    assert state.main_tree is None
    assert state.exists


@pytest.mark.parametrize(
    ("files", "is_edited"), [({"nginx/values.yaml": "replicas: 5\n"}, True), ({"README.md": "hello"}, False)]
)
def test_commit_of_a_person_is_foreign_and_an_edit_of_the_package_is_one(
    read: Read, repo: Repo, files: dict[str, str], *, is_edited: bool
) -> None:
    repo.commit({"nginx/values.yaml": "replicas: 2\n"}, branch=W, start="main", who=BOT)
    ours = repo.tree(W, "nginx")
    repo.commit(files, branch=W)

    nginx = draft(read, repo)

    assert (nginx.written, nginx.is_edited, nginx.has_foreign_commits) == (ours, is_edited, True)
    assert nginx.foreign_commit_time == repo.time


def test_merge_of_main_into_a_draft_is_no_edit(read: Read, repo: Repo) -> None:
    repo.commit({"nginx/values.yaml": "replicas: 2\n"}, branch=W, start="main", who=BOT)
    repo.commit({"other/x": "1"})
    repo.merge("main", into=W)

    nginx = draft(read, repo)

    assert (nginx.is_edited, nginx.has_foreign_commits, nginx.base) == (False, True, repo.oid("main"))


def test_amended_commit_is_foreign(read: Read, repo: Repo) -> None:
    ours = repo.commit({"nginx/values.yaml": "replicas: 2\n"}, branch=W, start="main", who=BOT)
    repo.point(f"refs/heads/{W}", repo.write(repo.tree(ours), [repo.oid("main")]))

    nginx = draft(read, repo)

    assert (nginx.written, nginx.is_edited, nginx.has_foreign_commits) == (None, True, True)


def test_our_commit_is_found_below_foreign_commits_with_wrong_clocks(read: Read, repo: Repo) -> None:
    repo.commit({"nginx/values.yaml": "replicas: 2\n"}, branch=W, start="main", who=BOT, time=5)
    ours = repo.tree(W, "nginx")
    for time in (3, 2_000_000_000):
        repo.commit({f"nginx/{time}": ""}, branch=W, time=time)

    nginx = draft(read, repo)

    assert nginx.written == ours
    assert nginx.foreign_commit_time == 2_000_000_000


def test_merged_commit_of_another_draft_is_not_the_written_tree(read: Read, repo: Repo) -> None:
    repo.commit({"nginx/values.yaml": "replicas: 2\n"}, branch=W, start="main", who=BOT)
    ours = repo.tree(W, "nginx")
    repo.commit({"web/Kptfile": kptfile()}, branch="drafts/web/w", start="main", who=BOT)
    merged = repo.merge("drafts/web/w", into=W)
    flipped = repo.write(
        repo.tree(merged), [repo.oid("drafts/web/w"), repo.git[merged].parent_ids[0].__str__()]
    )
    repo.point(f"refs/heads/{W}", flipped)

    assert draft(read, repo).written == ours


def test_branch_without_its_package_is_no_draft(read: Read, repo: Repo) -> None:
    repo.commit({"nginx/Kptfile": None}, branch=W, start="main")
    repo.point("refs/heads/drafts/nowhere/w", repo.oid("main"))

    view = view_of(read, repo)

    assert view.packages["nginx"].drafts == ()
    assert sorted(view.packages) == ["nginx"]
    assert W in view.branches


def test_draft_with_an_unrelated_history_has_no_base(read: Read, repo: Repo) -> None:
    repo.commit({"nginx/Kptfile": OURS}, branch=W)

    nginx = draft(read, repo)

    assert (nginx.base, nginx.base_tree, nginx.has_foreign_commits) == ("", None, True)


def test_proposals_are_found_beside_drafts(read: Read, repo: Repo) -> None:
    for ref in ("drafts/nginx/a", "proposed/nginx/b"):
        repo.commit({"nginx/x": ref}, branch=ref, start="main")

    drafts = package(read, repo).drafts

    assert [(d.workspace, d.lifecycle) for d in drafts] == [("a", Lifecycle.DRAFT), ("b", Lifecycle.PROPOSED)]


def test_merged_draft_is_ours_and_unedited(read: Read, repo: Repo) -> None:
    tip = repo.commit({"nginx/values.yaml": "replicas: 2\n"}, branch=W, start="main", who=BOT)
    repo.merge(W)

    nginx = draft(read, repo)

    assert (nginx.base, nginx.has_foreign_commits, nginx.is_edited) == (tip, False, False)


# Merged and not tagged


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
def test_two_merged_drafts_are_two_unpublished_revisions(read: Read, repo: Repo, how: str) -> None:
    repo.tag("nginx/v1")
    merged = []
    for number in (2, 3):
        branch = f"drafts/nginx/packagevariant-{number}"
        repo.commit({"nginx/values.yaml": f"replicas: {number}\n"}, branch=branch, start="main", who=BOT)
        repo.commit({"README.md": f"{number}"})
        merged.append(repo.merge(branch, how=how))
        repo.delete(f"refs/heads/{branch}")
    repo.commit({"README.md": "more"})

    unpublished = package(read, repo).unpublished

    assert [(s.commit.oid, s.tree) for s in unpublished] == [(oid, repo.tree(oid, "nginx")) for oid in merged]
    assert {s.header.owner for s in unpublished} == {"default/default/pv"}


def test_untagged_package_is_searched_to_its_creation(read: Read, repo: Repo) -> None:
    repo.commit({"nginx/values.yaml": "replicas: 2\n"})

    assert [s.tree for s in package(read, repo).unpublished] == [
        repo.tree(repo.git[repo.oid("main")].parent_ids[0].__str__(), "nginx"),
        repo.tree("main", "nginx"),
    ]


def test_hotfix_is_unpublished_and_tagged_head_is_not(read: Read, repo: Repo) -> None:
    repo.tag("nginx/v1")
    assert package(read, repo).unpublished == ()

    repo.commit({"README.md": "outside"})
    assert package(read, repo).unpublished == ()

    fix = repo.commit({"nginx/values.yaml": "replicas: 9\n"})
    assert [s.commit.oid for s in package(read, repo).unpublished] == [fix]


def test_reverted_state_is_unpublished_despite_an_older_tag(read: Read, repo: Repo) -> None:
    repo.tag("nginx/v1")
    repo.commit({"nginx/values.yaml": "replicas: 2\n"})
    repo.tag("nginx/v2")
    back = repo.commit({"nginx/values.yaml": "replicas: 1\n"})

    assert [s.commit.oid for s in package(read, repo).unpublished] == [back]


def test_tag_of_a_squashed_branch_publishes_the_state(read: Read, repo: Repo) -> None:
    repo.tag("nginx/v1")
    repo.commit({"nginx/values.yaml": "replicas: 2\n"}, branch=W, start="main", who=BOT)
    repo.tag("nginx/v2", W)
    repo.merge(W, how="squash")
    fix = repo.commit({"nginx/values.yaml": "replicas: 3\n"})

    assert [s.commit.oid for s in package(read, repo).unpublished] == [fix]


def test_recreated_package_starts_a_new_search(read: Read, repo: Repo) -> None:
    repo.commit({"nginx/Kptfile": None, "nginx/values.yaml": None, "README.md": ""})
    again = repo.commit({"nginx/Kptfile": OURS})

    assert [s.commit.oid for s in package(read, repo).unpublished] == [again]


def test_foreign_packages_are_not_searched(read: Read, repo: Repo) -> None:
    repo.commit({"web/Kptfile": kptfile(), "cms/Kptfile": kptfile(owner="other/default/pv")})

    view = view_of(read, repo)

    assert view.packages["web"].unpublished == view.packages["cms"].unpublished == ()


# Repositories that cannot be read


@pytest.mark.parametrize("remote", ["ext::sh -c id", "--upload-pack=id", "ftp://example.com/x"])
def test_unusable_address_is_a_problem(read: Read, remote: str) -> None:
    assert read(registration(remote))["edge"].problem is not None


def test_view_has_no_secret_in_its_address(read: Read) -> None:
    for remote in ("ftp://me:s3cret@example.com/x", "https://me:s3cret@localhost:1/x"):
        view = read(registration(remote))["edge"]

        assert view.problem is not None
        assert "s3cret" not in f"{view.remote} {view.problem} {view.problem.hint} {view.url}"


def test_other_types_are_a_problem(read: Read, repo: Repo) -> None:
    problem = view_of(read, repo, type="oci").problem

    assert problem is not None
    assert problem.reason == Reason.INVALID_MANIFEST


def test_missing_branch_hints_at_the_default_branch(read: Read, repo: Repo) -> None:
    view = view_of(read, repo, branch="master")

    assert view.problem is not None
    assert view.problem.hint.startswith("Its default branch is main. Set spec.git.branch, ")
    assert view.packages == {}


def test_empty_repository_needs_create_branch(read: Read, tmp_path: Path) -> None:
    empty = make_repository(tmp_path / "empty.git")

    assert view_of(read, empty).problem is not None
    allowed = view_of(read, empty, createBranch=True)
    assert (allowed.problem, allowed.head, allowed.packages) == (None, None, {})


def test_annotations_set_cluster_and_unavailable_policy(read: Read, repo: Repo) -> None:
    notes = {"reconciler.dev/cluster": "c1", "reconciler.dev/unavailable": "warn"}
    view = view_of(read, repo, annotations=notes)

    assert (view.cluster, view.unavailable) == ("c1", OnUnavailable.WARN)
    assert (view_of(read, repo).cluster, view_of(read, repo).unavailable) == ("edge", OnUnavailable.FAIL)


# Laws


def test_order_of_registrations_does_not_matter(read: Read, repo: Repo, tmp_path: Path) -> None:
    some = [
        registration(str(repo.path), name=n, directory=d) for n, d in (("a", ""), ("b", "nginx"), ("c", "x"))
    ]
    some.append(registration(str(tmp_path / "gone"), name="d"))

    assert list(read(*some).items()) == list(read(*reversed(some)).items())


def test_reading_local_repositories_starts_no_process(read: Read, repo: Repo) -> None:
    repo.commit({"nginx/values.yaml": "replicas: 2\n"}, branch=W, start="main", who=BOT)
    before = process_count()

    view_of(read, repo)

    assert process_count() == before
