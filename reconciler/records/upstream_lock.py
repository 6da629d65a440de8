"""File format of upstream locks: the pins of floating upstreams and of function images (D3)."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, field
from msgspec.structs import replace

from reconciler.base.values import Record, canonical_json
from reconciler.names.ids import ObjectName
from reconciler.records.state import NamedRecord

LOCK_SCHEMA = "reconciler.dev/v1alpha1"
LOCKS_DIRECTORY = "locks"
"""Directory of all locks: on the state branch, and on main if locks are reviewed."""

UPSTREAMS_DIRECTORY = f"{LOCKS_DIRECTORY}/upstreams"
IMAGES_PATH = f"{LOCKS_DIRECTORY}/functions/images.json"
"""The digests of function images, beside the locks of packages."""

EXACT = ("revision", "workspaceName")
"""The selectors that name one revision for good; every other one floats."""


_Digest = Annotated[str, Meta(pattern=r"^(?:id:)?sha256:[0-9a-f]{64}\Z")]


class UpstreamRequest(NamedTuple):
    """Upstream in a manifest: a package of a repository, and the selector of its revision."""

    repository: str
    package: str
    selector: Mapping[str, Any]


class UpstreamLock(NamedRecord, frozen=True, kw_only=True):
    """One floating upstream and the commit that it means, until it is decided anew.

    `selector` is how the manifest asks for it; empty means the latest published revision. `commit`
    decides; `ref` is the name that selected it, `tree` the package in it. `held` tells that
    a person chose it: it stays whatever the selector would choose.
    """

    api_version: str = LOCK_SCHEMA
    kind: str = "UpstreamLock"
    repository: str
    package: str
    selector: dict[str, Any]
    commit: Annotated[str, Meta(pattern=r"^[0-9a-f]{40}\Z")]
    tree: str
    ref: str = ""
    held: bool = False

    @property
    def request(self) -> UpstreamRequest:
        """The upstream in the manifest."""
        return UpstreamRequest(self.repository, self.package, self.selector)

    def answers(self, upstream: Mapping[str, Any]) -> bool:
        """Tell whether the lock is of the `spec.upstream` that the manifest has now."""
        return self.request == request_of(upstream)


class ImagesLock(Record, frozen=True, kw_only=True):
    """Digests of function images by name and tag; `id:` marks the digest of a local image."""

    api_version: str = LOCK_SCHEMA
    kind: Literal["FunctionImagesLock"] = "FunctionImagesLock"
    images: dict[str, _Digest] = field(default_factory=dict)

    def pinned(self, images: Mapping[str, str]) -> "ImagesLock":
        """Return the lock with these digests as well."""
        return replace(self, images=dict(sorted({**self.images, **images}.items())))


def request_of(upstream: Mapping[str, Any]) -> UpstreamRequest:
    """Return the package and selector of a manifest's `spec.upstream`."""
    selector = {field: value for field, value in upstream.items() if field not in ("repo", "package")}
    return UpstreamRequest(upstream.get("repo", ""), upstream.get("package", ""), selector)


def is_floating(upstream: Mapping[str, Any]) -> bool:
    """Tell whether a `spec.upstream` may select another commit later; an empty one selects none."""
    return bool(upstream) and not any(field in upstream for field in EXACT)


def lock_upstream(
    variant: ObjectName, upstream: Mapping[str, Any], *, commit: str, tree: str, ref: str, held: bool = False
) -> UpstreamLock | None:
    """Return the lock of a variant's upstream; None if that is exact.

    `upstream` is the manifest's `spec.upstream`.
    """
    if not is_floating(upstream):
        return None
    return UpstreamLock(
        namespace=variant.namespace,
        name=variant.name,
        **request_of(upstream)._asdict(),
        commit=commit,
        tree=tree,
        ref=ref,
        held=held,
    )


def lock_bytes(lock: UpstreamLock | ImagesLock) -> bytes:
    """Return the lock's canonical bytes: sorted keys, two-space indent, final newline. Deterministic."""
    return canonical_json(lock)


def lock_path(lock: UpstreamLock) -> str:
    """Return the lock's path, on the state branch and on main alike."""
    return f"{UPSTREAMS_DIRECTORY}/{lock.namespace}/{lock.name}.json"
