"""Standard output and error behind the redactor: what any code, thread or traceback prints is masked."""

import os
import sys
from typing import Any, TextIO

from reconciler.report.redact import Redactor


class RedactedStream:
    """A text stream that masks every line before it leaves; an unfinished line leaves when it is flushed."""

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream = stream
        self._redactor = redactor
        self._pending = ""

    def write(self, text: str) -> int:
        """Write text; whole lines leave at once."""
        lines, newline, self._pending = (self._pending + text).rpartition("\n")
        if newline:
            self._stream.write(self._redactor.text(lines) + newline)
        return len(text)

    def flush(self) -> None:
        """Let everything leave that was written."""
        if self._pending:
            self._stream.write(self._redactor.text(self._pending))
            self._pending = ""
        self._stream.flush()

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def redact_standard_streams() -> None:
    """Put the redactor before both standard streams of this process."""
    redactor = Redactor.of_environment(os.environ)
    sys.stdout = RedactedStream(sys.stdout, redactor)
    sys.stderr = RedactedStream(sys.stderr, redactor)
