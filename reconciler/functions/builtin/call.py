"""What a builtin gets and gives: resources to change in place, a configuration, results."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.functions.resource import Resource
from reconciler.functions.runtime import FunctionResult


@dataclass(slots=True)
class Call:
    """One call of a builtin.

    `items` may be changed in place, and resources may be taken out or put in. `config` is the
    functionConfig, None where there is none; `config_file` the file it stands in, "" for a configMap.
    `profile` tells apart versions that behave differently; `compatible` asks for upstream's faults.
    `package` is the directory of the package whose pipeline this is.
    """

    items: list[Resource]
    config: Mapping[str, Any] | None = None
    config_file: str = ""
    profile: str = ""
    compatible: bool = False
    package: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def config_kind(self) -> str:
        """The kind of the configuration, "" where there is none."""
        return str((self.config or {}).get("kind") or "")

    @property
    def config_api_version(self) -> str:
        """The apiVersion of the configuration, "" where there is none."""
        return str((self.config or {}).get("apiVersion") or "")

    @property
    def config_name(self) -> str:
        """The name of the configuration, "" where there is none."""
        metadata = (self.config or {}).get("metadata")
        return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""

    @property
    def data(self) -> dict[str, str]:
        """The `data` of a ConfigMap, every value as a string; empty where it is no mapping."""
        found = (self.config or {}).get("data")
        return {str(k): as_text(v) for k, v in found.items()} if isinstance(found, Mapping) else {}


Builtin = Callable[[Call], Iterable[FunctionResult]]


class FunctionFailedError(Exception):
    """A builtin cannot do what it was asked for; nothing that it did so far counts."""

    def __init__(
        self, *messages: str, severity: str = "error", extra: tuple[FunctionResult, ...] = ()
    ) -> None:
        super().__init__("; ".join(messages))
        self.results = (*extra, *(FunctionResult(message, severity) for message in messages))


def as_text(value: Any) -> str:
    """Return a scalar as YAML would have it in a string."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def info(message: str) -> FunctionResult:
    """Return a result of severity info."""
    return FunctionResult(message, "info")


def shown(resource: Resource, text: str) -> str:
    """Return a value as results may show it: never one of a Secret."""
    return "(hidden)" if resource.kind == "Secret" else text


def file_of(resource: Resource) -> dict[str, Any]:
    """Return a result's `file`; an index of 0 is left out, as kpt does."""
    return {"path": resource.file, "index": resource.index} if resource.index else {"path": resource.file}


def reference(resource: Resource) -> dict[str, str]:
    """Return a result's `resourceRef`."""
    fields = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "namespace": resource.namespace,
        "name": resource.name,
    }
    return {key: value for key, value in fields.items() if value}


def ensure_mapping(value: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return the mapping at `path`, made where it is absent or null.

    Raises:
        FunctionFailedError: Something else stands there.
    """
    for step in path:
        found = value.get(step)
        if found is None:
            found = value[step] = {}
        if not isinstance(found, dict):
            raise FunctionFailedError(f"The field {'.'.join(path)} is no mapping")
        value = found
    return value
