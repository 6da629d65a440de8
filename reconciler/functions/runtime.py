"""The port to the runtimes of functions that are not built in."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from reconciler.functions.charts import ChartCall, RenderedTemplate


class FunctionResult(Struct, frozen=True):
    """One result of a function in the ResourceList protocol."""

    message: str
    severity: str = "info"
    resource_ref: Mapping[str, str] | None = None
    field: Mapping[str, Any] | None = None
    file: Mapping[str, Any] | None = None
    tags: Mapping[str, str] | None = None


class FunctionRun(Struct, frozen=True):
    """Output of one function; `items` is None if it failed, `charts` what each chart of the call gave."""

    items: Sequence[Mapping[str, Any]] | None
    results: tuple[FunctionResult, ...] = ()
    exit_code: int = 0
    stderr: str = ""
    error: str = ""
    charts: tuple[tuple[RenderedTemplate, ...], ...] = ()


class FunctionCall(Struct, frozen=True):
    """One function with its configuration and input items.

    `image` includes the registry and the tag or digest; `claimed` is the catalog's name of the function if
    the catalog claims this version. `charts` are those that its configuration asks for.
    """

    image: str = ""
    exec: str = ""
    config: Mapping[str, Any] | None = None
    items: Sequence[Mapping[str, Any]] = ()
    claimed: str = ""
    charts: tuple[ChartCall, ...] = ()


class FunctionRuntime(Protocol):
    """Runs functions that are not built in. A failure of a function is a value, not an exception."""

    def can_run(self, call: FunctionCall) -> str:
        """Return the reason why this runtime cannot run the function, "" if it can."""
        ...

    def run(self, call: FunctionCall) -> FunctionRun:
        """Run the function on its items, within the configured limits."""
        ...
