"""Package paths: what Git refuses, what Porch refuses, what stands in the way."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import layout
from reconciler.package_paths import (
    PathIndex,
    RefIndex,
    check_object_name,
    refuse_new_name,
    refuse_path,
    refuse_ref,
    relative_package,
)

segments = st.from_regex(r"[a-z0-9][a-z0-9-]{0,10}", fullmatch=True)
paths = st.lists(segments, min_size=1, max_size=4).map("/".join)


@given(paths, segments)
def test_what_we_name_is_what_we_would_create(path: str, workspace: str) -> None:
    assert refuse_ref(layout.draft_ref(path, workspace)) == ""
    assert refuse_ref(layout.deletion_ref("default", path)) == ""


class Ref(NamedTuple):
    reason: str
    ref: str


BAD_REFS = [
    Ref("not a full name", "drafts/a/w"),
    Ref("a leading dash", "refs/heads/-x"),
    Ref("dots", "refs/heads/a..b"),
    Ref("a leading dot", "refs/heads/.a"),
    Ref("a final dot", "refs/heads/a."),
    Ref("a lock", "refs/heads/a.lock/b"),
    Ref("a reflog", "refs/heads/a@{1}"),
    Ref("a space", "refs/heads/a b"),
    Ref("a colon, which is a refspec", "refs/heads/a:refs/heads/main"),
    Ref("a plus", "refs/heads/+a"),
    Ref("a newline", "refs/heads/a\n"),
    Ref("a command", "refs/heads/$(id)"),
    Ref("an option", "refs/heads/--upload-pack=id"),
    Ref("an empty segment", "refs/heads//a"),
    Ref("not ASCII", "refs/heads/é"),
    Ref("too long", "refs/heads/" + "/".join(["a" * 100] * 3)),
]


@pytest.mark.parametrize("case", BAD_REFS, ids=lambda c: c.reason)
def test_a_ref_we_would_not_create(case: Ref) -> None:
    assert refuse_ref(case.ref)


@pytest.mark.parametrize(
    ("ref", "existing", "want"),
    [
        ("refs/heads/drafts/a/w", {"refs/heads/main"}, ""),
        ("refs/heads/drafts/a/w", {"refs/heads/drafts/a/w"}, ""),
        ("refs/heads/drafts/a/w", {"refs/heads/drafts"}, "refs/heads/drafts"),
        ("refs/heads/drafts/a/w", {"refs/heads/drafts/a"}, "refs/heads/drafts/a"),
        ("refs/heads/drafts/a", {"refs/heads/drafts/a/w"}, "refs/heads/drafts/a/w"),
        ("refs/heads/drafts/a/w", {"refs/heads/Drafts/a/w"}, "refs/heads/Drafts/a/w"),
    ],
)
def test_what_blocks_a_ref(ref: str, existing: set[str], want: str) -> None:
    assert RefIndex(existing).find_blocker(ref) == want


def test_a_branch_named_as_our_directory_blocks_it() -> None:
    blocked = RefIndex({"refs/heads/drafts", "refs/heads/main"})
    free = RefIndex({"refs/heads/drafts/a/w", "refs/tags/drafts"})

    assert blocked.find_blocked_directories() == ("refs/heads/drafts",)
    assert free.find_blocked_directories() == ()


def test_a_package_is_named_below_its_directory() -> None:
    assert relative_package("clusters/edge/nginx", "clusters/edge/") == "nginx"
    assert relative_package("nginx", "") == "nginx"


@given(paths)
def test_paths_of_plain_segments_can_have_drafts_and_tags(path: str) -> None:
    assert refuse_path(path, "fleet") == ""


class Bad(NamedTuple):
    reason: str
    path: str


BAD_PATHS = [
    Bad("leaves the repository", "../x"),
    Bad("a space", "a b"),
    Bad("two dots", "x..y"),
    Bad("a lock file of Git", "web.lock"),
    Bad("an empty segment", "a//b"),
    Bad("Git's own directory", ".git"),
    Bad("a revision expression", "x~y"),
    Bad("the directory itself", "."),
    Bad("nothing", ""),
    Bad("a backslash", "a\\b"),
    Bad("too long for the branches of its drafts", "/".join(["a" * 60] * 4)),
]


@pytest.mark.parametrize("case", BAD_PATHS, ids=lambda c: c.reason)
def test_path_that_git_refuses_is_refused(case: Bad) -> None:
    assert refuse_path(case.path, "fleet")


@pytest.mark.parametrize(
    "package", ["Web", "web_app", "web.v1", "-web", "web-", "a" * 64, "con", "lpt1", "apps/aux", "a-/web"]
)
def test_new_package_name_that_porch_or_windows_refuses(package: str) -> None:
    assert refuse_new_name("edge", package)


@pytest.mark.parametrize("package", ["web", "apps/web", "a/b/c", "7", "console", "com"])
def test_new_package_name_that_porch_accepts(package: str) -> None:
    assert refuse_new_name("edge", package) == ""


def test_object_name_of_later_revisions_fits() -> None:
    package = "/".join(["p" * 31, "q" * 32, "n" * 63])

    assert refuse_new_name("r" * 63, package) == ""
    assert "package" in check_object_name("edge", "", "n" * 64)


@given(st.sets(paths, max_size=8), paths)
def test_nested_packages_are_those_within_each_other(existing: set[str], path: str) -> None:
    clashing = {o for o in existing if o != path and (layout.is_within(o, path) or layout.is_within(path, o))}

    found = PathIndex(existing).find_nested(path)

    assert found in clashing if clashing else found is None


def test_paths_that_differ_in_case_clash() -> None:
    index = PathIndex({"Apps/web", "db"})

    assert index.find_case_clash("apps/new") == "Apps"
    assert index.find_case_clash("Apps/WEB") == "Apps/web"
    assert index.find_case_clash("Apps/new") is None
    assert index.find_case_clash("db") is None
