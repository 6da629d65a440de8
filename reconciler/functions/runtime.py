"""The port to whatever runs a KRM function outside this process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """One result of a function, as the ResourceList protocol has it."""

    message: str
    severity: str = "info"
    resource_ref: Mapping[str, str] | None = None
    field: Mapping[str, Any] | None = None
    file: Mapping[str, Any] | None = None
    tags: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class FunctionRun:
    """What one function did: its output items, or None where it failed."""

    items: Sequence[Mapping[str, Any]] | None
    results: tuple[FunctionResult, ...] = ()
    exit_code: int = 0
    stderr: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One function to run: its name, its configuration and its items.

    `image` has its registry and tag or digest; `claimed` is the catalog's name of the function, where
    the catalog says that we can stand for this version of it.
    """

    image: str = ""
    exec: str = ""
    config: Mapping[str, Any] | None = None
    items: Sequence[Mapping[str, Any]] = field(default=())
    claimed: str = ""


class FunctionRuntime(Protocol):
    """Runs functions that are not built in. Never raises for what a function does."""

    def can_run(self, call: FunctionCall) -> str:
        """Return "" if this runtime can run the function, else the reason why not."""
        ...

    def run(self, call: FunctionCall) -> FunctionRun:
        """Run the function on its items, within the configured limits."""
        ...
