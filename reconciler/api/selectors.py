"""Label selectors, as Kubernetes evaluates them."""

import re
from collections.abc import Callable, Mapping

import orjson

from reconciler.api.meta import LabelSelector, LabelSelectorRequirement

Labels = Mapping[str, str]
Predicate = Callable[[Labels], bool]

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_PREFIX = 253


class SelectorError(ValueError):
    """A selector that Kubernetes would refuse; `field` is the term at fault."""

    def __init__(self, message: str, field: tuple[str | int, ...], hint: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.hint = hint


def compile_selector(selector: LabelSelector) -> Predicate:
    """Return a predicate on labels. All terms are ANDed, an empty selector selects everything.

    Raises:
        SelectorError: An operator is unknown, or its values or a key cannot be.

    Source: apimachinery LabelSelectorAsSelector, labels.NewRequirement.
    """
    match_labels = dict(selector.match_labels or {})
    for key, value in match_labels.items():
        _check_key(key, ("matchLabels", key))
        _check_value(value, ("matchLabels", key))
    # Compiled once per selector: a snapshot may have a hundred thousand objects to match.
    terms = [
        _compile_term(term, ("matchExpressions", index))
        for index, term in enumerate(selector.match_expressions or ())
    ]

    required = match_labels.items()

    def matches(labels: Labels) -> bool:
        return required <= labels.items() and all(term(labels) for term in terms)

    return matches


def _compile_term(term: LabelSelectorRequirement, field: tuple[str | int, ...]) -> Predicate:
    if term.operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
        raise SelectorError(
            f"{_quote(term.operator)} is not a valid label selector operator", (*field, "operator")
        )
    _check_key(term.key, (*field, "key"))
    return _in_term(term, field) if term.operator in {"In", "NotIn"} else _existence_term(term, field)


def _in_term(term: LabelSelectorRequirement, field: tuple[str | int, ...]) -> Predicate:
    key, values = term.key, frozenset(term.values or ())
    if not values:
        message = "for 'in', 'notin' operators, values set can't be empty"
        raise SelectorError(
            f"values: Invalid value: {_quote(term.values)}: {message}", (*field, "values"), "Give it a value."
        )
    for index, value in enumerate(term.values or ()):
        _check_value(value, (*field, "values", index))
    if term.operator == "In":
        return lambda labels: labels.get(key) in values
    # Like Kubernetes, NotIn also selects objects without the label.
    return lambda labels: labels.get(key) not in values


def _existence_term(term: LabelSelectorRequirement, field: tuple[str | int, ...]) -> Predicate:
    key = term.key
    if term.values:
        message = "values set must be empty for exists and does not exist"
        raise SelectorError(
            f"values: Invalid value: {_quote(term.values)}: {message}", (*field, "values"), "Remove them."
        )
    if term.operator == "Exists":
        return lambda labels: key in labels
    return lambda labels: key not in labels


def _check_key(key: str, field: tuple[str | int, ...]) -> None:
    prefix, slash, name = key.rpartition("/")
    bad_prefix = bool(slash) and (len(prefix) > _MAX_PREFIX or not _PREFIX.fullmatch(prefix))
    if bad_prefix or not _NAME.fullmatch(name):
        raise SelectorError(f"key: Invalid value: {_quote(key)}: must be a label key", field)


def _check_value(value: str, field: tuple[str | int, ...]) -> None:
    if value and not _NAME.fullmatch(value):
        raise SelectorError(f"values: Invalid value: {_quote(value)}: must be a label value", field)


def _quote(value: object) -> str:
    # As Go prints values in the messages of apimachinery.
    return orjson.dumps(value).decode()
