"""Record the comments that a merge drops, so that none is lost silently.

That is a comment of upstream where local changed the same one, and a comment of a value that is deleted.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from reconciler.krm.merge import has_merge_comment, is_printed_same, is_same, root_of
from reconciler.krm.yaml import Tree
from reconciler.policy import OnConflict
from reconciler.render.update.conflict_policy import Rule, RuleKind
from reconciler.render.update.merge_report import Conflict, MergeReport

OF_UPSTREAM, OF_LOCAL = "comments-of-upstream", "comments-of-local"
"""The field of a conflict about dropped comments."""

_BOTH_CHANGED = "both sides changed this comment, and local's stays"
_GONE = "a comment goes with its value"
_COMMENT: Final = re.compile(r"(?<!\S)#[^\r\n]*")


class DocumentSides(NamedTuple):
    """One resource on the three sides, and the text of the merged one; None where it is absent."""

    base: Tree | None
    upstream: Tree | None
    local: Tree | None
    merged: str | None


def record_dropped_comments(
    path: str, resource: str, sides: DocumentSides, contested: Iterable[str], report: MergeReport
) -> None:
    """Record the comments of upstream or local that the merged document does not have.

    `contested` are comments of upstream that local changed too.
    """
    # Parsing the merged document takes as long as merging it.
    if _may_drop(sides):
        merged = Tree.parse(sides.merged) if sides.merged is not None else None
        _record(
            path, resource, [Counter(_comments(tree)) for tree in (*sides[:3], merged)], contested, report
        )


def record_dropped_lines(
    path: str, texts: tuple[str, str, str, str], contested: Iterable[str], report: MergeReport
) -> None:
    """Record dropped comments of the text between resources: of base, upstream, local and the merged file."""
    lines = ([line.strip() for line in text.splitlines() if "#" in line] for text in texts)
    _record(path, "file", [Counter(lines_of_side) for lines_of_side in lines], contested, report)


def _record(
    path: str, resource: str, comments: Sequence[Counter[str]], contested: Iterable[str], report: MergeReport
) -> None:
    base, upstream, local, merged = comments
    theirs, ours = ((side - base) - merged for side in (upstream, local))
    rules = {_BOTH_CHANGED: theirs & Counter(contested), _GONE: theirs - Counter(contested)}
    if theirs:
        text = "\n".join(theirs.elements())
        conflict = Conflict(path, resource, OF_UPSTREAM, None, text, None, "Comment")
        rule = "; ".join(rule for rule, lines in rules.items() if lines)
        report.record_decided(conflict, OnConflict.LOCAL, Rule(RuleKind.MERGE, rule))
    if ours:
        conflict = Conflict(path, resource, OF_LOCAL, None, None, "\n".join(ours.elements()), "Comment")
        report.record_decided(conflict, OnConflict.UPSTREAM, Rule(RuleKind.MERGE, _GONE))


def _may_drop(sides: DocumentSides) -> bool:
    """Return whether the merge may drop a comment, by their texts: parsing comments is costly."""
    old, theirs, ours = (tree.text if tree is not None else "" for tree in sides[:3])
    if "#" not in theirs and "#" not in ours:
        return False
    base, upstream, local, merged = (
        Counter(_COMMENT.findall(text)) for text in (old, theirs, ours, sides.merged or "")
    )
    return any((side - base) - merged for side in (upstream, local))


def is_unedited(base: Tree, side: Tree, *, like_kpt: bool) -> bool:
    """Return whether a side has the values and comments of the base, whatever its formatting.

    kpt formats what it fetches. In its own mode, quotes, styles and the order of keys are an edit, as in kpt.

    Source: kpt internal/util/merge/merge3.go, resourceHandler.equals.
    """
    if base.text == side.text:
        return True
    old, new = root_of(base), root_of(side)
    before, after = (list(_comments(tree)) if "#" in tree.text else [] for tree in (base, side))
    if not like_kpt:
        # kpt's writer reformats a whole file, so quotes and order tell nothing about a person's edit.
        return is_same(old, new) and sorted(before) == sorted(after)
    is_compact = base.indentation.compact_lists is side.indentation.compact_lists
    return is_compact and before == after and is_printed_same(old, new)


def _comments(tree: Tree | None) -> Iterator[str]:
    """Yield the comment lines of a document, without kpt's merge comments."""
    if tree is None:
        return
    yield from (text for text in tree.comments.texts() if not has_merge_comment(text))
