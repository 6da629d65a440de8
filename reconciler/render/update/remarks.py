"""Comments across a merge: none that a side wrote vanishes without a word.

A comment follows its field where only one side changed it. What cannot follow, because both sides
changed one comment, or because its field is gone, is recorded as dropped: nobody is asked about it.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from reconciler.krm.merge import has_merge_comment, root_of
from reconciler.krm.yaml import Tree
from reconciler.policy import OnConflict
from reconciler.render.update.ledger import Ledger
from reconciler.render.update.model import Conflict, Rule, RuleKind

OF_UPSTREAM, OF_LOCAL = "comments-of-upstream", "comments-of-local"
"""What a dropped comment has in place of a field."""

_RULE = "a comment goes with its value, and where both sides changed it, local's stays"


_WRITTEN: Final = re.compile(r"(?<!\S)#[^\r\n]*")


class DocumentSides(NamedTuple):
    """One resource as the three sides have it, and as it was merged; None where it is not there."""

    base: Tree | None
    upstream: Tree | None
    local: Tree | None
    merged: Tree | None


def record_dropped_comments(path: str, resource: str, sides: DocumentSides, ledger: Ledger) -> None:
    """Record the comments that upstream or local wrote and that the merged document does not have."""
    if not _may_drop(sides):
        return
    _record(path, resource, [Counter(_comments(tree)) for tree in sides], ledger)


def record_dropped_lines(path: str, texts: tuple[str, str, str, str], ledger: Ledger) -> None:
    """Record the same of the text between resources, of base, upstream, local and the merged file."""
    if any("#" in text for text in texts[1:3]):
        lines = ([line.strip() for line in text.splitlines() if "#" in line] for text in texts)
        _record(path, "file", [Counter(each) for each in lines], ledger)


def _record(path: str, resource: str, comments: Sequence[Counter[str]], ledger: Ledger) -> None:
    base, upstream, local, merged = comments
    theirs, ours = ("\n".join(((side - base) - merged).elements()) for side in (upstream, local))
    if theirs:
        conflict = Conflict(path, resource, OF_UPSTREAM, None, theirs, None, "Comment")
        ledger.rule_out(conflict, OnConflict.LOCAL, Rule(RuleKind.MERGE, _RULE))
    if ours:
        conflict = Conflict(path, resource, OF_LOCAL, None, None, ours, "Comment")
        ledger.rule_out(conflict, OnConflict.UPSTREAM, Rule(RuleKind.MERGE, _RULE))


def with_upstream_header(base: Tree | None, upstream: Tree, local: Tree, merged: str) -> str:
    """Return a merged text with upstream's comments above the first field, where local left them alone."""
    if base is None:
        return merged
    old, theirs, ours = (_header(tree) for tree in (base, upstream, local))
    takes = old == ours != theirs and merged.startswith(ours)
    return theirs + merged[len(ours) :] if takes else merged


def _may_drop(sides: DocumentSides) -> bool:
    """Tell whether upstream or local wrote anything that looks like a comment: finding comments is costly."""
    base, upstream, local, merged = (
        Counter(_WRITTEN.findall(tree.text) if tree is not None else ()) for tree in sides
    )
    return any((side - base) - merged for side in (upstream, local))


def _header(tree: Tree) -> str:
    """Return the text of a document above its first field and that field's own comment."""
    root = root_of(tree)
    first = next(iter(root.fields.values()), None) if root is not None and root.is_block else None
    if first is None:
        return ""
    span = first.comments.head_span
    return tree.text[: span.start if span else first.value.slot]


def _comments(tree: Tree | None) -> Iterator[str]:
    """Yield the comment lines of a document; kpt's merge comments are no remarks of people."""
    if tree is None:
        return
    index = tree.comments
    own = (text for each in index.by_start.values() for text in (each.head, each.line, each.foot))
    for text in (index.head, index.foot, *own):
        yield from (line for line in text.splitlines() if line.strip() and not has_merge_comment(line))
