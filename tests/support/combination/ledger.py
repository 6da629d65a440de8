"""What was written by whom: every change of a person or an upstream author holds a token of its own.

A token is a word that nobody else writes, so that asking where a change went is a search for a word.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

TOKEN = re.compile(rb"[kuf]\d{5}x")


class ViolationError(AssertionError):
    """What must hold does not; the trace replays it."""


@dataclass(frozen=True)
class Token:
    """One change: `k` of a person, `u` of an upstream author, `f` of a file that is not ours."""

    text: bytes
    repository: str
    package: str
    file: str


@dataclass
class Ledger:
    """Tokens whose changes must be somewhere."""

    count: int = 0
    people: dict[bytes, Token] = field(default_factory=dict)
    foreign: dict[bytes, Token] = field(default_factory=dict)
    forgiven: set[tuple[str, str, bytes]] = field(default_factory=set)
    """(repository, package, upstream token) that a person dropped, or an approved text named."""
    touched: set[tuple[str, str]] = field(default_factory=set)
    """Packages in which a person ever changed anything."""
    repiped: set[tuple[str, str]] = field(default_factory=set)
    """Packages whose pipeline was ever changed: what a function wrote stays when it is taken away."""
    files: set[tuple[str, str, str]] = field(default_factory=set)
    """(repository, package, file) that a person ever changed."""

    def next(self, kind: str) -> str:
        """Return a new token."""
        self.count += 1
        return f"{kind}{self.count:05}x"

    def wrote(self, text: str, repository: str, package: str, file: str) -> None:
        """Record a person's change."""
        self.people[text.encode()] = Token(text.encode(), repository, package, file)
        self.touched.add((repository, package))

    def guard(self, text: str, repository: str, package: str, file: str) -> None:
        """Record a file that no run may ever change."""
        self.foreign[text.encode()] = Token(text.encode(), repository, package, file)

    def rename(self, before: str, now: str) -> None:
        """Call a Repository by another name."""

        def renamed(token: Token) -> Token:
            return replace(token, repository=now) if token.repository == before else token

        self.people = {text: renamed(token) for text, token in self.people.items()}
        self.foreign = {text: renamed(token) for text, token in self.foreign.items()}
        self.touched = {(now if r == before else r, p) for r, p in self.touched}
        self.repiped = {(now if r == before else r, p) for r, p in self.repiped}
        self.forgiven = {(now if r == before else r, p, t) for r, p, t in self.forgiven}
        self.files = {(now if r == before else r, p, f) for r, p, f in self.files}

    def give_up(self, tokens: Iterable[bytes]) -> None:
        """Forget changes that their author, or an approved text that names them, took back."""
        for token in tokens:
            self.people.pop(token, None)

    def forgive(self, repository: str, package: str, tokens: Iterable[bytes]) -> None:
        """Let upstream changes be absent from one package."""
        self.forgiven |= {(repository, package, token) for token in tokens}


def tokens_in(data: bytes) -> set[bytes]:
    """Return every token of a text."""
    return set(TOKEN.findall(data))
