"""Options of an update, and the cache of parsed and merged files."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec import Struct, field

from reconciler.krm.documents import ResourceFile, resources_in
from reconciler.krm.schema import Schemas, crd_shapes
from reconciler.krm.yaml import YamlError, load_documents
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files, Mode
from reconciler.policy import MergeMode
from reconciler.render.update.conflict_policy import ConflictPolicy

T = TypeVar("T")
_CRD = b"CustomResourceDefinition"
_MISSING: Final = object()
_MAX_RESULTS = 4096
_MAX_DOCUMENTS = 64


class MergeCache(Struct):
    """Cache of parsed and merged files by content, shared by the updates of a run; emptied when full."""

    _results: dict[Any, Any] = field(default_factory=dict)
    _files: dict[tuple[Oid, Mode], ResourceFile | None] = field(default_factory=dict)

    def result(self, key: Any, make: Callable[[], T]) -> T:
        """Return the cached result of `key`, else that of `make`."""
        cached = self._results.get(key, _MISSING)
        if cached is not _MISSING:
            return cached  # type: ignore[no-any-return]
        if len(self._results) >= _MAX_RESULTS:
            self._results.clear()
        value = self._results[key] = make()
        return value

    def split(self, file: File | None) -> ResourceFile | None:
        """Return the documents of a file, None where it is no YAML.

        Few are kept: parsed documents are large, and merged files are cached as results.
        """
        if file is None:
            return None
        key = (file.oid, file.mode)
        cached = self._files.get(key, _MISSING)
        if cached is not _MISSING:
            return cached  # type: ignore[return-value]
        if len(self._files) >= _MAX_DOCUMENTS:
            self._files.clear()
        split = self._files[key] = resources_in(file)
        return split


class MergeSettings(Struct, frozen=True):
    """Mode, policy, cache and schemas of one update."""

    mode: MergeMode
    policy: ConflictPolicy
    cache: MergeCache
    schemas: Schemas = field(default_factory=Schemas)
    schemas_key: tuple[str, ...] = ()

    @property
    def like_kpt(self) -> bool:
        """Whether to merge exactly as kpt does."""
        return self.mode is MergeMode.COMPATIBLE

    @property
    def key(self) -> Any:
        """The cache key of a merge, apart from the files."""
        policy = self.policy
        # The order of field patterns matters, so they are no set.
        named = tuple(policy.fields.items()), tuple(policy.places.items())
        return self.mode, policy.default, *named, self.schemas_key


def schemas_of(trees: tuple[Files, ...], cache: MergeCache) -> tuple[Schemas, tuple[str, ...]]:
    """Return the schemas of the CRDs of a package and their cache key; later trees override earlier ones."""
    files = {file.oid: file for tree in trees for file in tree.values() if _CRD in file.data}
    key = tuple(files)
    if not key:
        return Schemas(), key
    return cache.result(("schemas", key), lambda: Schemas(crd_shapes(_values(files.values())))), key


def _values(files: Any) -> Any:
    for file in files:
        try:
            documents = load_documents(file.data)
        except YamlError:
            continue
        yield from (document.value for document in documents)
