"""Files of packages that are equal but for own values: held once, and filled in when they are read."""

import hashlib
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files, Mode, object_id, tree_id
from reconciler.names.substitution import OwnValues, words_in

Digests = dict[tuple[str, tuple[bytes | int, ...]], bytes]
"""The digests of masked files, by their paths and the places of own values."""


class FilledFiles(Mapping[str, File]):
    """The files of a member of a class: one with own values is made whenever it is asked for.

    Packages of one class take the memory of one, however many they are. All of them share `digests`.
    """

    def __init__(
        self,
        files: Files,
        masked: Mapping[str, bytes],
        values: OwnValues,
        digests: Digests,
        oids: Mapping[str, Oid] | None = None,
    ) -> None:
        self._files = files
        self._masked = masked
        self._values = values
        self._digests = digests
        self.oids = oids or {path: object_id("blob", values.fill(data)) for path, data in masked.items()}

    def __getitem__(self, path: str) -> File:
        file = self._files[path]
        if path not in self._masked:
            return file
        return File(self._values.fill(self._masked[path]), file.mode, self.oids[path])

    def __contains__(self, path: object) -> bool:
        return path in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def identities(self) -> Files:
        """The files with their modes and ids, those with own values without bytes."""
        masked = {path: File(b"", self._files[path].mode, oid) for path, oid in self.oids.items()}
        return {**self._files, **masked}

    def class_key(self, own_values: OwnValues) -> Hashable:
        """Return a key that is equal for members of one class if these values are at the same places."""
        return id(self._digests), self._places(own_values)

    def _places(self, own_values: OwnValues) -> tuple[bytes | int, ...]:
        numbers = {value: number for number, value in enumerate(self._values.values)}
        places = [numbers.pop(value, value) for value in own_values.values]
        return (*places, *numbers)

    def masked_digest(self, path: str, own_values: OwnValues) -> bytes:
        """Return `masked_digest` of a file; members with their values at the same places share it."""
        key = (path, self._places(own_values))
        if key not in self._digests:
            self._digests[key] = _digest(self[path], own_values)
        return self._digests[key]


def masked_digest(files: Files, path: str, own_values: OwnValues) -> bytes:
    """Return what a file has in common with those that are equal but for own values."""
    if isinstance(files, FilledFiles):
        return files.masked_digest(path, own_values)
    return _digest(files[path], own_values)


def identities(files: Files) -> Files:
    """Return files of which modes and ids are asked alone, so that none has to be made for it."""
    return files.identities if isinstance(files, FilledFiles) else files


def changed_paths(before: Files, after: Files) -> list[str]:
    """Return the paths of files that differ in bytes or modes, sorted."""
    old, new = identities(before), identities(after)
    paths = old.keys() | new.keys()
    return sorted(path for path in paths if _identity(old.get(path)) != _identity(new.get(path)))


def _identity(file: File | None) -> tuple[Mode, Oid] | None:
    return None if file is None else (file.mode, file.oid)


def _digest(file: File, own_values: OwnValues) -> bytes:
    masked = own_values.mask(file.data)
    # A file without own values is none with the bytes of a masked one.
    return file.oid.encode() if masked is file.data else hashlib.sha256(masked).digest()


class _Shared(NamedTuple):
    """The parts that a sample has in common with packages of other values; `words` are those of it."""

    masked: Mapping[str, bytes]
    words: frozenset[bytes]
    fixed_size: int
    digests: Digests


class PackageSample:
    """A package with the values of its variant: others are made of it that differ in these alone."""

    def __init__(self, files: Files, values: Sequence[str]) -> None:
        self._files = files
        self._values = values
        self._shared: dict[OwnValues, _Shared | None] = {}

    def fill(
        self, tree: Oid, values: Sequence[str], package_bytes: int, file_bytes: int
    ) -> FilledFiles | None:
        """Return the package of a tree, None if it has other files: the id of the tree proves it.

        The values of one package are no part of each other, and the files have those of both at the same
        places: all that is computed of one package holds for the other.
        """
        pairs = sorted({pair for pair in zip(self._values, values, strict=False) if pair[0] != pair[1]})
        before, after = (OwnValues.of(pair[side] for pair in pairs) for side in (0, 1))
        if not len(pairs) == len(before.values) == len(after.values) > 0:
            return None
        if before not in self._shared:
            self._shared[before] = self._without(before)
        shared = self._shared[before]
        if shared is None or after.meets(shared.words):
            return None
        if not (_is_apart(before, self._values) and _is_apart(after, values)):
            return None
        data = {path: after.fill(masked) for path, masked in shared.masked.items()}
        sizes = [len(filled) for filled in data.values()]
        if shared.fixed_size + sum(sizes) > package_bytes or max(sizes, default=0) > file_bytes:
            return None
        oids = {path: object_id("blob", filled) for path, filled in data.items()}
        files = FilledFiles(self._files, shared.masked, after, shared.digests, oids)
        return files if tree_id(files.identities) == tree else None

    def _without(self, values: OwnValues) -> _Shared | None:
        """Return the parts without values, None where a path, a link or data that is no text has one."""
        data = {path: values.mask(file.data) for path, file in self._files.items()}
        masked = {path: part for path, part in data.items() if part is not self._files[path].data}
        words = words_in(b"\n".join([*map(str.encode, data), *data.values()]))
        if values.meets(words) or any(self._files[path].mode == Mode.SYMLINK for path in masked):
            return None
        size = sum(len(file.data) for path, file in self._files.items() if path not in masked)
        return _Shared(masked, words, size, {})


class PackageSamples:
    """The packages that were made last, each for an upstream tree, as samples of the next ones."""

    def __init__(self) -> None:
        self._samples: dict[Oid, PackageSample] = {}

    def find(
        self, upstream: Oid, tree: Oid, values: Sequence[str], package_bytes: int, file_bytes: int
    ) -> FilledFiles | None:
        """Return the package of a tree if it is the sample but for its values, see `PackageSample.fill`."""
        sample = self._samples.get(upstream)
        return None if sample is None else sample.fill(tree, values, package_bytes, file_bytes)

    def add(self, upstream: Oid, files: Files, values: Sequence[str]) -> None:
        """Take a package for the sample of the next ones; edits of people are mostly in few."""
        self._samples[upstream] = PackageSample(files, values)


def _is_apart(own_values: OwnValues, values: Iterable[str]) -> bool:
    """Tell whether own values have no part in common with each other, nor with other values."""
    parts = Counter(part for value in {*values} for part in re.split("[./]", value))
    return all(parts[part] == 1 for value in own_values.values for part in value.decode().split("."))
