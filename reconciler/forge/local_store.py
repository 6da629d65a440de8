"""A pull request as the local forge keeps it: `pull.json` in one commit, a schema with stable bytes."""

import re

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from reconciler.inventory import PullRequest, PullState
from reconciler.refs import DRAFTS, HEADS, PROPOSED
from reconciler.report.redact import mask_credentials_in

FILE = "pull.json"
PULLS = "refs/reconciler/pulls/"
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
"""Numbers that count, whatever others write under `PULLS`."""
LARGEST_NUMBER = 999_999_999
_OID = r"^([0-9a-f]{40})?$"


class PullRecord(BaseModel):
    """One pull request on disk.

    `head` never changes: a draft that was proposed stands under `proposed/` instead of `drafts/`.
    `headOid` is the head when the record was written, `mergeOid` what merging it made.
    `digest` stands for what title and text were made of. `withdrawn` tells that we closed it because it
    was obsolete, not that a person rejected it.
    """

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, populate_by_name=True)

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
    head_oid: str = Field(default="", pattern=_OID)
    merge_oid: str = Field(default="", pattern=_OID)
    digest: str = ""
    withdrawn: bool = False
    comments: dict[str, str] = Field(default_factory=dict)

    @property
    def ref(self) -> str:
        """The ref that holds this record."""
        return f"{PULLS}{self.number}"

    @property
    def head_refs(self) -> tuple[str, ...]:
        """Where the head may stand, the original place first."""
        return tuple(f"{HEADS}{name}" for name in spellings(self.head))

    def pull(self) -> PullRequest:
        """Return the pull request as every forge has it."""
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


def spellings(head: str) -> tuple[str, ...]:
    """Return the branches that are one head: a draft is `drafts/F/W`, or `proposed/F/W` once proposed."""
    for prefix in (DRAFTS, PROPOSED):
        if head.startswith(prefix):
            package = head.removeprefix(prefix)
            return (f"{DRAFTS}{package}", f"{PROPOSED}{package}")
    return (head,)


def record_bytes(record: PullRecord) -> bytes:
    """Return the record's canonical bytes. Deterministic."""
    data = record.model_dump(mode="json", by_alias=True)
    option = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return mask_credentials_in(orjson.dumps(data, option=option))


def parse_record(data: bytes, *, ref: str) -> PullRecord | PullRequest:
    """Return the record in `data`, or what is legible of it where it is none. Total.

    The ref gives the number: a record that names another one would overwrite that one's ref.
    """
    number = number_of(ref) or 0
    try:
        return PullRecord.model_validate_json(data).model_copy(update={"number": number})
    except ValidationError as error:
        return unreadable_pull(ref, error.errors(include_url=False)[0]["msg"], head=_legible_head(data))


def unreadable_pull(ref: str, why: str, *, head: str = "") -> PullRequest:
    """Return a pull request of which nothing but the number, and maybe the head, is known."""
    return PullRequest(
        head, base="", title="", body="", number=number_of(ref) or 0, state=PullState.CLOSED, unreadable=why
    )


def _legible_head(data: bytes) -> str:
    """Return the head that a record names which is otherwise unreadable, "" if it names none."""
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
