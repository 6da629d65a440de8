"""Hints for misspelt names: what comes closest of what exists."""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

_SHORTEST_START = 3
_SHOWN = 12
_ALIKE = 0.5
"""Least similarity of names apart from a shared ending: `web.io` and `db.io` are not alike."""


def close_names(word: str, candidates: Iterable[str], *, most: int = 3) -> list[str]:
    """Return the candidates closest to `word`, by descending similarity.

    Letter case and a shared ending such as `.io` do not count. Where no name is spelled alike, those that
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
    return [folded[name] for name in close[:most]]


def suggest(word: str, candidates: Iterable[str], *, otherwise: str | None = None, most: int = 3) -> str:
    """Return a hint with the closest candidates; without one `otherwise`, or else a list of all."""
    names = sorted(set(candidates))
    close = close_names(word, names, most=most)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    if otherwise is not None or not names:
        return otherwise or ""
    return f"Known here: {', '.join(names[:_SHOWN])}{', …' if len(names) > _SHOWN else ''}."


def _spelled_alike(typed: str, names: Iterable[str], most: int) -> list[str]:
    close = get_close_matches(typed, list(names), n=most, cutoff=0.6)
    return [name for name in close if _is_alike_without_ending(name, typed)]


def _is_alike_without_ending(left: str, right: str) -> bool:
    (a, _, ending), (b, _, other) = left.rpartition("."), right.rpartition(".")
    return ending != other or SequenceMatcher(None, a, b).ratio() >= _ALIKE


def _starts_alike(left: str, right: str) -> bool:
    return min(len(left), len(right)) >= _SHORTEST_START and (
        left.startswith(right) or right.startswith(left)
    )
