"""Commits of the plan: their messages and people, and the first commit of an empty repository."""

import pytest

from reconciler.api.porch import GitRepository
from reconciler.inventory.inventory import Commit, PullRequest, PullState, RepositoryView, repository_commits
from reconciler.names.objects import Signature, commit_bytes, object_id, tree_id
from reconciler.plan.drafts import next_workspace, revision_name, start_branch, with_lines
from reconciler.policy import Author, CommitPolicy
from tests.support.plan_values import a_pin, a_pull, a_target, oid
from tests.support.sets import repository, source, world
from tests.support.values import replace


def an_empty_repository(name: str, time: int, *, create: bool = True) -> RepositoryView:
    view = repository(name, url="host/edge", source=source("repositories.yaml", time=time))
    git = GitRepository(repo="https://host/edge", create_branch=create)
    spec = view.manifest.spec.model_copy(update={"git": git})
    return replace(view, manifest=view.manifest.model_copy(update={"spec": spec}))


def test_first_commit_is_as_old_as_the_oldest_registration_whichever_asks() -> None:
    views = tuple(an_empty_repository(name, time) for name, time in (("a", 9), ("b", 5), ("c", 7)))
    inventory = world(views=views)

    starts = [next(start_branch(view, inventory)) for view in views]

    assert {(start.ref, start.time) for start in starts} == {("refs/heads/main", 5)}
    assert len({start.oid for start in starts}) == 1


@pytest.mark.parametrize(
    "view",
    [
        an_empty_repository("edge", 5, create=False),
        replace(an_empty_repository("edge", 5), branches={"trunk": Commit(oid("a1"), 1)}),
        repository("edge"),
    ],
    ids=["not asked for", "another branch exists", "no Git repository"],
)
def test_repository_is_begun_only_if_it_is_empty_and_its_registration_asks(view: RepositoryView) -> None:
    assert list(start_branch(view, world(views=(view,)))) == []


# Messages


def kpt(path: str, workspace: str) -> str:
    return f'kpt:{{"package":"{path}","workspaceName":"{workspace}","revision":"0"}}\n'


def test_lines_stand_between_title_and_task() -> None:
    message = f"Title\n\n\n{kpt('web', 'w1')}"

    assert with_lines(message, ["one", "two"]) == f"Title\n\none\ntwo\n\n{kpt('web', 'w1')}"
    assert with_lines(message, []) == message


def test_names_of_revisions() -> None:
    view = repository("edge", directory="sites")

    assert revision_name(view, "sites/a/b/web", "v1") == "edge.a.b.web.v1"
    assert revision_name(view, "sites/web", "main") == "edge.web.main"
    assert a_pin(3).label == "web/v3"
    assert a_pin(0, ref="main").label == "main@a0000000"
    assert a_pin(-1, ref="stable", commit=a_pin(2).commit).label == "stable@a2000000"


def by(name: str, directory: str, author: str, email: str) -> RepositoryView:
    view = repository(name, directory=directory)
    git = GitRepository(repo="https://host/edge", author=author, email=email)
    spec = view.manifest.spec.model_copy(update={"git": git})
    return replace(view, manifest=view.manifest.model_copy(update={"spec": spec}))


def test_authors_are_those_of_the_most_specific_directory_first() -> None:
    views = [
        by("a", "", "Ann", "ann@x"),
        by("b", "sites/deep", " B<o>b\x07 ", "bob@x\n"),
        by("c", "sites", "", "only@x"),
        by("d", "none", "", ""),
        by("e", "names", "Eve", ""),
        repository("f", directory="nogit"),
    ]
    policy = CommitPolicy()

    found = repository_commits(views, policy)

    assert found == replace(
        policy,
        authors=(
            Author("sites/deep", "Bob", "bob@x"),
            Author("sites", "only@x", "only@x"),
            Author("names", "Eve", ""),
            Author("", "Ann", "ann@x"),
        ),
    )
    assert repository_commits(views[::-1], policy) == found


def test_first_commit_has_a_readme_and_the_people_of_its_registrations() -> None:
    view = an_empty_repository("edge", 5)
    git = view.manifest.spec.git
    assert git is not None
    spec = view.manifest.spec.model_copy(
        update={"git": git.model_copy(update={"author": "Ann", "email": "a@x"})}
    )
    signed = replace(view, manifest=view.manifest.model_copy(update={"spec": spec}))

    (start,) = start_branch(signed, world(views=(signed,)))
    (unsigned,) = start_branch(view, world(views=(view,)))

    policy = CommitPolicy()
    committer = Signature(policy.name, policy.email, 5)
    assert {path: file.data for path, file in start.files.items()} == {
        "README.md": b"Created by reconciler\n"
    }
    assert (start.message, start.time, start.expect) == ("Initial commit: Creating main branch\n", 5, None)
    assert [start.oid, unsigned.oid] == [
        object_id("commit", commit_bytes(tree_id(start.files), (), author, committer, start.message))
        for author in (Signature("Ann", "a@x", 5), committer)
    ]


def a_head(path: str, number: int, state: PullState = PullState.CLOSED) -> PullRequest:
    return a_pull(state, head=f"drafts/{path}/packagevariant-{number}")


@pytest.mark.parametrize(
    ("pulls", "number"),
    [
        ((), 1),
        *(((a_head("web", 4, state),), 5) for state in PullState),
        ((a_head("web", 12), a_head("web", 9)), 13),
        ((a_head("web/deep", 4), a_head("api", 7)), 1),
        ((a_pull(head="drafts/web/mine-3"),), 1),
    ],
)
def test_workspace_of_an_ended_pull_request_is_not_used_again(pulls, number) -> None:
    assert next_workspace(a_target(pulls=pulls)) == f"packagevariant-{number}"
