"""Which resource a document is: by group, kind and name, as kpt's merge comment may fix it."""

import re
from typing import Any, NamedTuple

from reconciler.ids import group_of

MERGE_COMMENT = re.compile(r"#\s*kpt-merge:\s*(?P<namespace>[^/\s]*)/(?P<name>\S+)\s*\Z")
"""`# kpt-merge: NAMESPACE/NAME` beside `metadata:`: the name that the resource has upstream."""


class Identity(NamedTuple):
    """A resource regardless of its version and of the file that it stands in."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return " ".join(part for part in (self.kind, where) if part) or "document"


def identity_of(value: Any, comment: str | None = None) -> Identity:
    """Return the identity of a document by its value and the line comment beside its metadata.

    Total: what is no resource has an identity of empty strings.

    Source: kpt internal/util/merge/merge3.go, ResourceMergeMatcher.
    """
    if not isinstance(value, dict):
        return Identity("", "", "", "")
    metadata = value.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    namespace, name = _text(fields.get("namespace")), _text(fields.get("name"))
    if comment and (found := MERGE_COMMENT.match(comment)):
        namespace, name = found["namespace"], found["name"]
    return Identity(group_of(_text(value.get("apiVersion"))), _text(value.get("kind")), namespace, name)


def _text(value: Any) -> str:
    return "" if value is None else str(value)
