"""The checksum of a plan: what a reviewer approved is what runs."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from reconciler.plan.changes import Change, MoveRef, StartBranch, Write, WriteGroup


def plan_checksum(changes: Sequence[Change]) -> str:
    """Return the SHA-256 of the plan's canonical JSON: base oids and result oids, no forge state (D21)."""
    facts = sorted(
        (
            [*c.package, c.op, c.before, c.after, [_write(w) for w in c.writes], *(c.approve or ())[1:]]
            for c in changes
            if c.writes or c.approve
        ),
        key=lambda fact: fact[:2],
    )
    facts += sorted(_group(w) for w in {id(w): w for w in _groups(changes)}.values())
    return hashlib.sha256(orjson.dumps(facts)).hexdigest()


def _groups(changes: Iterable[Change]) -> Iterator[WriteGroup]:
    """Yield the commits of groups, which all of their members hold; they count once."""
    yield from (write for change in changes for write in change.writes if isinstance(write, WriteGroup))


def _group(write: WriteGroup) -> list[Any]:
    parts = [[part.path, part.tree] for part in write.parts]
    return ["group", write.ref, write.expect, write.onto, parts, write.message, write.time]


def _write(write: Write) -> list[Any]:
    if isinstance(write, MoveRef):
        return ["move", write.ref, write.expect, write.to]
    if isinstance(write, WriteGroup):
        return ["group", write.ref]
    if isinstance(write, StartBranch):
        return ["start", write.ref, write.oid]
    tree = getattr(write, "tree", None)
    return ["commit", write.ref, write.expect, write.onto, write.path, tree, write.message, write.time]
