"""Which runtimes there are, in the order in which they are asked (design D11)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reconciler.functions.runtime import FunctionRuntime
from reconciler.policy import FunctionPolicy
from reconciler.runtime.container import ContainerRuntime, Free
from reconciler.runtime.exec import ExecRuntime
from reconciler.runtime.schemas import SchemaRuntime
from reconciler.runtime.starlark import StarlarkRuntime


@contextmanager
def open_runtimes(
    policy: FunctionPolicy,
    cache: Path | None = None,
    definitions: Sequence[Mapping[str, Any]] = (),
    free: Free | None = None,
) -> Iterator[tuple[FunctionRuntime, ...]]:
    """Yield the runtimes of a policy: Starlark, schemas, executables, containers; end what they started.

    `cache` is a directory where results of containers are kept; `definitions` are
    CustomResourceDefinitions besides those of each package; `free` is entered for each container.
    """
    with StarlarkRuntime(policy) as starlark:
        containers = ContainerRuntime(policy, cache, free)
        yield (starlark, SchemaRuntime(definitions), ExecRuntime(policy), containers)
