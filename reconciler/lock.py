"""What was decided: the pins of floating upstreams, as schemas with stable bytes (D3)."""

from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

LOCK_SCHEMA = "reconciler.dev/v1alpha1"
UPSTREAMS_DIRECTORY = "locks/upstreams"
EXACT = ("revision", "workspaceName")
"""The selectors that name one revision for good; every other one floats."""


class UpstreamLock(BaseModel):
    """One floating upstream and the commit that it meant when it was last applied.

    `selector` is how the manifest asks for it; empty means the latest published revision.
    """

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, populate_by_name=True)

    api_version: str = LOCK_SCHEMA
    kind: str = "UpstreamLock"
    namespace: str
    name: str
    repository: str
    package: str
    selector: dict[str, Any]
    commit: str
    tree: str


def lock_upstream(
    namespace: str, name: str, upstream: dict[str, Any], *, commit: str, tree: str
) -> UpstreamLock | None:
    """Return the lock of a variant's upstream; None where it names one revision by itself.

    `upstream` is the manifest's `spec.upstream`.
    """
    selector = {k: v for k, v in upstream.items() if k not in ("repo", "package")}
    if not commit or any(field in selector for field in EXACT):
        return None
    return UpstreamLock(
        namespace=namespace,
        name=name,
        repository=upstream.get("repo", ""),
        package=upstream.get("package", ""),
        selector=selector,
        commit=commit,
        tree=tree,
    )


def lock_bytes(lock: UpstreamLock) -> bytes:
    """Return the lock's canonical bytes: sorted keys, two-space indent, final newline. Deterministic."""
    data = lock.model_dump(mode="json", by_alias=True)
    return orjson.dumps(data, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def lock_path(lock: UpstreamLock) -> str:
    """Return the lock's path on the state branch."""
    return f"{UPSTREAMS_DIRECTORY}/{lock.namespace}/{lock.name}.json"
