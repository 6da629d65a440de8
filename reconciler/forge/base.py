"""The port to a forge: pull requests of one repository."""

from typing import Protocol

from reconciler.inventory import PullRequest


class Forge(Protocol):
    """Pull requests of one repository. Every method is safe to repeat.

    A method that cannot know whether its effect happened looks first and acts after (D14).

    Raises: every method raises UnavailableError when the forge cannot be read or written.
    """

    def list_pulls(self) -> tuple[PullRequest, ...]:
        """Return the pull requests, open or ended, whose head is a branch of ours; sorted by number.

        One that cannot be read is among them, with `unreadable` set: it stalls the package of its head.
        """
        ...

    def ensure(self, wanted: PullRequest) -> PullRequest:
        """Open a pull request for `wanted.head`, or bring the open one up to date; return it."""
        ...

    def mark_ready(self, number: int) -> None:
        """Mark a draft pull request as ready for review; do nothing if it is."""
        ...

    def mark_draft(self, number: int) -> None:
        """Turn a pull request that is ready back into a draft; do nothing if it is one, or ended."""
        ...

    def close(self, number: int, *, comment: str, duplicate_of: int = 0) -> None:
        """Close a pull request with a comment; do nothing if it is closed or merged.

        One that is closed as a duplicate of another is never listed again: nobody rejected it.
        """
        ...

    def comment(self, number: int, *, key: str, body: str) -> None:
        """Write or update the one comment of ours that `key` names."""
        ...

    def approve(self, number: int, *, expect: str) -> str:
        """Mark a pull request as ready if it is a draft, and merge it if its head is still `expect`."""
        ...

    def passed_checks(self, commit: str) -> frozenset[str]:
        """Return the names of the checks of a commit that passed; none where the forge has no checks."""
        ...

    def merge(self, number: int, *, expect: str) -> str:
        """Merge a pull request whose head is still `expect`; return the merge commit's id."""
        ...
