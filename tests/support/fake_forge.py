"""A forge in memory: what the contract says and nothing else, so that tests of others can trust it."""

from collections.abc import Mapping

from reconciler.base.errors import ConflictError, RefusedError, UnavailableError
from reconciler.inventory.inventory import CheckState, PullRequest, PullState
from tests.support.values import replace


class FakeForge:
    """Pull requests of one repository, in a dictionary.

    `heads` are the branches that exist, by name; a test moves them. `down` makes every call fail.
    """

    def __init__(self, heads: dict[str, str]) -> None:
        self.heads = heads
        self.pulls: dict[int, PullRequest] = {}
        self.comments: dict[tuple[int, str], str] = {}
        self.duplicates: set[int] = set()
        self.calls = 0
        self.down = False

    def list_pulls(self) -> tuple[PullRequest, ...]:
        self._call()
        return tuple(self._seen(self.pulls[number]) for number in sorted(self.pulls.keys() - self.duplicates))

    def ensure(self, wanted: PullRequest) -> PullRequest:
        self._call()
        if wanted.head not in self.heads:
            raise RefusedError(f"no branch {wanted.head}")
        found = next(
            (p for p in self.list_pulls() if p.head == wanted.head and p.state is PullState.OPEN), None
        )
        number = found.number if found else len(self.pulls) + 1
        draft = found.draft if found else wanted.draft
        self.pulls[number] = replace(
            wanted, number=number, draft=draft, state=PullState.OPEN, head_oid=self.heads[wanted.head]
        )
        return self.pulls[number]

    def mark_ready(self, number: int) -> None:
        self._call()
        self.pulls[number] = replace(self._find(number), draft=False)

    def mark_draft(self, number: int) -> None:
        self._call()
        pull = self._find(number)
        if pull.state is PullState.OPEN:
            self.pulls[number] = replace(pull, draft=True)

    def close(self, number: int, *, comment: str, duplicate_of: int = 0) -> None:
        self._call()
        pull = self._find(number)
        if pull.state is PullState.OPEN:
            self.comments[number, "close"] = comment
            self.pulls[number] = replace(pull, state=PullState.CLOSED)
            if duplicate_of:
                self.duplicates.add(number)

    def comment(self, number: int, *, key: str, body: str) -> None:
        self._call()
        self.comments[self._find(number).number, key] = body

    def approve(self, number: int, *, expect: str) -> str:
        pull = self._find(number)
        if pull.state is PullState.OPEN and pull.head_oid != expect:
            raise ConflictError("the head moved")
        if pull.state is PullState.OPEN:
            self.mark_ready(number)
        return self.merge(number, expect=expect)

    def checks(self, commit: str) -> Mapping[str, CheckState]:
        self._call()
        del commit
        return {}

    def merge(self, number: int, *, expect: str) -> str:
        self._call()
        pull = self._find(number)
        if pull.state is PullState.MERGED:
            return f"merge-of-{pull.head_oid}"
        if pull.state is PullState.CLOSED or pull.draft:
            raise RefusedError("closed, or a draft")
        if pull.head_oid != expect:
            raise ConflictError("the head moved")
        self.pulls[number] = replace(pull, state=PullState.MERGED)
        return f"merge-of-{pull.head_oid}"

    def _find(self, number: int) -> PullRequest:
        if number not in self.pulls:
            raise RefusedError(f"no pull request {number}")
        return self._seen(self.pulls[number])

    def _seen(self, pull: PullRequest) -> PullRequest:
        if pull.state is not PullState.OPEN:
            return pull
        if pull.head not in self.heads:
            return replace(pull, state=PullState.CLOSED)
        return replace(pull, head_oid=self.heads[pull.head])

    def _call(self) -> None:
        self.calls += 1
        if self.down:
            raise UnavailableError("the forge is down")
