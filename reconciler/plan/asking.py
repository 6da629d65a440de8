"""What people ask for on the dashboard: what they rejected, proposed once more. Pure."""

import hashlib
import re

from reconciler.ids import Oid, PackageKey

_DIGITS = 16
_BOX = re.compile(r"^- \[(?P<mark>[ xX])\] <!-- reconciler:ask (?P<key>[0-9a-f]{16}) -->", re.MULTILINE)


def dashboard_key(instance: str) -> str:
    """Return the name that finds the dashboard of an instance again."""
    return f"dashboard/{instance}"


def ask_key(package: PackageKey, tree: Oid | None) -> str:
    """Return what stands for exactly this content of a package, which is what a person rejects (D14)."""
    return hashlib.sha256("\0".join((*package, tree or "")).encode()).hexdigest()[:_DIGITS]


def ask_box(key: str) -> str:
    """Return an empty checkbox that asks for `key`, as Markdown."""
    return f"- [ ] <!-- reconciler:ask {key} -->"


def asked_keys(text: str) -> frozenset[str]:
    """Return what somebody ticked in a dashboard. Total: text that is no box asks for nothing."""
    lines = text.replace("\r\n", "\n")
    return frozenset(match["key"] for match in _BOX.finditer(lines) if match["mark"] != " ")
