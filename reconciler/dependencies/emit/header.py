"""Checksum header of generated files: it shows whether a person edited the file."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from reconciler.krm.yaml import emit

OWNER = "reconciler.dev/owner"


NEEDED_BY = "reconciler.dev/needed-by"


_DIGITS = 16


_HEADER = re.compile(rb"# Generated for [^\n]*\(([0-9a-f]{16})\)\n")


_ADVICE = "Edits stay and are asked about; remove this line to make it yours"


def add_checksum_header(document: Mapping[str, Any], *, reason: str) -> bytes:
    """Return a document as a file with a header: its reason and the checksum of the rest. Deterministic.

    `reason` is one line. The checksum guards against accidents, not against forgery.
    """
    body = f"{emit(document)}\n".encode()
    return f"# Generated for {reason}. {_ADVICE} ({_digest(body)})\n".encode() + body


def is_unmodified(data: bytes) -> bool:
    """Tell whether a file is as it was generated."""
    header = _HEADER.match(data)
    return header is not None and header[1].decode() == _digest(data[header.end() :])


def has_header(data: bytes) -> bool:
    """Tell whether a file still has the header of generated files."""
    return _HEADER.match(data) is not None


def is_generated_by(document: Mapping[str, Any], instance: str) -> bool:
    """Tell whether the owner annotation of a manifest names this instance."""
    return _note(document, OWNER).startswith(f"{instance}/")


def needed_by(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the packages that need a generated manifest, as its annotation lists them."""
    return frozenset(name for name in _note(document, NEEDED_BY).split(", ") if name)


def _note(document: Mapping[str, Any], name: str) -> str:
    metadata = document.get("metadata")
    notes = metadata.get("annotations") if isinstance(metadata, Mapping) else document.get("custom")
    return str(notes.get(name) or "") if isinstance(notes, Mapping) else ""


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:_DIGITS]
