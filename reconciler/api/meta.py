"""Base models of manifests: metadata, label selectors, conditions, and manifests that other projects own."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, TypeVar

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from reconciler.base.lazy import regex
from reconciler.names.ids import group_of


class ApiModel(BaseModel):
    """Base of every manifest model: immutable, camelCase on disk, unknown fields refused.

    A value of another type is refused too, such as `"3"` for a number.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,  # most runs meet few of the kinds
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        serialize_by_alias=True,
        strict=True,
    )


_CHARACTERS = "letters, digits, '-', '_' and '.', and a letter or digit at both ends"
_LABEL_NAME = regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = regex(r"(?=.{1,253}/)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/")


def key_error(key: str) -> str:
    """Return why Kubernetes refuses the key of a label or annotation, "" if it does not."""
    prefix, slash, name = key.rpartition("/")
    if not _LABEL_NAME.fullmatch(name):
        return f"the name {name[:80]!r} is not 1 to 63 {_CHARACTERS}"
    if slash and not _LABEL_PREFIX.fullmatch(f"{prefix}/"):
        return f"the prefix {prefix[:80]!r} is not a DNS name of at most 253 lower-case characters"
    return ""


def label_error(key: str, value: object) -> str:
    """Return why Kubernetes refuses a label, "" if it does not."""
    if not value or not isinstance(value, str) or _LABEL_NAME.fullmatch(value) or key_error(key):
        return key_error(key)
    return f"the value {value[:80]!r} is not at most 63 {_CHARACTERS}"


class OwnerReference(ApiModel):
    """A reference from a dependent to its owner."""

    api_version: str
    """apiVersion of the owner."""
    kind: str
    """Kind of the owner."""
    name: str
    """Name of the owner."""
    uid: str
    """Id of the owner."""
    controller: bool | None = None
    """Written by a cluster, ignored."""
    block_owner_deletion: bool | None = None
    """Written by a cluster, ignored."""


class ObjectMeta(ApiModel):
    """Metadata of an object, with every field that `kubectl get -o yaml` prints."""

    name: str = ""
    """Name of the object: a DNS name."""
    generate_name: str | None = None
    """Not used; a name is required."""
    namespace: str = ""
    """Namespace; empty: `defaultNamespace` of the configuration."""
    labels: dict[str, str] | None = None
    """Labels, by which selectors find the object."""
    annotations: dict[str, str] | None = None
    """Annotations; those with the prefix `reconciler.dev/` have a meaning here."""
    uid: str | None = None
    """Written by a cluster, ignored."""
    resource_version: str | None = None
    """Written by a cluster, ignored."""
    generation: int | None = None
    """Written by a cluster, ignored."""
    creation_timestamp: str | None = None
    """Written by a cluster, ignored."""
    deletion_timestamp: str | None = None
    """Written by a cluster, ignored."""
    deletion_grace_period_seconds: int | None = None
    """Written by a cluster, ignored."""
    self_link: str | None = None
    """Written by a cluster, ignored."""
    finalizers: list[str] | None = None
    """Written by a cluster, ignored."""
    owner_references: list[OwnerReference] | None = None
    """Written by a cluster, ignored."""
    managed_fields: list[dict[str, object]] | None = None
    """Written by a cluster, ignored."""


class LabelSelectorRequirement(ApiModel):
    """One term of a label selector; the operator is checked where the selector is used."""

    key: str = ""
    """Label to look at."""
    operator: str = ""
    """`In`, `NotIn`, `Exists` or `DoesNotExist`."""
    values: list[str] | None = None
    """Values for `In` and `NotIn`."""


class LabelSelector(ApiModel):
    """A label query: all terms are ANDed, an empty selector selects everything."""

    match_labels: dict[str, str] | None = None
    """Labels with exactly these values."""
    match_expressions: list[LabelSelectorRequirement] | None = None
    """Further terms; all must hold."""


class Condition(ApiModel):
    """A condition as Kubernetes spells it; ours carry no times, so that they never flap."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None


class Manifest(ApiModel):
    """Base of all manifests; `status` is ignored on reading."""

    api_version: str
    """API version of the kind."""
    kind: str
    """Kind of the object."""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    """Name, namespace, labels and annotations."""
    status: dict[str, object] | None = None
    """Written by a cluster, ignored; our conditions are on the status branch."""


T = TypeVar("T")
Items = Annotated[tuple[T, ...], Field(strict=False)]
"""A list."""


class ForeignModel(BaseModel):
    """Base of models that other projects own: immutable, camelCase on disk.

    Every field of their schemas is listed, so that an unknown one is a misspelt one, and refused.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,  # most runs meet few of these kinds
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        strict=True,
    )


def known_versions(*versions: str, pattern: str = "") -> AfterValidator:
    """Return the check that an API version is one of these or has a pattern; messages name `versions`.

    The objects of a cluster are accepted in any version: its API server understood them.
    """

    def check(value: str, info: ValidationInfo) -> str:
        if value in versions or info.context == ACCEPTED or (pattern and re.fullmatch(pattern, value)):
            return value
        group = group_of(value)
        close = [version for version in versions if group_of(version) == group] or versions
        expected = " or ".join(filter(None, (", ".join(map(repr, close[:-1])), repr(close[-1]))))
        raise PydanticCustomError("enum", "unknown version", {"expected": expected})

    return AfterValidator(check)


ACCEPTED = "accepted"
"""The context in which objects are parsed that an API server has accepted."""


class ForeignManifest(ForeignModel):
    """Base of manifests that other projects own; `status` is ignored on reading."""

    api_version: str
    kind: str
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    status: object = None


Labels = Mapping[str, str]
Predicate = Callable[[Labels], bool]


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
    key, values = term.key, frozenset(term.values or ())
    if term.operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
        message = f"{_quote(term.operator)} is not a valid label selector operator"
        raise SelectorError(message, (*field, "operator"))
    _check_key(key, (*field, "key"))
    compares = term.operator in {"In", "NotIn"}
    if compares != bool(values):
        message = "values set must be empty for exists and does not exist"
        message = "for 'in', 'notin' operators, values set can't be empty" if compares else message
        message = f"values: Invalid value: {_quote(term.values)}: {message}"
        raise SelectorError(message, (*field, "values"), "Give it a value." if compares else "Remove them.")
    for index, value in enumerate(term.values or ()):
        _check_value(value, (*field, "values", index))
    predicates: dict[str, Predicate] = {
        "In": lambda labels: labels.get(key) in values,
        # Like Kubernetes, NotIn also selects objects without the label.
        "NotIn": lambda labels: labels.get(key) not in values,
        "Exists": lambda labels: key in labels,
        "DoesNotExist": lambda labels: key not in labels,
    }
    return predicates[term.operator]


def _check_key(key: str, field: tuple[str | int, ...]) -> None:
    if key_error(key):
        raise SelectorError(f"key: Invalid value: {_quote(key)}: must be a label key", field)


def _check_value(value: str, field: tuple[str | int, ...]) -> None:
    if value and not _LABEL_NAME.fullmatch(value):
        raise SelectorError(f"values: Invalid value: {_quote(value)}: must be a label value", field)


def _quote(value: object) -> str:
    # As Go prints values in the messages of apimachinery.
    return orjson.dumps(value).decode()
