"""Refusals of paths and refs, each by its whole problem."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.expand import Desired
from reconciler.inventory.inventory import Commit, PackageRevision, RepositoryView
from reconciler.names.ids import Lifecycle, ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.names.refs import PathIndex, RefIndex
from reconciler.plan.changes import Change, MoveRef, Op
from reconciler.plan.compose import Held, Veto
from reconciler.plan.context import Neighbours
from reconciler.plan.path_conflicts import (
    find_blocked_refs,
    find_nested_downstreams,
    find_obstacle,
    index_refs,
)
from tests.support.plan_values import (
    EDGE,
    PACKAGE,
    URL,
    WEB,
    a_change,
    a_desired,
    a_record,
    a_target,
    a_write,
    field_at,
    oid,
    staged,
    web_context,
)
from tests.support.sets import a_package, repository, source, world
from tests.support.values import replace

LOCATION = field_at("web.yaml", "spec", "downstream", "package")
SUBJECT = f"PackageVariant {WEB}"
NEW = a_target(package=a_package())
NOTHING = Neighbours(PathIndex(()), PathIndex(()), RefIndex(()))
ELSEWHERE = "Choose another downstream package."


def denied(reason: Reason, message: str, hint: str, subject: str = SUBJECT) -> Held:
    return Held(
        Veto.PATH, reason, message, Op.BLOCK, problem=Problem(LOCATION, reason, message, hint, subject)
    )


def obstacle(target: Any = NEW, variant: Any = None, near: Neighbours | None = NOTHING, **fields: Any) -> Any:
    neighbours = {URL: near} if near is not None else {}
    context = web_context(target, neighbours=neighbours, **fields)
    return find_obstacle(target, variant or a_desired(), context)


def test_free_path_has_no_obstacle() -> None:
    assert obstacle() is None
    assert obstacle(near=None) is None


# Directories of more specific Repositories


@pytest.mark.parametrize(
    ("named", "other", "path", "is_refused"),
    [
        ("", "web", "web", True),
        ("", "web", "web/inner", True),
        ("", "web", "webs", False),
        ("", "", "web", False),
        ("web", "", "web", False),
        ("web", "web/inner", "web/inner/a", True),
        ("web", "web/inner", "web/other", False),
    ],
)
def test_path_in_the_directory_of_a_more_specific_repository_is_that_ones(
    named: str, other: str, path: str, is_refused: bool
) -> None:
    views = (replace(EDGE, directory=named), repository("other", url=URL, directory=other))
    target = replace(a_target(package=a_package(path)), key=PackageKey(URL, path))
    there = replace(target, package=replace(target.package, main_tree=oid("b1")))

    found = [obstacle(each, inventory={"views": views}) for each in (target, there)]

    message = f'package path "{path}" lies in the directory of Repository default/other'
    hint = "Name that Repository in spec.downstream.repo, or choose another downstream package."
    refusal = denied(Reason.PATH_TAKEN, message, hint)
    assert found == ([refusal, replace(refusal, op=Op.KEEP)] if is_refused else [None, None])


# Nested packages


@pytest.mark.parametrize(
    ("existing", "message"),
    [
        (
            "web/inner",
            'package path "web" conflicts with existing package "web/inner": packages cannot be nested',
        ),
        ("WEB", 'package path "web" differs from "WEB" in upper and lower case only'),
        ("webs", None),
    ],
)
def test_existing_packages_are_in_the_way(existing: str, message: str | None) -> None:
    near = Neighbours(PathIndex((existing,)), PathIndex(()), RefIndex(()))

    found = obstacle(near=near)

    assert found == (denied(Reason.NESTED_PACKAGE, message, ELSEWHERE) if message else None)
    assert obstacle(a_target(), near=near) is None  # it is on main: the others are intruders
    # A file or a directory of another case is in the way, too, and one inside is a file of the package.
    beside = replace(near, existing=PathIndex(()), others=PathIndex((existing,)))
    is_in_the_way = found if existing == "WEB" else None
    assert obstacle(near=beside) == is_in_the_way


def test_new_packages_of_other_variants_are_in_the_way() -> None:
    near = Neighbours(PathIndex(()), PathIndex(("web", "web/inner")), RefIndex(()))
    inner = PackageKey(URL, "web/inner")
    rivals = {PACKAGE: (a_desired(),), inner: (a_desired("api"), a_desired("dns"))}
    message = (
        'package path "web" conflicts with package "web/inner" of PackageVariant '
        "default/api (web.yaml:1) and default/dns (web.yaml:1): packages cannot be nested"
    )

    assert obstacle(near=near, downstreams=rivals) == denied(Reason.NESTED_PACKAGE, message, ELSEWHERE)
    known = Neighbours(PathIndex(()), PathIndex(("web/inner",)), RefIndex(()))
    assert obstacle(near=known, downstreams=rivals) is None


# Files, directories and tags


@pytest.mark.parametrize(
    ("tags", "published", "message"),
    [
        (("web",), (), "tag web is in the way of v1"),
        (("web/v1/old",), (), "tag web/v1/old is in the way of v1"),
        (("web/v3/old",), (2,), "tag web/v3/old is in the way of v3"),
        (("web/v1/old",), (2,), None),
        (("webs",), (), None),
    ],
)
def test_tag_blocks_the_tags_of_a_package(tags, published, message) -> None:
    commit = Commit(oid("f1"), 1)
    revisions = tuple(
        PackageRevision("web", f"v{n}", n, Lifecycle.PUBLISHED, f"refs/tags/web/v{n}", commit, oid("c1"))
        for n in published
    )
    near = replace(NOTHING, refs=RefIndex.of_branches_and_tags({}, dict.fromkeys(tags, commit)))

    found = obstacle(a_target(package=a_package(published=revisions)), near=near)

    hint = "Delete or rename the tag, or choose another downstream package."
    full = f'package path "web" cannot have tags: {message}'
    assert found == (denied(Reason.PATH_TAKEN, full, hint) if message else None)


# Repositories that were not read


def nested(
    wanted: Mapping[str, str], applied: tuple[str, ...] = (), urls: tuple[str, ...] = (URL,)
) -> list[Problem]:
    variants = tuple(
        replace(a_desired(name, downstream={"repo": "edge", "package": path}), source=source(f"{name}.yaml"))
        for name, path in wanted.items()
    )
    records = {
        ObjectName("default", path): a_record(name=path.replace("/", "-"), path=path) for path in applied
    }
    inventory = world(views=(EDGE,), records=records)
    return list(find_nested_downstreams(Desired(variants=variants), inventory, urls))


@pytest.mark.parametrize(
    ("wanted", "applied", "urls"),
    [
        pytest.param({"a": "web"}, ("web",), (URL,), id="it was applied"),
        pytest.param({"a": "web", "b": "web/a"}, ("web", "web/a"), (URL,), id="both were applied"),
        pytest.param({"a": "web", "b": "web/a"}, (), (), id="its repository was read"),
        pytest.param({"a": "web", "b": "webs"}, (), (URL,), id="they are not nested"),
    ],
)
def test_nothing_is_nested(wanted, applied, urls) -> None:
    assert nested(wanted, applied, urls) == []


# Refs that Git cannot create

DRAFT = a_write(ref="refs/heads/drafts/web/v1", time=1)
CHANGE = a_change(op=Op.CREATE, reason=Reason.NEW, variant=WEB, before=oid("b1"), writes=(DRAFT,), waits=True)


def refused(
    change: Change, branches: tuple[str, ...] = (), tags: tuple[str, ...] = ()
) -> tuple[Change, list[Problem]]:
    commit = Commit(oid("f1"), 1)
    view = replace(EDGE, branches=dict.fromkeys(branches, commit), tags=dict.fromkeys(tags, commit))
    return every_refused([change], view)


def every_refused(changes: Sequence[Change], *views: RepositoryView) -> tuple[Any, list[Problem]]:
    context = web_context(inventory={"views": views})
    vetoes, problems = find_blocked_refs({change.package: change for change in changes}, context)
    kept = staged("blocked", lambda *_: vetoes, changes, context)
    return kept if len(kept) > 1 else kept[0], problems


def test_tag_that_blocks_a_new_one_is_named() -> None:
    tag = MoveRef("refs/tags/web/v1", None, oid("f2"))
    kept, (problem,) = refused(replace(CHANGE, writes=(tag,)), (), ("web",))

    assert kept.op is Op.BLOCK
    assert problem.message == "Tag web of repository edge makes refs below web/, or of that name impossible"
    assert problem.hint == "Rename or delete tag web; drafts, proposals and deletions need such names."


def test_refs_of_a_repository_are_those_of_a_view_that_was_read() -> None:
    tags, unread = {"web": Commit(oid("a1"), 1)}, Problem(LOCATION, Reason.REPOSITORY_UNAVAILABLE, "")
    views = [replace(EDGE, problem=unread), replace(EDGE, tags=tags)]

    assert index_refs(views).find_blocker("refs/tags/web/v1") == "refs/tags/web"
    assert not index_refs(views[:1]).find_blocker("refs/tags/web/v1")
