"""Trailers of commits on drafts: conflicts that we ask about, and those where people keep their value. Pure.

A conflict is named by file, resource, field and a mark of both values, in characters that a shell leaves
alone: `web/deployment.yaml Deployment/web spec.replicas 3f9c2a-81be07`. Other values have another name, so
an answer holds exactly as long as both sides stay as they were.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote

from msgspec import Struct, field

from reconciler.base.lazy import regex

KEEP = "Keep"
BOX = "a box of the pull request"
"""The answer of a person in a browser, as reports name it."""
KEEPS, TAKES = "keep", "take"
Ticks = frozenset[tuple[str, str]]
"""Ticked boxes: `keep` (the local value) or `take` (upstream's), and the name of the conflict."""

CONFLICT = "Conflict"
EVERYTHING = "all"
"""`Keep: all` keeps the local value of every conflict that our commits before it ask about."""

_NOTHING = "-"
_SAFE = "/._,:=+@[]()"
_DIGITS = 6
_MARK = regex(r"[0-9a-f]{6}-[0-9a-f]{6}")
_BOX = regex(r"- \[(?P<mark>[ xX])\] (?P<choice>keep|take) .*\(`(?P<name>[^`]+)`\)")
_FENCE = regex(r"`{3,}|~{3,}")
_LINE = regex(r"(?im)^(?P<key>keep|conflict):[ \t]*(?P<value>.*(?:\n[ \t]+\S.*)*)$")


class ConflictName(NamedTuple):
    """One conflict as commit messages name it; `path` is the file from the root of the repository.

    `mark` is a digest of both values, "" where a person did not write it.
    """

    path: str
    resource: str
    field: str
    mark: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.path, self.resource, self.field, self.mark) if part)

    @property
    def without_mark(self) -> "ConflictName":
        """The conflict without its values."""
        return self._replace(mark="")

    @property
    def upstream_mark(self) -> str:
        """The digest of upstream's value."""
        return self.mark.partition("-")[0]

    def means(self, other: "ConflictName") -> bool:
        """Tell whether a name that a person wrote means the place of a conflict; an API group may lead."""
        same = self.resource == other.resource or self.resource.endswith(f"/{other.resource}")
        return same and (self.path, self.field) == (other.path, other.field)


class Answers(Struct, frozen=True):
    """Conflicts that the commits on a draft name, and answers to them.

    `named` are all conflicts that our commits name, with the side that a policy chose ("" while a
    person is asked), as the newest commit has it; `latest` are those that our newest commit about the
    package names, for it names all that it leaves open. `keeps` are those that people answered by `Keep:`.
    """

    named: Mapping[ConflictName, str] = field(default_factory=dict)
    latest: Mapping[ConflictName, str] = field(default_factory=dict)
    keeps: frozenset[ConflictName] = frozenset()

    @property
    def has_asked(self) -> bool:
        """Whether our newest commit leaves conflicts open: the functions of the draft wait for answers."""
        return "" in self.latest.values()

    def is_kept(self, name: ConflictName) -> bool:
        """Tell whether people keep the local value of a conflict."""
        return name in self.keeps or name.without_mark in self.keeps


NO_ANSWERS = Answers()


def conflict_name(package: str, path: str, resource: str, field_path: str, mark: str) -> ConflictName:
    """Return the name of a conflict in the package at a path; a part that is missing is a dash. Injective."""
    file = f"{package}/{path}" if package else path
    path, resource, field_path = map(_spelled, (file, resource.replace(" ", "/"), field_path))
    return ConflictName(path, resource, field_path, mark)


def parse_name(text: str) -> ConflictName | None:
    """Return the conflict that a text names, None if it names none. Total."""
    return _parse(text.split())[0]


def value_mark(value: str | None) -> str:
    """Return the digest of one value in a mark; an absent value differs from an empty one."""
    text = _NOTHING if value is None else f"+{value}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]


def box_line(choice: str, what: str, name: str, *, ticked: bool) -> str:
    """Return a box that answers a conflict, as Markdown; `what` is inert."""
    return f"- [{'x' if ticked else ' '}] {choice} {what} (`{name}`)"


def read_boxes(text: str) -> tuple[str, Ticks]:
    """Return a text with no box ticked, and the ticks that it had; lines of code blocks are no boxes."""
    lines, ticks, fence = [], set(), ""
    for line in text.split("\n"):
        if marks := _FENCE.match(line):
            fence = "" if fence == line else fence or marks.group()
        box = None if fence else _BOX.fullmatch(line)
        if box and box["mark"] != " ":
            ticks.add((box["choice"], box["name"]))
        lines.append(line.replace(f"[{box['mark']}]", "[ ]", 1) if box else line)
    return "\n".join(lines), frozenset(ticks)


def without_mark(name: str) -> str:
    """Return a conflict's name without the digests of its values."""
    return _MARK.sub("", name).rstrip()


def has_mark(name: str) -> bool:
    """Tell whether a conflict's name tells its values."""
    return _MARK.search(name) is not None


def conflict_lines(message: str) -> list[str]:
    """Return the lines of a message that name conflicts."""
    return [line for line in message.splitlines() if line.startswith(f"{CONFLICT}: ")]


def read_answers(messages: Iterable[str], package: str, *, alone: bool) -> Answers:
    """Return the conflicts and answers of one package in messages, the oldest first. Total.

    A `Keep:` without a mark answers the earlier conflicts at that place. On a branch of its own
    (`alone`) the path may be that in the package.
    """
    inside = f"{package}/" if package else ""
    named: dict[ConflictName, str] = {}
    latest: dict[ConflictName, str] = {}
    keeps: set[ConflictName] = set()
    for message in messages:
        values = list(_values(message))
        conflicts = {
            name: choice
            for key, words in values
            for name, choice in (_parse(words),)
            if key == CONFLICT and name is not None and name.mark and name.path.startswith(inside)
        }
        named |= conflicts
        # A person may have committed our message anew, so the line about the package counts, not the author.
        if conflicts or any(
            line.startswith("kpt:") and f'"package":"{package}"' in line for line in message.splitlines()
        ):
            latest = conflicts
        for key, words in values:
            if key == KEEP:
                keeps.update(_parse_keep(words, named, package, alone=alone))
    return Answers(named, latest, frozenset(keeps))


def _values(message: str) -> Iterator[tuple[str, list[str]]]:
    for match in _LINE.finditer(message):
        yield match["key"].capitalize(), match["value"].split()


def _parse(words: list[str]) -> tuple[ConflictName | None, str]:
    marks = [index for index, word in enumerate(words) if _MARK.fullmatch(word)]
    end = marks[-1] if marks else len(words)
    parts = words[:end]
    if not 1 <= len(parts) <= 3:  # noqa: PLR2004 - path, resource, field
        return None, ""
    parts += [_NOTHING] * (3 - len(parts))
    mark = words[end] if marks else ""
    return ConflictName(parts[0], parts[1], parts[2], mark), " ".join(words[end + 1 :])


def _parse_keep(
    words: list[str], named: Mapping[ConflictName, str], package: str, *, alone: bool
) -> Iterator[ConflictName]:
    if words == [EVERYTHING]:
        yield from named
        return
    name, _ = _parse(words)
    if name is None:
        return
    inside = f"{package}/" if package else ""
    if alone and not name.path.startswith(inside):
        name = name._replace(path=f"{inside}{name.path}")
    matches = [answer for answer in named if name.means(answer) and name.mark in ("", answer.mark)]
    yield from matches or [name]


def _spelled(text: str) -> str:
    """Return a part without blanks, quotes or anything else that a shell or a trailer takes for its own."""
    return quote(text, safe=_SAFE, errors="surrogateescape") or _NOTHING
