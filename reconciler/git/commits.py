"""Lenient parsing of commit objects, and of the annotations in messages: a push may contain any bytes."""

import codecs
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from reconciler.names.ids import Oid
from reconciler.names.objects import Signature

_OID = re.compile(rb"[0-9a-f]{40}")
_PERSON = re.compile(rb"(?P<name>[^<]*?) *<(?P<email>[^>]*)>(?: +(?P<time>-?[0-9]{1,18}))?.*", re.DOTALL)
_LATEST = 253_402_300_799
"""The last second of the year 9999: no library that formats dates fails for it."""


class CommitData(Struct, frozen=True):
    """A commit as it is stored; times in seconds, undecodable text replaced."""

    oid: Oid
    tree: Oid
    parents: tuple[Oid, ...]
    author: Signature
    committer: Signature
    message: str


def parse_commit(oid: Oid, data: bytes) -> CommitData | None:
    """Parse a commit object; return None if it has no tree. Total.

    A missing author or committer has no name and time 0, as git shows it.
    """
    header, _, message = data.partition(b"\n\n")
    fields: dict[bytes, list[bytes]] = {}
    # A folded header, as that of a signature, goes on in lines that begin with a blank: their name is empty.
    for line in header.split(b"\n"):
        name, _, value = line.partition(b" ")
        fields.setdefault(name, []).append(value)
    tree = fields.get(b"tree", [b""])[0]
    if not _OID.fullmatch(tree):
        return None
    parents = (parent for parent in fields.get(b"parent", ()) if _OID.fullmatch(parent))
    return CommitData(
        oid=oid,
        tree=Oid(tree.decode()),
        parents=tuple(Oid(parent.decode()) for parent in parents),
        author=_parse_person(fields.get(b"author", [b""])[0]),
        committer=_parse_person(fields.get(b"committer", [b""])[0]),
        message=decode_text(message, fields.get(b"encoding", [b""])[0]),
    )


def decode_text(text: bytes, encoding: bytes = b"") -> str:
    """Decode text in the encoding of a commit, or as UTF-8 if Python cannot use that encoding.

    A codec may be unknown, may be no text encoding, or may refuse to replace what it cannot decode:
    LookupError and UnicodeError, a ValueError, cover them. From Python 3.14 on `punycode` drops such text.
    """
    with suppress(LookupError, ValueError):
        codec = codecs.lookup(encoding.decode("ascii")).name
        if codec != "punycode":
            return text.decode(codec, "replace")
    return text.decode(errors="replace")


def _parse_person(value: bytes) -> Signature:
    match = _PERSON.fullmatch(value)
    if match is None:
        return Signature("", "", 0)
    time = valid_time(int(match["time"] or 0))
    return Signature(decode_text(match["name"]), decode_text(match["email"]), time)


def valid_time(seconds: int) -> int:
    """Return the nearest valid time of a commit: from 1970 to the year 9999."""
    return min(max(seconds, 0), _LATEST)


class PackageAnnotation(Struct, frozen=True):
    """The `kpt:` line of a commit message: advisory, never evidence of ownership."""

    package: str
    workspace: str = ""
    revision: str = ""
    task: Mapping[str, Any] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def parse_annotations(message: str) -> tuple[PackageAnnotation, ...]:
    """Return the annotations of a commit message in their order, without malformed ones. Total."""
    annotations = []
    for line in message.splitlines():
        if line.startswith("kpt:"):
            try:
                fields = json.loads(line.removeprefix("kpt:"))
            except (ValueError, RecursionError):
                continue
            if isinstance(fields, dict):
                annotations.append(_annotation(fields))
    return tuple(annotations)


def _annotation(fields: Mapping[str, Any]) -> PackageAnnotation:
    package, workspace, revision = (
        str(fields.get(k) or "") for k in ("package", "workspaceName", "revision")
    )
    task, labels = fields.get("task"), fields.get("labels")
    named = labels.items() if isinstance(labels, dict) else ()
    return PackageAnnotation(
        package,
        workspace,
        revision,
        task if isinstance(task, dict) else None,
        {key: value for key, value in named if isinstance(value, str)},
    )
