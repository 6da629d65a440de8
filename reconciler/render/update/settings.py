"""How a package is to be merged, and the memory of what was merged before."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from reconciler.ids import Oid
from reconciler.krm.schema import Schemas, crd_shapes
from reconciler.krm.yaml import YamlError, load_documents
from reconciler.objects import File, Files, Mode
from reconciler.policy import MergeMode
from reconciler.render.update.chunks import Chunked, split_documents
from reconciler.render.update.model import ConflictPolicy

T = TypeVar("T")
_CRD = b"CustomResourceDefinition"
_UNKNOWN: Final = object()
_ROOM = 4096
_DOCUMENTS = 64


@dataclass(slots=True)
class Memory:
    """Results by content: what was read or merged once is not read or merged again.

    Shared by the updates of a run; it forgets everything when it is full.
    """

    _known: dict[Any, Any] = field(default_factory=dict)
    _read: dict[tuple[Oid, Mode], Chunked | None] = field(default_factory=dict)

    def recall(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` returns, from memory if it was asked for `key` before."""
        found = self._known.get(key, _UNKNOWN)
        if found is not _UNKNOWN:
            return found  # type: ignore[no-any-return]
        if len(self._known) >= _ROOM:
            self._known.clear()
        value = self._known[key] = make()
        return value

    def documents(self, file: File) -> Chunked | None:
        """Return the documents of a file, None where it is no YAML.

        Few are kept: a document is many small objects, and what is worth remembering is the merged file.
        """
        key = (file.oid, file.mode)
        found = self._read.get(key, _UNKNOWN)
        if found is not _UNKNOWN:
            return found  # type: ignore[return-value]
        if len(self._read) >= _DOCUMENTS:
            self._read.clear()
        chunked = self._read[key] = split_documents(file)
        return chunked


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for one update."""

    mode: MergeMode
    policy: ConflictPolicy
    memory: Memory
    schemas: Schemas = field(default_factory=Schemas)
    schemas_key: tuple[str, ...] = ()

    @property
    def like_kpt(self) -> bool:
        """Whether to do what kpt does."""
        return self.mode is MergeMode.COMPATIBLE

    @property
    def key(self) -> Any:
        """What a merged result depends on beside the files."""
        policy = self.policy
        named = tuple(policy.fields.items()), tuple(policy.places.items())
        return self.mode, policy.default, *named, self.schemas_key


def schemas_of(trees: tuple[Files, ...], memory: Memory) -> tuple[Schemas, tuple[str, ...]]:
    """Return the shapes that the CRDs of a package define, upstream's last word, and what they depend on."""
    files = {file.oid: file for tree in trees for file in tree.values() if _CRD in file.data}
    key = tuple(files)
    if not key:
        return Schemas(), key
    return memory.recall(("schemas", key), lambda: Schemas(crd_shapes(_values(files.values())))), key


def _values(files: Any) -> Any:
    for file in files:
        try:
            documents = load_documents(file.data)
        except YamlError:
            continue
        yield from (document.value for document in documents)
