"""Results of functions and pipelines, cached on disk by a digest of everything that they depend on."""

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
from msgspec.structs import replace

from reconciler.functions.protocol import FunctionCall, FunctionRun
from reconciler.functions.step import PipelineResult
from reconciler.names.objects import File, Files, Mode, tree_id
from reconciler.policy import FunctionPolicy, Limits

_DIGEST_BYTES = 32


def with_digest(data: bytes) -> bytes:
    """Return bytes behind their SHA-256 digest."""
    return hashlib.sha256(data).digest() + data


def checked(stored: bytes) -> bytes | None:
    """Return the bytes behind a digest, None if they are not those that it was made of."""
    data = stored[_DIGEST_BYTES:]
    return data if hashlib.sha256(data).digest() == stored[:_DIGEST_BYTES] else None


_FORMAT: Final = 3
"""Incremented when the meaning of cached bytes changes."""
MOST_BYTES: Final = 256 << 20
_SLOW: Final = "slow"
_LIBRARIES: Final = (
    "google-re2",
    "helm-python-sdk",
    "jsonschema-rs",
    "kubernetes-validate",
    "pyyaml",
    "starlark-pyo3",
)
_ROOT: Final = Path(__file__).resolve().parents[2]
_CODE: Final = ("api", "functions", "krm", "names", "render")
"""The folders with the code on which results depend."""


class ResultStore:
    """Files named by the digest of their keys; without a usable directory nothing is kept."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._has_grown = False

    def find(self, key: Any) -> bytes | None:
        """Return the bytes of a key, None if there are none or if they are damaged."""
        if self._directory is None:
            return None
        with suppress(OSError):
            return checked(self._path(self._directory, key).read_bytes())
        return None

    def keep(self, key: Any, data: bytes) -> None:
        """Write the bytes of a key atomically."""
        if self._directory is None:
            return
        with suppress(OSError):
            self._directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._directory.mkdir(mode=0o700, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._directory)
            with os.fdopen(handle, "wb") as file:
                file.write(with_digest(data))
            Path(name).replace(self._path(self._directory, key))
            self._has_grown = True

    def prune(self, most_bytes: int = MOST_BYTES) -> None:
        """Remove the oldest results beyond `most_bytes`, if any were added since."""
        if self._directory is None or not self._has_grown:
            return
        with suppress(OSError):
            entries = sorted(os.scandir(self._directory), key=lambda e: e.stat().st_mtime_ns, reverse=True)
            size = 0
            for entry in entries:
                size += entry.stat().st_size
                if size > most_bytes:
                    Path(entry.path).unlink()

    @staticmethod
    def _path(directory: Path, key: Any) -> Path:
        return directory / hashlib.sha256(orjson.dumps(key, option=orjson.OPT_SORT_KEYS)).hexdigest()


class ImageCache:
    """Results of pinned images that succeeded, by image, configuration and input."""

    def __init__(self, directory: Path | None) -> None:
        self._store = ResultStore(directory)

    def find(self, image: str, call: FunctionCall) -> FunctionRun | None:
        """Return the result of an image for this input, None if it is not cached."""
        data = self._store.find(_image_key(image, call))
        with suppress(ValueError, msgspec.MsgspecError):
            return None if data is None else msgspec.json.decode(data, type=FunctionRun)
        return None

    def keep(self, image: str, call: FunctionCall, run: FunctionRun) -> None:
        """Cache a run that succeeded."""
        if run.items is not None and not run.exit_code and not run.error:
            self._store.keep(_image_key(image, call), msgspec.json.encode(run))


class PackageCache:
    """Results of pipelines that succeeded, or failed in a builtin, by package, code and policy.

    The tree of a package holds its functions, their configuration and their input. A policy with mapped
    executables or network access is not cached: an executable may change behind its path, and a server
    may reply differently.
    """

    def __init__(
        self,
        directory: Path | None,
        policy: FunctionPolicy,
        definitions: Sequence[Mapping[str, Any]] = (),
        limits: Limits = Limits(),  # noqa: B008 - a frozen value
    ) -> None:
        repeatable = not policy.exec and not policy.network
        self._store = ResultStore(directory if repeatable else None)
        self._policy = [
            policy.claim_floating,
            policy.compatible,
            policy.starlark_steps,
            sorted(policy.images.items()),
            policy.runtime,
            list(policy.engine_arguments),
            [limits.package_files, limits.package_bytes, limits.package_file_bytes, limits.yaml_documents],
            hashlib.sha256(orjson.dumps(list(definitions), option=orjson.OPT_SORT_KEYS)).hexdigest(),
        ]

    def find(self, files: Files) -> PipelineResult | None:
        """Return the result of a package's pipeline, None if it is not cached."""
        data = self._store.find(self._key(files))
        with suppress(ValueError, msgspec.MsgspecError):
            return None if data is None else _decode(data, files)
        return None

    def keep(self, files: Files, result: PipelineResult) -> None:
        """Cache a pipeline that ran, unless it may succeed another time."""
        if (result.ok or result.repeats) and result.steps:
            self._store.keep(self._key(files), _encode(result, files))

    def is_slow(self, files: Files) -> bool:
        """Tell whether the last run that rendered a package had no time to end it."""
        return self._store.find([*self._key(files), _SLOW]) is not None

    def keep_slow(self, files: Files) -> None:
        """Remember that there was no time to render a package."""
        self._store.keep([*self._key(files), _SLOW], b"")

    def prune(self, most_bytes: int = MOST_BYTES) -> None:
        """Remove the oldest results beyond `most_bytes`, if any were added since."""
        self._store.prune(most_bytes)

    def _key(self, files: Files) -> list[Any]:
        return [_FORMAT, _code_digest(), tree_id(files), *self._policy]


def changed_files(before: Files, after: Files) -> dict[str, File]:
    """Return the files of `after` that are new or differ from `before`."""
    return {path: file for path, file in after.items() if before.get(path) != file}


@cache
def _code_digest() -> str:

    digest = hashlib.sha256()
    for folder in _CODE:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            digest.update(f"{name} {version(name)}".encode())
    return digest.hexdigest()


def _image_key(image: str, call: FunctionCall) -> list[Any]:
    return [_FORMAT, image, call.config, list(call.items)]


class _Head(msgspec.Struct, frozen=True):
    """A result without its files, and where their bytes are behind it: path, mode and size of each."""

    result: PipelineResult
    removed: list[str]
    changed: list[tuple[str, Mode, int]]


def _encode(result: PipelineResult, before: Files) -> bytes:
    changed = changed_files(before, result.files)
    head = _Head(
        replace(result, files={}, partial=None),
        sorted(before.keys() - result.files.keys()),
        [(path, file.mode, len(file.data)) for path, file in changed.items()],
    )
    return b"\n".join([msgspec.json.encode(head), b"".join(file.data for file in changed.values())])


def _decode(data: bytes, before: Files) -> PipelineResult:
    line, _, body = data.partition(b"\n")
    head = msgspec.json.decode(line, type=_Head)
    files = {path: file for path, file in before.items() if path not in head.removed}
    start = 0
    for path, mode, size in head.changed:
        if start + size > len(body):
            raise ValueError(path)
        files[path] = File.of(body[start : start + size], mode)
        start += size
    return replace(head.result, files=files)
