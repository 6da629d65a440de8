"""Which runtimes there are, in the order in which they are asked (design D11)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.functions.runtime import FunctionRuntime
from reconciler.policy import FunctionPolicy
from reconciler.runtime.container import ContainerRuntime
from reconciler.runtime.exec import ExecRuntime
from reconciler.runtime.schemas import SchemaRuntime
from reconciler.runtime.starlark import StarlarkRuntime


@contextmanager
def open_runtimes(policy: FunctionPolicy, cache: Path | None = None) -> Iterator[tuple[FunctionRuntime, ...]]:
    """Yield the runtimes of a policy: Starlark, schemas, executables, containers; end what they started.

    `cache` is a directory where results of containers are kept.
    """
    with StarlarkRuntime(policy) as starlark:
        yield (starlark, SchemaRuntime(), ExecRuntime(policy), ContainerRuntime(policy, cache))
