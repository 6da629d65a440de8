"""Label selectors in their text form: `app=web,tier in (a, b),!canary`."""

import re
from collections.abc import Mapping
from typing import Any, Final

_KEY: Final = r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?"
_TERM: Final = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<no>{_KEY})"
    rf"|(?P<set>{_KEY})\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)"
    rf"|(?P<key>{_KEY})\s*(?P<equal>==|=|!=)\s*(?P<value>[A-Za-z0-9._-]*)"
    rf"|(?P<has>{_KEY}))\s*(?:,|\Z)"
)


class SelectorTextError(ValueError):
    """A text that is no selector."""


def matches_selector(text: str, labels: Any) -> bool:
    """Tell whether labels fit a selector; an empty one fits all.

    Raises:
        SelectorTextError: The text is no selector.

    Source: apimachinery pkg/labels/selector.go.
    """
    have = labels if isinstance(labels, Mapping) else {}
    at, fits = 0, True
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None or term.end() == at:
            raise SelectorTextError(f"{text!r} is no label selector")
        fits = fits and _holds(term, have)
        at = term.end()
    return fits


def _holds(term: re.Match[str], labels: Mapping[str, Any]) -> bool:
    if term["absent"]:
        return term["no"] not in labels
    if term["set"]:
        values = {value.strip() for value in term["values"].split(",")}
        inside = labels.get(term["set"]) in values and term["set"] in labels
        return inside if term["op"] == "in" else not inside
    if term["key"]:
        equal = labels.get(term["key"]) == term["value"]
        return not equal if term["equal"] == "!=" else equal
    return term["has"] in labels
