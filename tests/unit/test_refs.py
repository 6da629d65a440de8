"""Refs and package paths: parsing, validity by the rules of Git and Porch, collisions."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.names import refs
from reconciler.names.ids import Lifecycle
from reconciler.names.refs import (
    PathIndex,
    RefIndex,
    RevisionRef,
    object_name_errors,
    package_name_error,
    package_path_error,
    ref_error,
    relative_package,
)

segments = st.from_regex(r"[a-z0-9][a-z0-9-]{0,10}", fullmatch=True)
paths = st.lists(segments, min_size=1, max_size=4).map("/".join)


@given(paths, segments)
def test_drafts_and_proposals_read_back(path: str, workspace: str) -> None:
    draft = refs.parse_ref(refs.draft_ref(path, workspace))
    proposal = refs.parse_ref(f"refs/heads/proposed/{path}/{workspace}")

    assert draft == RevisionRef(path, workspace, 0, Lifecycle.DRAFT)
    assert proposal == RevisionRef(path, workspace, 0, Lifecycle.PROPOSED)


@given(paths, st.integers(min_value=1, max_value=10**9))
@example("web", 1)
def test_tags_read_back(path: str, revision: int) -> None:
    tag = refs.parse_ref(refs.tag_ref(path, revision))
    marked = refs.parse_ref(refs.deletion_proposed_ref(path, revision))

    assert tag == RevisionRef(path, f"v{revision}", revision, Lifecycle.PUBLISHED)
    assert marked == RevisionRef(path, f"v{revision}", revision, Lifecycle.DELETION_PROPOSED)


@pytest.mark.parametrize(
    "ref", ["refs/heads/main", "refs/heads/drafts/w", "refs/tags/v1", "refs/tags/a/", "x"]
)
def test_unrelated_ref_names_no_revision(ref: str) -> None:
    assert refs.parse_ref(ref) is None
    assert refs.parse_ref("refs/tags/a/b/v2.0.0") == RevisionRef("a/b", "v2.0.0", -1, Lifecycle.PUBLISHED)


@pytest.mark.parametrize("digits", ["9" * 19, "9" * 5000, "\u00b2", ""])
def test_number_that_no_tool_writes_is_no_number_of_a_branch(digits: str) -> None:
    assert refs.workspace_number(f"packagevariant-{digits}") == 0
    assert refs.group_number(refs.group_refs("fleet") + f"edge/{digits}", "fleet", ["edge"]) == 0


def test_numbers_are_those_of_our_workspaces_and_the_next_one_follows_the_greatest() -> None:
    names = ["packagevariant-9", "packagevariant-10", "other-99", "packagevariant-x"]
    assert [refs.workspace_number(name) for name in names] == [9, 10, 0, 0]
    assert (refs.next_revision([]), refs.next_revision([-1, 3, 1])) == (1, 4)


@given(paths, segments)
def test_our_refs_are_valid(path: str, workspace: str) -> None:
    assert ref_error(refs.draft_ref(path, workspace)) == ""
    assert ref_error(refs.deletion_ref("default", path)) == ""


BAD_REFS = [
    "drafts/a/w", "refs/heads/-x", "refs/heads/a..b", "refs/heads/.a", "refs/heads/a.",
    "refs/heads/a.lock/b", "refs/heads/a@{1}", "refs/heads/a b", "refs/heads/a:refs/heads/main",
    "refs/heads/+a", "refs/heads/a\n", "refs/heads/$(id)", "refs/heads/--upload-pack=id", "refs/heads//a",
    "refs/heads/é", "refs/heads/" + "/".join(["a" * 100] * 3),
]  # fmt: skip


@pytest.mark.parametrize("ref", BAD_REFS)
def test_invalid_ref(ref: str) -> None:
    assert ref_error(ref)


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
def test_existing_ref_blocks_a_new_one(ref: str, existing: set[str], want: str) -> None:
    assert RefIndex(existing).find_blocker(ref) == want


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("xpkg.example.com", "xpkg.example.com"),
        ("https://h.io/a b/", "h.io-a-b"),
        ("carvel:db.io", "carvel-db.io"),
        ("https://", "source"),
        (f"{'a' * 70}", f"{'a' * 51}-6bd5e503"),
        ("x.lock", "x.lock-f53b5310"),
    ],
)
def test_branch_of_a_source_is_named_as_it_is_as_far_as_git_can(source: str, name: str) -> None:
    assert refs.index_ref("fleet", source) == f"refs/heads/reconciler/fleet/index/{name}"
    assert ref_error(refs.index_ref("fleet", source)) == ""


def test_package_name_is_relative_to_the_directory() -> None:
    assert relative_package("clusters/edge/nginx", "clusters/edge/") == "nginx"
    assert relative_package("nginx", "") == "nginx"
    assert relative_package("clusters/X", "/clusters") == "X"


@given(paths)
def test_paths_of_plain_segments_can_have_drafts_and_tags(path: str) -> None:
    assert package_path_error(path, "fleet") == ""


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("../x", ".."),
        ("a//b", ""),
        *((path, path) for path in ("a b", "x..y", "b.lock", ".git", "~", ".", "\\")),
    ],
)
def test_invalid_package_path_is_told_by_its_part(path: str, wrong: str) -> None:
    assert package_path_error(path, "fleet") == f"{wrong!r} may not be part of a Git ref"


def test_package_path_may_be_neither_empty_nor_too_long_for_its_branches() -> None:
    long = "/".join(["a" * 60] * 4)

    assert package_path_error("", "fleet") == "it is empty"
    assert package_path_error(long, "fleet").startswith("the branches of its drafts would be too long: refs/")


@pytest.mark.parametrize(
    "package", ["Web", "web_app", "web.v1", "-web", "web-", "a" * 64, "con", "lpt1", "apps/aux", "a-/web"]
)
def test_invalid_new_package_name(package: str) -> None:
    assert package_name_error("edge", package)


@pytest.mark.parametrize("package", ["web", "apps/web", "a/b/c", "7", "console", "com"])
def test_valid_new_package_name(package: str) -> None:
    assert package_name_error("edge", package) == ""


def test_object_name_of_later_revisions_fits() -> None:
    package = "/".join(["p" * 31, "q" * 32, "n" * 63])

    assert package_name_error("r" * 63, package) == ""
    assert "package" in object_name_errors("edge", "", "n" * 64)
    parts = ("r" * 63, f"{'p' * 31}/{'q' * 31}", "n" * 63, "w" * 63)
    assert object_name_errors(*parts) == {"name": "must be no more than 253 characters"}
    assert object_name_errors(*parts[:3]) == {}
    assert object_name_errors("edge", "a//b", "n") == {"path": "consecutive '/' characters are not allowed"}
    assert list(object_name_errors("Edge", "/A_b/", "N", "")) == [
        "repository",
        "package",
        "workspace",
        "path",
    ]


@given(st.sets(paths, max_size=8), paths)
def test_nested_package_paths(existing: set[str], path: str) -> None:
    clashing = {o for o in existing if o != path and (refs.is_within(o, path) or refs.is_within(path, o))}

    found = PathIndex(existing).find_nested(path)

    assert found in clashing if clashing else found is None


def test_paths_that_differ_in_case_clash() -> None:
    index = PathIndex({"Apps/web", "db"})

    assert index.find_case_clash("apps/new") == "Apps"
    assert index.find_case_clash("Apps/WEB") == "Apps/web"
    assert index.find_case_clash("Apps/new") is None
    assert index.find_case_clash("db") is None


@given(
    st.lists(
        st.sampled_from(["a", "B_9", "-", "_", ".", "..", "/", "x.lock", "é", " ", "a" * 60]), max_size=9
    ).map("".join),
    st.sampled_from(["fleet", "a" * 30, "-bad", ""]),
)
def test_plain_paths_are_judged_as_their_refs_are(path: str, instance: str) -> None:
    assert package_path_error(path, instance) == (refs._refs_error(path, instance) if path else "it is empty")


@pytest.mark.parametrize("extra", range(-2, 3))
def test_plain_path_may_be_as_long_as_its_longest_ref(extra: int) -> None:
    longest = 240 - len("refs/heads/drafts//packagevariant-99999")
    path = "/".join("a" * 60 for _ in range(9))[: longest + extra]

    assert bool(package_path_error(path, "fleet")) is (extra > 0)


@pytest.mark.parametrize(
    ("scope", "is_in"),
    [
        (("repository", "team-a", "edge"), True),
        (("set", "team-a", "web", "edge"), True),
        (("repository", "team-b", "edge"), False),
        (("repository", "team-a", "mono"), False),
    ],
)
def test_group_is_in_the_repository_of_its_namespace_and_name(scope: tuple[str, ...], is_in: bool) -> None:
    assert refs.is_group_in(refs.group_ref("demo", scope, 1), "team-a", "edge") is is_in
    assert not refs.is_group_in("refs/heads/reconciler/demo/group/1", "team-a", "edge")
