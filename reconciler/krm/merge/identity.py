"""Which resource a document is: by group, kind and name, as kpt's merge comment may fix it."""

import re
from typing import NamedTuple

from reconciler.ids import group_of
from reconciler.krm.merge.view import Node

MERGE_COMMENT = re.compile(r"#\s*kpt-merge:\s*(?P<namespace>[^/\s]*)/(?P<name>\S*)\s*\Z")
"""`# kpt-merge: NAMESPACE/NAME` beside `metadata:`: the name that the resource has upstream."""

UPSTREAM_IDENTIFIER = "internal.kpt.dev/upstream-identifier"
"""kpt's annotation `GROUP|KIND|NAMESPACE|NAME`; functions read it, a merge does not."""


class Identity(NamedTuple):
    """A resource regardless of its version and of the file that it stands in."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return " ".join(part for part in (self.kind, where) if part) or "document"


def has_merge_comment(comment: str) -> bool:
    """Tell whether the line comment beside `metadata:` fixes a resource's identity."""
    return MERGE_COMMENT.match(comment) is not None


def identity_of(root: Node | None, comment: str = "") -> Identity:
    """Return the identity of a document by its root and the line comment beside its metadata.

    Names are taken as written: `name: n` is `n`, as in Kubernetes, though YAML 1.1 reads a boolean.

    Total: what is no resource has an identity of empty strings.

    Source: kpt internal/util/merge/merge3.go, ResourceMergeMatcher.
    """
    metadata = _child(root, "metadata")
    namespace, name = _text(_child(metadata, "namespace")), _text(_child(metadata, "name"))
    if found := MERGE_COMMENT.match(comment):
        namespace, name = found["namespace"], found["name"]
    return Identity(group_of(_text(_child(root, "apiVersion"))), _text(_child(root, "kind")), namespace, name)


def _child(node: Node | None, name: str) -> Node | None:
    field = node.fields.get(name) if node is not None and node.is_mapping else None
    return field.value if field is not None else None


def _text(node: Node | None) -> str:
    return node.text if node is not None and node.is_scalar and not node.is_null else ""
