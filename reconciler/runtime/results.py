"""What pinned images made of their inputs, kept: the same image, configuration and input give the same."""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from reconciler.functions.runtime import FunctionCall, FunctionRun
from reconciler.functions.wire import parse_results, result_value

_FORMAT: Final = 1
"""Raised when what is kept changes its meaning."""


class ResultCache:
    """Successful runs by a digest of everything that they depend on; losing it costs time, nothing else."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def find(self, image: str, call: FunctionCall) -> FunctionRun | None:
        """Return what the image made of this input before, None if that is not known."""
        if self._directory is None:
            return None
        with suppress(OSError, ValueError, KeyError):
            value = orjson.loads(self._path(self._directory, image, call).read_bytes())
            return FunctionRun(value["items"], parse_results(value["results"]), 0, value["stderr"])
        return None

    def keep(self, image: str, call: FunctionCall, run: FunctionRun) -> None:
        """Keep a run that succeeded; a cache that cannot be written is none."""
        if self._directory is None or run.items is None or run.exit_code or run.error:
            return
        value = {
            "items": list(run.items),
            "results": [result_value(each) for each in run.results],
            "stderr": run.stderr,
        }
        with suppress(OSError):
            self._directory.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._directory)
            with os.fdopen(handle, "wb") as file:
                file.write(orjson.dumps(value))
            Path(name).replace(self._path(self._directory, image, call))

    @staticmethod
    def _path(directory: Path, image: str, call: FunctionCall) -> Path:
        facts = [_FORMAT, image, call.config, list(call.items)]
        return directory / hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()
