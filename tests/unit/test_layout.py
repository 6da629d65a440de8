import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import layout
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


@pytest.mark.parametrize(
    "ref", ["refs/heads/main", "refs/heads/drafts/w", "refs/tags/v1", "refs/tags/a/", "x"]
)
def test_a_ref_that_says_nothing(ref: str) -> None:
    assert layout.parse_ref(ref) is None


def test_a_tag_that_is_no_number_is_a_placeholder_with_a_workspace() -> None:
    assert layout.parse_ref("refs/tags/a/b/v2.0.0") == RevisionRef("a/b", "v2.0.0", -1, Lifecycle.PUBLISHED)


def test_only_our_workspaces_have_numbers() -> None:
    names = ["packagevariant-9", "packagevariant-10", "other-99", "packagevariant-x"]

    assert [layout.workspace_number(name) for name in names] == [9, 10, 0, 0]


def test_revisions_count_on_from_the_greatest() -> None:
    assert layout.next_revision([]) == 1
    assert layout.next_revision([-1, 3, 1]) == 4
