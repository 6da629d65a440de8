"""Commits of the plan: the first commit of an empty repository."""

from dataclasses import replace

import pytest

from reconciler.api.porch import GitRepository
from reconciler.inventory import Commit, RepositoryView
from reconciler.plan.commits import start_branch
from tests.support.plan_values import oid
from tests.support.sets import repository, source, world


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
