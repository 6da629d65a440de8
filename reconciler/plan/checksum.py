"""The checksum of a plan: what a reviewer approved is what runs."""

import hashlib
from collections.abc import Iterable
from typing import Any

import orjson

from reconciler.plan.changes import Change, MoveRef, StartBranch, Write


def plan_checksum(changes: Iterable[Change]) -> str:
    """Return the SHA-256 of the plan's canonical JSON: base oids and result oids, no forge state (D21)."""
    facts = sorted(
        ([*c.package, c.op, c.before, c.after, [_write(w) for w in c.writes]] for c in changes if c.writes),
        key=lambda fact: fact[:2],
    )
    return hashlib.sha256(orjson.dumps(facts)).hexdigest()


def _write(write: Write) -> list[Any]:
    if isinstance(write, MoveRef):
        return ["move", write.ref, write.expect, write.to]
    if isinstance(write, StartBranch):
        return ["start", write.ref, write.oid]
    tree = getattr(write, "tree", None)
    return ["commit", write.ref, write.expect, write.onto, write.path, tree, write.message, write.time]
