"""Interface of the builtin functions: the call with its resources and configuration, results and failures."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from reconciler.functions.protocol import FunctionResult
from reconciler.functions.resources import Resource
from reconciler.krm.values import mapping_at, value_at

Splits = list[tuple[str, str]]
"""Texts of which a function used a part, each with the separator of the parts, "" for a pattern."""


class BuiltinCall(Struct):
    """Arguments of a builtin, which changes `items` in place, and may add or remove resources."""

    items: list[Resource]
    config: Mapping[str, Any] | None = None
    """The functionConfig; None if the step has none."""
    config_file: str = ""
    """File of the functionConfig; empty for a configMap."""
    profile: str = ""
    """The older version with the behaviour is asked for."""
    compatible: bool = False
    """Whether upstream's faults are asked for, too."""
    package: str = ""
    """Directory of the package that declares the pipeline."""
    splits: Splits = field(default_factory=list)

    @property
    def config_kind(self) -> str:
        """The kind of the configuration, "" where there is none."""
        return str(value_at(self.config, "kind") or "")

    @property
    def config_api_version(self) -> str:
        """The apiVersion of the configuration, "" where there is none."""
        return str(value_at(self.config, "apiVersion") or "")

    @property
    def config_name(self) -> str:
        """The name of the configuration, "" where there is none."""
        return str(value_at(self.config, "metadata", "name") or "")

    @property
    def data(self) -> dict[str, str]:
        """The `data` of a ConfigMap, every value as a string; empty where it is no mapping."""
        return {str(key): as_text(value) for key, value in mapping_at(self.config, "data").items()}


Builtin = Callable[[BuiltinCall], Iterable[FunctionResult]]


class FunctionFailedError(Exception):
    """A builtin failed; the pipeline discards every change that it made."""

    def __init__(self, *messages: str, severity: str = "error") -> None:
        super().__init__("; ".join(messages))
        self.results = tuple(FunctionResult(message, severity) for message in messages)


def as_text(value: Any) -> str:
    """Return a scalar as YAML would have it in a string."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def masked_in_secret(resource: Resource, text: str) -> str:
    """Return a value as results may show it: never one of a Secret."""
    return "(hidden)" if resource.kind == "Secret" else text


def file_of(resource: Resource) -> dict[str, Any]:
    """Return a result's `file`; an index of 0 is left out, as kpt does."""
    return {"path": resource.file, "index": resource.index} if resource.index else {"path": resource.file}


def ensure_mapping(value: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return the mapping at `path`, made where it is absent or null.

    Raises:
        FunctionFailedError: A field of the path has a value that is no mapping.
    """
    for step in path:
        child = value.get(step)
        if child is None:
            child = value[step] = {}
        if not isinstance(child, dict):
            raise FunctionFailedError(f"The field {'.'.join(path)} is no mapping")
        value = child
    return value
