from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import layout
from reconciler.git.messages import (
    Annotation,
    annotated_message,
    annotation_line,
    approve_message,
    clone_task,
    commit_title,
    parse_annotations,
)
from reconciler.git.names import find_blocker, namespace_blockers, refuse_ref, relative_package
from reconciler.ids import Lifecycle
from reconciler.layout import RevisionRef

segments = st.from_regex(r"[a-z0-9][a-z0-9-]{0,10}", fullmatch=True)
paths = st.lists(segments, min_size=1, max_size=4).map("/".join)


@given(paths, segments)
def test_drafts_and_proposals_read_back(path: str, workspace: str) -> None:
    draft = layout.parse_ref(layout.draft_ref(path, workspace))
    proposal = layout.parse_ref(layout.proposed_ref(path, workspace))

    assert draft == RevisionRef(path, workspace, 0, Lifecycle.DRAFT)
    assert proposal == RevisionRef(path, workspace, 0, Lifecycle.PROPOSED)


@given(paths, st.integers(min_value=1, max_value=10**9))
def test_tags_read_back(path: str, revision: int) -> None:
    tag = layout.parse_ref(layout.tag_ref(path, revision))
    marked = layout.parse_ref(layout.deletion_proposed_ref(path, revision))

    assert tag == RevisionRef(path, f"v{revision}", revision, Lifecycle.PUBLISHED)
    assert marked == RevisionRef(path, f"v{revision}", revision, Lifecycle.DELETION_PROPOSED)


@given(paths, segments)
def test_what_we_name_is_what_we_would_create(path: str, workspace: str) -> None:
    assert refuse_ref(layout.draft_ref(path, workspace)) == ""
    assert refuse_ref(layout.deletion_ref("default", path)) == ""


@pytest.mark.parametrize(
    "ref", ["refs/heads/main", "refs/heads/drafts/w", "refs/tags/v1", "refs/tags/a/", "x"]
)
def test_a_ref_that_says_nothing(ref: str) -> None:
    assert layout.parse_ref(ref) is None


def test_a_tag_that_is_no_number_is_a_placeholder_with_a_workspace() -> None:
    assert layout.parse_ref("refs/tags/a/b/v2.0.0") == RevisionRef("a/b", "v2.0.0", -1, Lifecycle.PUBLISHED)


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
    assert find_blocker(ref, existing) == want


def test_a_branch_named_as_our_directory_blocks_it() -> None:
    assert namespace_blockers({"refs/heads/drafts", "refs/heads/main"}) == ("refs/heads/drafts",)
    assert namespace_blockers({"refs/heads/drafts/a/w", "refs/tags/drafts"}) == ()


def test_only_our_workspaces_have_numbers() -> None:
    names = ["packagevariant-9", "packagevariant-10", "other-99", "packagevariant-x"]

    assert [layout.workspace_number(name) for name in names] == [9, 10, 0, 0]


def test_revisions_count_on_from_the_greatest() -> None:
    assert layout.next_revision([]) == 1
    assert layout.next_revision([-1, 3, 1]) == 4


def test_a_package_is_named_below_its_directory() -> None:
    assert relative_package("clusters/edge/nginx", "clusters/edge/") == "nginx"
    assert relative_package("nginx", "") == "nginx"


def test_the_annotation_is_porchs() -> None:
    line = annotation_line(Annotation("a/b", "w1", "0", clone_task("bp.nginx.v1")))

    assert line == (
        'kpt:{"package":"a/b","workspaceName":"w1","revision":"0","task":{"type":"clone",'
        '"clone":{"upstreamRef":{"upstreamRef":{"name":"bp.nginx.v1"}}}}}'
    )
    assert annotated_message(commit_title("clone"), Annotation("a", "w", "0")) == (
        'Creating new revision by cloning\n\n\nkpt:{"package":"a","workspaceName":"w","revision":"0"}\n'
    )
    assert approve_message("a/b", "w", 3) == (
        'Approving package revision a/b/3\n\nkpt:{"package":"a/b","workspaceName":"w","revision":"3"}\n'
    )


@given(paths, segments, st.text(max_size=80))
def test_an_annotation_reads_back_and_no_body_forges_one(path: str, workspace: str, body: str) -> None:
    wanted = Annotation(path, workspace, "0")

    message = annotated_message("Title", wanted, body)

    assert parse_annotations(message) == (wanted,)


@given(st.text(max_size=60))
def test_reading_annotations_never_fails(text: str) -> None:
    found = parse_annotations(f"x\nkpt:{text}\nkpt:[]\nkpt:" + "[" * 2000)

    assert isinstance(found, tuple)
