"""Files of a directory that Helm takes for its chart: the rules of `.helmignore`, which are not Git's.

Source: helm pkg/ignore/rules.go, and pkg/chart/loader/directory.go.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from reconciler.functions.patterns import Pattern, PatternError, compile_pattern, quote

IGNORE_FILE: Final = ".helmignore"
_ALWAYS: Final = "templates/.?*"
"""Helm's own rule, behind those of the file."""
_MOST_BYTES: Final = 64 << 10
_MOST_LINES: Final = 1000
"""To compile a pattern takes a third of a millisecond, and RE2 has memory for some thousands."""


class IgnoreError(Exception):
    """Helm refuses a `.helmignore`, or it is too long; the message follows its path."""


class _Rule(NamedTuple):
    """A rule: it ignores what it matches, or with `!` what it does not match, a directory with all in it."""

    pattern: Pattern
    negates: bool
    wants_directory: bool
    of_name: bool

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        if self.wants_directory and not is_directory:
            return self.negates
        matches = self.pattern.fullmatch(path.rpartition("/")[2] if self.of_name else path) is not None
        return matches is not self.negates


def kept_files(paths: Iterable[str], ignore: bytes) -> list[str]:
    """Return the files that are part of a chart, by their paths in it; `ignore` is its `.helmignore`.

    Raises:
        IgnoreError: Helm would not load the chart.
    """
    rules = tuple(_rules(ignore))

    def is_ignored(path: str) -> bool:
        steps = accumulate(path.split("/"), "{}/{}".format)
        return any(rule.ignores(step, is_directory=step != path) for step in steps for rule in rules)

    return [path for path in paths if not is_ignored(path)]


def _rules(ignore: bytes) -> Iterator[_Rule]:
    if len(ignore) > _MOST_BYTES or ignore.count(b"\n") > _MOST_LINES:
        raise IgnoreError(" has too many patterns, or too long ones")
    for number, line in enumerate([*ignore.decode("utf-8-sig", "replace").split("\n"), _ALWAYS], 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if "**" in text:
            raise IgnoreError(f":{number}: Helm knows no `**`")
        path = text.removeprefix("!")
        name = path.removesuffix("/")
        try:
            pattern = compile_pattern(_expression(name.removeprefix("/")))
        except (PatternError, ValueError) as error:
            raise IgnoreError(f":{number}: {text} is no pattern") from error
        yield _Rule(pattern, text.startswith("!"), path.endswith("/"), "/" not in name)


def _expression(glob: str) -> str:
    """Return a pattern of Go's filepath.Match as an expression.

    Raises:
        ValueError: It is none.
    """
    result, rest = "", glob
    while rest:
        letter, rest = rest[0], rest[1:]
        if letter == "[":
            part, rest = _class(rest)
            result += part
        elif letter == "\\":
            literal, rest = _literal(f"\\{rest}")
            result += quote(literal)
        else:
            result += {"*": "[^/]*", "?": "[^/]"}.get(letter) or quote(letter)
    return f"(?s){result}"


def _class(rest: str) -> tuple[str, str]:
    negated, rest = ("^", rest[1:]) if rest.startswith("^") else ("", rest)
    ranges = ""
    while not ranges or not rest.startswith("]"):
        low, rest = _literal(rest)
        high = low
        if rest.startswith("-"):
            high, rest = _literal(rest[1:])
        ranges += f"{quote(low)}-{quote(high)}" if low <= high else ""
        ranges = ranges or "\0"  # a range without letters matches none
    return f"[{negated}{ranges}]", rest[1:]


def _literal(rest: str) -> tuple[str, str]:
    """Return the next letter of a pattern, which may be escaped, and what follows it."""
    escaped = rest.startswith("\\")
    letter = rest[1:2] if escaped else rest[:1]
    if not letter or (not escaped and letter in "-]"):
        raise ValueError
    return letter, rest[1 + escaped :]
