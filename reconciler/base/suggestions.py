"""Hints for misspelt names: what comes closest of what exists; and booleans that people write as words."""

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from typing import Final

from reconciler.base.text import Text

_WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
"""Of the core schema of YAML 1.2, as GitHub's own actions read them.

Source: actions/toolkit, packages/core/src/core.ts, getBooleanInput.
"""


def parse_boolean(value: object) -> bool | None:
    """Return the boolean that a value is or spells, None for any other value: never take it as false."""
    return value if isinstance(value, bool) else _WORDS.get(value) if isinstance(value, str) else None


def boolean_hint(value: object) -> str:
    """Return the next step for a value that is no boolean."""
    return suggest(str(value), ("true", "false"), otherwise="Write true or false.")


_SHORTEST_START = 3
_ANSWERS = ("Did you mean ", "Known", "There is ", "Versions: ", "None is ")
"""Beginnings of hints that name what there is, and leave to the reader what to do."""
_MOST_NAMES = 12
_ALIKE = 0.5
"""Least similarity of names apart from a shared ending: `web.io` and `db.io` are not alike."""
_MUCH_LESS = 0.25
"""How much less similar than the closest name another one may be."""


def close_names(word: str, candidates: Iterable[str], *, most: int = 3) -> list[str]:
    """Return the candidates closest to `word`, by descending similarity.

    Letter case and a shared ending such as `.acme.io` do not count, and much less similar names than the
    closest are left out, as is `carvel:db.io` beside `db.io`. Where no name is spelled alike, those that
    start alike count, else those with such a last part: `edge-1/web` for `wbe`.
    """
    folded = {name.casefold(): name for name in sorted(set(candidates))}
    typed = word.casefold()
    close = _spelled_alike(typed, folded, most)
    if not close and typed:
        close = [name for name in folded if _starts_alike(name, typed)]
    if not close:
        last = _spelled_alike(typed, {name.rpartition("/")[2] for name in folded}, 1)
        close = [name for name in folded if name.rpartition("/")[2] in last]
    short = set(close) if ":" not in typed else set()
    close = [name for name in close if name.partition(":")[2] not in short]
    return [folded[name] for name in close[:most]]


def suggest(word: str, candidates: Iterable[str], *, otherwise: str | None = None, most: int = 3) -> str:
    """Return a hint with the closest candidates; without one `otherwise`, or else a list of all."""
    names = sorted({*candidates} - {""})
    close = close_names(word, names, most=most)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    if otherwise is not None or not names:
        return otherwise or ""
    return f"Known here: {', '.join(names[:_MOST_NAMES])}{', …' if len(names) > _MOST_NAMES else ''}."


def next_step(hint: Text, location: str) -> Text:
    """Return a hint as something to do: a question or an answer follows the order to correct `location`."""
    return f"Correct {location}. {hint}".rstrip() if not hint or str(hint).startswith(_ANSWERS) else hint


def _spelled_alike(typed: str, names: Iterable[str], most: int) -> list[str]:
    alike = {
        name: _similarity(name, typed) for name in get_close_matches(typed, list(names), n=most, cutoff=0.6)
    }
    least = max(_ALIKE, max(alike.values(), default=0) - _MUCH_LESS)
    return [name for name, similarity in alike.items() if similarity >= least]


def _similarity(left: str, right: str) -> float:
    """Return how similar names are apart from a shared ecosystem and a shared ending, from 0 to 1."""
    if ":" in left and left.partition(":")[0] == right.partition(":")[0]:
        left, right = left.partition(":")[2], right.partition(":")[2]
    a, b = left.split("."), right.split(".")
    while min(len(a), len(b)) > 1 and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    return SequenceMatcher(None, ".".join(a), ".".join(b)).ratio()


def _starts_alike(left: str, right: str) -> bool:
    return min(len(left), len(right)) >= _SHORTEST_START and (
        left.startswith(right) or right.startswith(left)
    )
