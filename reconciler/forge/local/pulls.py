"""Local pull requests: their records in refs, and the changes of them in the push of their branches."""

from collections.abc import Container, Iterator, Mapping
from functools import cached_property
from itertools import count
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
import orjson
from msgspec import Meta, field
from msgspec.structs import replace

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.redact import mask_credentials, outgoing_file
from reconciler.base.values import Record, canonical_json, read_record
from reconciler.forge.body_marker import outgoing_pull
from reconciler.forge.local.merge import DeletionHead, LockHead, parse_head, proposed_packages
from reconciler.git.pack import Pack
from reconciler.git.push import RefUpdate
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Signature
from reconciler.names.refs import DRAFTS, HEADS, PROPOSED, is_group
from reconciler.policy import CommitPolicy

FILE = "pull.json"
PULLS = "refs/reconciler/pulls/"
_NUMBER = regex(r"[1-9][0-9]{0,8}")
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


_LARGEST = 1 << 20


class LocalTransaction:
    """The pull requests of one repository with pending changes, and their ref updates.

    Writes nothing: objects go to `pack`, ref updates to `updates()`; the caller pushes both at once.
    Every method is safe to repeat, and adds no update where nothing changes. Reproducible: a record's
    commit is as old as its head.
    """

    def __init__(
        self, mirror: Mirror, pack: Pack, policy: CommitPolicy, held: "HeldRecords | None" = None
    ) -> None:
        self.mirror = mirror
        self.pack = pack
        self.policy = policy
        self._records: dict[int, PullRecord] = {}
        self._numbers: dict[str, list[int]] = {}
        self._times: dict[int, int] = {}
        self._moved: dict[str, Oid | None] = {}
        self._ages: dict[Oid, int] = {}
        self._unreadable: list[PullRequest] = []
        for record in read_records(mirror, {} if held is None else held):
            if isinstance(record, PullRecord):
                self._remember(record)
            else:
                self._unreadable.append(record)

    @property
    def records(self) -> Mapping[int, PullRecord]:
        """The pull requests by number, with pending changes."""
        return MappingProxyType({n: self.observed(self._records[n]) for n in sorted(self._records)})

    @property
    def unreadable(self) -> tuple[PullRequest, ...]:
        """The pull requests that cannot be read, by number."""
        return tuple(sorted(self._unreadable, key=lambda pull: pull.number))

    def move(self, ref: str, oid: Oid | None, time: int = 0) -> None:
        """Note that the same push moves a branch (None deletes it); its open pull request follows."""
        record = self.find_open(ref.removeprefix(HEADS))
        if oid is None:
            merged = record is not None and self._has_content(record)
            self._moved[ref] = None
            if record and merged:
                self._put(msgspec.structs.replace(record, **self._merged(record)))
            return
        self._moved[ref] = oid
        self._ages[oid] = time
        if record:
            self._put(msgspec.structs.replace(record, head_oid=oid))

    def observed(self, record: PullRecord) -> PullRecord:
        """Return a record updated from the refs: an open one is merged or closed if its head is. Pure."""
        if record.state is not PullState.OPEN:
            return record
        head = self._head(record)
        tip = head or Oid(record.head_oid)
        main = self._at(f"{HEADS}{record.base}")
        # A person may have merged the branch with git: no record tells of that.
        if main and tip and tip in self.mirror.ancestry(main):
            return msgspec.structs.replace(record, **self._merged(record), head_oid=tip)
        if head is None:
            return msgspec.structs.replace(record, state=PullState.CLOSED)
        proposed = not record.draft or self._at(record.head_refs[0]) is None
        if (head, not proposed) == (record.head_oid, record.draft):
            return record
        return msgspec.structs.replace(record, head_oid=head, draft=not proposed)

    def find(self, number: int) -> PullRecord:
        """Return a pull request.

        Raises:
            RefusedError: There is none with this number.
        """
        if number not in self._records:
            raise RefusedError(f"There is no pull request {number} in {self.mirror.remote}")
        return self.observed(self._records[number])

    def find_open(self, head: str) -> PullRecord | None:
        """Return the open pull request of a head, under `drafts/` or `proposed/`."""
        numbers = (n for name in head_branches(head) for n in self._numbers.get(name, ()))
        records = (self.observed(self._records[number]) for number in numbers)
        return next((record for record in records if record.state is PullState.OPEN), None)

    def ensure(self, desired: PullRequest) -> PullRecord:
        """Open a pull request, or update the open one; a ready one stays ready.

        Raises:
            RefusedError: Its branch does not exist, or its pull request cannot be read.
        """
        broken = next((p for p in self._unreadable if p.head in head_branches(desired.head)), None)
        if broken is not None:
            message = f"Pull request {broken.number} of {desired.head} cannot be read: {broken.unreadable}"
            raise RefusedError(message, hint=f"Delete {PULLS}{broken.number} if nothing needs it.")
        desired = outgoing_pull(desired)
        present = self.find_open(desired.head)
        text: dict[str, Any] = {
            "title": desired.title,
            "body": desired.body,
            "labels": desired.labels,
            "digest": desired.digest,
        }
        if present:
            return self._put(msgspec.structs.replace(present, **text, base=desired.base))
        number = self._free_number()
        fresh = PullRecord(
            number=number, draft=desired.draft, head=head_branches(desired.head)[0], base=desired.base, **text
        )
        head = self._head(fresh)
        if head is None:
            raise RefusedError(f"{self.mirror.remote} has no branch {desired.head}")
        return self._put(msgspec.structs.replace(fresh, head_oid=head))

    def mark_ready(self, number: int) -> list[RefUpdate]:
        """Mark a draft as ready for review; its branch moves to `proposed/`, as in Porch."""
        return self._set_draft(number, draft=False)

    def mark_draft(self, number: int) -> list[RefUpdate]:
        """Turn a ready pull request into a draft; its branch moves back to `drafts/`."""
        return self._set_draft(number, draft=True)

    def _set_draft(self, number: int, *, draft: bool) -> list[RefUpdate]:
        record = self.find(number)
        if record.state is not PullState.OPEN or record.draft is draft:
            return []
        self._put(msgspec.structs.replace(record, draft=draft))
        old, *other = record.head_refs[::-1] if draft else record.head_refs
        head = self._at(old)
        if head is None or not other:
            return []
        self._moved |= {old: None, other[0]: head}
        # In Porch the prefix of the branch is the lifecycle of the revision.
        return [RefUpdate(old, head, None), RefUpdate(other[0], None, head)]

    def close(self, number: int, comment: str, *, withdrawn: bool) -> PullRecord:
        """Close a pull request; it counts as merged if the base has its content by now."""
        record = self.find(number)
        # The stored state: a record that refs show as merged or closed still has to be written so.
        if self._records[number].state is not PullState.OPEN:
            return record
        merged = record.state is PullState.MERGED or self._has_content(record)
        closed = {"state": PullState.CLOSED, "withdrawn": withdrawn}
        update: dict[str, object] = self._merged(record) if merged else closed
        if comment and not merged:
            update["comments"] = {**record.comments, "close": mask_credentials(comment)}
        return self._put(msgspec.structs.replace(record, **update))

    def reopen(self, number: int) -> PullRecord:
        """Reopen a closed pull request with its present head; do nothing if it is open.

        Raises:
            RefusedError: It was merged, its branch is gone, or another one of this branch is open.
        """
        record = self.find(number)
        if record.state is PullState.OPEN:
            return record
        if record.state is PullState.MERGED:
            hint = "Revert its commit on the base, or change what its variant asks for."
            raise RefusedError(f"Pull request {number} was merged and cannot be opened again", hint=hint)
        head = self._head(record)
        if head is None:
            raise RefusedError(
                f"Branch {record.head} of pull request {number} is gone",
                hint=missing_branch_hint(record.head),
            )
        other = self.find_open(record.head)
        if other is not None:
            raise RefusedError(f"Pull request {other.number} of the same branch is open")
        update = {"state": PullState.OPEN, "withdrawn": False, "head_oid": head}
        return self._put(msgspec.structs.replace(record, **update))

    def mark_merged(self, number: int, merge: Oid, time: int) -> None:
        """Note that the commit `merge` merges a pull request."""
        record = self.find(number)
        update = {"state": PullState.MERGED, "merge_oid": merge, "draft": False}
        self._put(msgspec.structs.replace(record, **update), time)

    def pull_request(self, record: PullRecord) -> PullRequest:
        """Return a pull request without the local forge's fields; an open one with its present branch."""
        branches = (ref.removeprefix(HEADS) for ref in record.head_refs if self._at(ref))
        open_head = next(branches, record.head) if record.state is PullState.OPEN else record.head
        return replace(record.pull(), head=open_head)

    def comment(self, number: int, key: str, body: str) -> PullRecord:
        """Write the comment with this key, or update its text."""
        record = self._records[self.find(number).number]
        comments = {**record.comments, key: mask_credentials(body)}
        return self._put(msgspec.structs.replace(record, comments=comments))

    def updates(self) -> list[RefUpdate]:
        """Return the ref updates of changed records; their objects are in the pack."""
        return [self._update(number) for number in sorted(self._times)]

    def _free_number(self) -> int:
        """Return the number after the greatest, or the first gap if that is too large."""
        following = self._greatest + 1
        if following <= LARGEST_NUMBER:
            self._greatest = following
            return following
        return next(number for number in count(1) if number not in self._taken | {*self._records})

    @cached_property
    def _taken(self) -> frozenset[int]:
        # A ref `7/x` takes the number 7 too: Git stores refs as files, so `7` cannot be created beside it.
        names = (ref.removeprefix(PULLS) for ref in self.mirror.refs() if ref.startswith(PULLS))
        return frozenset(number_of(f"{PULLS}{name.partition('/')[0]}") or 0 for name in names)

    @cached_property
    def _greatest(self) -> int:
        """The greatest number that a ref or a record has; each new one counts on from it."""
        return max(self._taken | {*self._records}, default=0)

    def _put(self, record: PullRecord, time: int | None = None) -> PullRecord:
        if self._records.get(record.number) != record:
            self._remember(record)
            self._times[record.number] = self._age(Oid(record.head_oid)) if time is None else time
        return record

    def _remember(self, record: PullRecord) -> None:
        if record.number not in self._records:
            self._numbers.setdefault(record.head, []).append(record.number)
        self._records[record.number] = record

    def _update(self, number: int) -> RefUpdate:
        record = self._records[number]
        signature = Signature(self.policy.name, self.policy.email, self._times[number])
        # Changed records are new but for rare cases, and to look for each in the repository is slow.
        tree = self.pack.files({FILE: File.of(record_bytes(record))}, is_new=True)
        commit = self.pack.commit(tree, (), signature, signature, f"Pull request {number}: {record.title}\n")
        return RefUpdate(record.ref, self.mirror.refs().get(record.ref), commit)

    def _has_content(self, record: PullRecord) -> bool:
        """Tell whether the base has the proposed content, merged by whatever means."""
        base, proposal = self._at(f"{HEADS}{record.base}"), parse_head(record.head)
        if base is not None and is_group(f"{HEADS}{record.head}"):
            return self._has_group(base, Oid(record.head_oid))
        if base is None or proposal is None:
            return False
        here = self.mirror.subtree(base, proposal.path)
        if isinstance(proposal, DeletionHead):
            return here is None
        proposed = self.mirror.subtree(Oid(record.head_oid), proposal.path)
        return here == proposed and (here is not None or isinstance(proposal, LockHead))

    def _has_group(self, base: Oid, head: Oid) -> bool:
        fork = self.mirror.merge_base(base, head)
        if fork is None:
            return False
        try:
            proposed = proposed_packages(self.mirror, fork, head)
        except RefusedError:
            return False
        return all(self.mirror.subtree(base, path) == after for path, (_, after) in proposed.items())

    def _merged(self, record: PullRecord) -> dict[str, object]:
        base = self._at(f"{HEADS}{record.base}") or ""
        return {"state": PullState.MERGED, "merge_oid": record.merge_oid or base, "draft": False}

    def _head(self, record: PullRecord) -> Oid | None:
        return next((oid for ref in record.head_refs if (oid := self._at(ref))), None)

    def _at(self, ref: str) -> Oid | None:
        return self._moved[ref] if ref in self._moved else self.mirror.refs().get(ref)

    def _age(self, oid: Oid) -> int:
        if oid not in self._ages:
            commit = self.mirror.find_commit(oid)
            self._ages[oid] = commit.committer.time if commit else 0
        return self._ages[oid]


def missing_branch_hint(head: str) -> str:
    """Return the hint how to propose content again after its pull request and its branch were closed."""
    proposed = parse_head(head)
    if isinstance(proposed, DeletionHead):
        return (
            "Write its PackageVariant again, run `reconciler apply`, and remove it again: "
            "that proposes the deletion."
        )
    if proposed == LockHead():
        return (
            "`reconciler apply` proposes the pins again when they change; "
            "`reconciler lock --check` shows what would change now."
        )
    if isinstance(proposed, LockHead):
        return "The next `reconciler index sync --pull-request` proposes it again."
    return "Set annotation reconciler.dev/retry of its variant to another value, and run `reconciler apply`."


def record_blobs(mirror: Mirror, seen: Container[str] = ()) -> Iterator[tuple[str, Oid | None]]:
    """Yield the refs of pull requests that are not `seen` with their records, None for one without.

    Raises:
        UnavailableError: The repository cannot be read at all.
    """
    for ref, commit in mirror.refs().items():
        if ref not in seen and number_of(ref) is not None:
            yield ref, mirror.blob_at(commit, FILE)


HeldRecords = dict[str, tuple[Oid, PullRecord]]
"""Records that were read, by ref, each with its commit: no other record is ever there."""


def read_records(mirror: Mirror, held: HeldRecords) -> Iterator[PullRecord | PullRequest]:
    """Yield the stored pull requests of a repository, unreadable ones with their reason.

    Those that are `held` are not read again; what is read is held from then on.

    Raises:
        UnavailableError: The repository cannot be read at all.
    """
    refs = mirror.refs()
    current = {ref for ref, (commit, _) in held.items() if refs.get(ref) == commit}
    blobs = dict(record_blobs(mirror, current))
    mirror.ensure(filter(None, blobs.values()))
    for ref in (ref for ref in refs if ref in current or ref in blobs):
        if ref not in current:
            try:
                read = _read(mirror, ref, blobs[ref])
            except (PackageRefusedError, UnavailableError) as error:
                read = unreadable_pull(ref, str(error))
            if not isinstance(read, PullRecord):
                yield read
                continue
            held[ref] = (refs[ref], read)
        yield held[ref][1]


def _read(mirror: Mirror, ref: str, blob: Oid | None) -> PullRecord | PullRequest:
    if blob is None:
        return unreadable_pull(ref, f"it has no {FILE}")
    return parse_record(mirror.blob(blob, _LARGEST), ref=ref)
