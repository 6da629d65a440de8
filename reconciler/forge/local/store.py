"""Records of pull requests in refs of their repository: `pull.json` in one commit, with canonical bytes."""

import re
from typing import Annotated

import orjson
from msgspec import Meta, field
from msgspec.structs import replace

from reconciler.base.redact import outgoing_file
from reconciler.base.values import Record, canonical_json, read_record
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.refs import DRAFTS, HEADS, PROPOSED

FILE = "pull.json"
PULLS = "refs/reconciler/pulls/"
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
"""Valid numbers; other refs below `PULLS` are ignored."""
LARGEST_NUMBER = 999_999_999
_Oid = Annotated[str, Meta(pattern=r"^([0-9a-f]{40})?\Z")]


class PullRecord(Record, frozen=True, kw_only=True):
    """A pull request on disk.

    Attributes:
        head: The draft's branch under `drafts/`; it stays the same when the branch moves to `proposed/`.
        head_oid: The head when the record was written.
        merge_oid: The commit that merged it.
        digest: The digest of the source of title and text.
        withdrawn: Whether a run closed it as obsolete; otherwise a person rejected it.
        comments: Comments by their keys.
    """

    api_version: str = "reconciler.dev/v1alpha1"
    kind: str = "PullRequest"
    number: int
    state: PullState = PullState.OPEN
    draft: bool = True
    head: str
    base: str
    title: str
    body: str
    labels: tuple[str, ...] = ()
    head_oid: _Oid = ""
    merge_oid: _Oid = ""
    digest: str = ""
    withdrawn: bool = False
    comments: dict[str, str] = field(default_factory=dict)

    @property
    def ref(self) -> str:
        """The ref that holds this record."""
        return f"{PULLS}{self.number}"

    @property
    def head_refs(self) -> tuple[str, ...]:
        """The refs at which the head may be, the original first."""
        return tuple(f"{HEADS}{name}" for name in head_branches(self.head))

    def pull(self) -> PullRequest:
        """Return the pull request without the fields of the local forge."""
        return PullRequest(
            head=self.head,
            base=self.base,
            title=self.title,
            body=self.body,
            draft=self.draft,
            number=self.number,
            state=self.state,
            head_oid=self.head_oid,
            labels=self.labels,
            digest=self.digest,
        )


def head_branches(head: str) -> tuple[str, ...]:
    """Return the branches at which a head may be: a draft moves from `drafts/F/W` to `proposed/F/W`."""
    for prefix in (DRAFTS, PROPOSED):
        if head.startswith(prefix):
            package = head.removeprefix(prefix)
            return (f"{DRAFTS}{package}", f"{PROPOSED}{package}")
    return (head,)


def record_bytes(record: PullRecord) -> bytes:
    """Return the record's canonical bytes. Deterministic.

    Raises:
        RefusedError: A credential is in a field that is no text for people.
    """
    return outgoing_file(canonical_json(record), f"pull request {record.number}")


def parse_record(data: bytes, *, ref: str) -> PullRecord | PullRequest:
    """Parse a record; return an unreadable pull request if it is malformed. Total.

    The number is the ref's: a record with another number would overwrite another ref.
    """
    number = number_of(ref) or 0
    try:
        return replace(read_record(data, PullRecord), number=number)
    except ValueError as error:
        return unreadable_pull(ref, str(error), head=_read_head(data))


def unreadable_pull(ref: str, reason: str, *, head: str = "") -> PullRequest:
    """Return a pull request with its number and reason only, and its head if it could be read."""
    return PullRequest(
        head,
        base="",
        title="",
        body="",
        number=number_of(ref) or 0,
        state=PullState.CLOSED,
        unreadable=reason,
    )


def _read_head(data: bytes) -> str:
    """Return the head of a malformed record, "" if it has none."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return ""
    head = value.get("head") if isinstance(value, dict) else None
    return head if isinstance(head, str) else ""


def number_of(ref: str) -> int | None:
    """Return the number of a pull request's ref, None for any other ref."""
    number = ref.removeprefix(PULLS) if ref.startswith(PULLS) else ""
    return int(number) if _NUMBER.fullmatch(number) else None
