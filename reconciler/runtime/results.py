"""What functions made of their inputs, kept on disk: the same code, configuration and input give the same.

Losing it costs time, nothing else. What is kept is found by a digest of everything that it depends on.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from reconciler.digest import checked, with_digest
from reconciler.functions.runtime import FunctionCall, FunctionRun
from reconciler.functions.wire import parse_results, result_value

_FORMAT: Final = 1
"""Raised when what is kept changes its meaning."""
MOST_BYTES: Final = 256 << 20


class ResultStore:
    """Bytes by the digest of the facts that they follow from; without a usable directory nothing is kept."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._has_grown = False

    def find(self, facts: Any) -> bytes | None:
        """Return what is kept for these facts, None if that is nothing or is damaged."""
        if self._directory is None:
            return None
        with suppress(OSError):
            return checked(self._path(self._directory, facts).read_bytes())
        return None

    def keep(self, facts: Any, data: bytes) -> None:
        """Keep bytes for these facts, whole or not at all."""
        if self._directory is None:
            return
        with suppress(OSError):
            self._directory.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._directory)
            with os.fdopen(handle, "wb") as file:
                file.write(with_digest(data))
            Path(name).replace(self._path(self._directory, facts))
            self._has_grown = True

    def prune(self, most_bytes: int = MOST_BYTES) -> None:
        """Forget the oldest results, if some were kept since and all of them take more than that."""
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
    def _path(directory: Path, facts: Any) -> Path:
        return directory / hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()


class ResultCache:
    """Successful runs of pinned images."""

    def __init__(self, directory: Path | None) -> None:
        self._store = ResultStore(directory)

    def find(self, image: str, call: FunctionCall) -> FunctionRun | None:
        """Return what the image made of this input before, None if that is not known."""
        data = self._store.find(_facts(image, call))
        with suppress(ValueError, KeyError, TypeError):
            value = orjson.loads(data or b"")
            return FunctionRun(value["items"], parse_results(value["results"]), 0, value["stderr"])
        return None

    def keep(self, image: str, call: FunctionCall, run: FunctionRun) -> None:
        """Keep a run that succeeded."""
        if run.items is None or run.exit_code or run.error:
            return
        value = {
            "items": list(run.items),
            "results": [result_value(each) for each in run.results],
            "stderr": run.stderr,
        }
        self._store.keep(_facts(image, call), orjson.dumps(value))


def _facts(image: str, call: FunctionCall) -> list[Any]:
    return [_FORMAT, image, call.config, list(call.items)]
