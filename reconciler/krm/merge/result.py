"""What a merge decides, before any byte is written: a tree made of parts of the three sides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from reconciler.krm.merge.view import Node

Steps = tuple[str, ...]
"""The way to a field, as people read it: keys, and `[name=app]` for an element of a list."""


class Keep(Enum):
    """Leave a comment as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
Comment = str | None | Keep
"""What becomes of a comment: this text, none, or what is there."""


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """A value as upstream has it; `exact` where local did not touch what stood there, not even its style."""

    node: Node
    exact: bool = True


@dataclass(slots=True, eq=False)
class Part:
    """One field or element of a made collection, with the comments beside and above it.

    `over` is the local element that an element of a list continues.
    """

    value: "Merged"
    over: Node | None = None
    line: Comment = KEEP
    head: Comment = KEEP


@dataclass(slots=True, eq=False)
class Made:
    """A collection put together; `over` is the local one that it changes, None where local has none."""

    over: Node | None
    fields: dict[str, Part] = field(default_factory=dict)
    items: list[Part] | None = None


Merged = Node | Taken | Made
"""A node of local, kept; one of upstream, taken; or a collection put together from both."""


@dataclass(frozen=True, slots=True, eq=False)
class Clash:
    """One value that both sides changed differently and who wins it.

    `rule` says why nobody is asked. `judged` is the field whose policy decides it, if that is another one.
    """

    path: Steps
    base: Node | None
    upstream: Node | None
    local: Node | None
    reason: str
    verdict: "Verdict"
    rule: str = ""
    judged: Steps = ()


class Verdict(Enum):
    """Who wins one clash."""

    UPSTREAM = "upstream"
    LOCAL = "local"
    OPEN = "open"
    """Nobody decided: local stays, and a person is asked."""


Judge = Callable[[Steps], Verdict]
"""Decides a clash by where it is."""


def path_text(steps: Sequence[str]) -> str:
    """Return `spec.containers[name=app].image` for its steps; keys with dots are quoted."""
    parts: list[str] = []
    for step in steps:
        if step.startswith("["):
            parts.append(step)
            continue
        name = f'"{step}"' if "." in step or not step else step
        parts.append(f".{name}" if parts else name)
    return "".join(parts)
