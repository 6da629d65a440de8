"""A resource in a pipeline: functions change its value, and its text is updated with few edits."""

import functools
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.krm.values import copy_value, differences, mapping_at
from reconciler.krm.yaml import Edit, Tree, apply_edits, edit_tree, edited, emit
from reconciler.names.ids import group_of

LOCAL_CONFIG: Final = "config.kubernetes.io/local-config"


class Resource(Struct, eq=False):  # not frozen: functions change resources in place, each in its own copy
    """One object of a package. Functions change `value`; `text` is computed from it when read."""

    value: dict[str, Any]
    path: str = ""
    """Its file, from the root package."""
    package: str = ""
    """Directory of its package; empty for the root."""
    index: int | None = None
    """Position in the file; None for the end."""
    part: int | None = None
    """Number of the document that it was read from; None for a new resource."""
    source: str = ""
    """File that it was read from."""
    written: str = ""
    """Text of the value `held`."""
    held: dict[str, Any] = field(default_factory=dict)
    nodes: Tree | None = None

    @property
    def api_version(self) -> str:
        """The apiVersion, "" where it is no string."""
        return _text(self.value.get("apiVersion"))

    @property
    def group(self) -> str:
        """The API group, "" for the core group."""
        return group_of(self.api_version)

    @property
    def kind(self) -> str:
        """The kind, "" where it is no string."""
        return _text(self.value.get("kind"))

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata; a new empty mapping where there are none."""
        return mapping_at(self.value, "metadata")

    @property
    def name(self) -> str:
        """metadata.name, "" where it is no string."""
        return _text(self.metadata.get("name"))

    @property
    def namespace(self) -> str:
        """metadata.namespace, "" where it is no string."""
        return _text(self.metadata.get("namespace"))

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Group, kind, namespace and name."""
        return self.group, self.kind, self.namespace, self.name

    @property
    def annotations(self) -> dict[str, Any]:
        """The annotations; a new empty mapping where there are none."""
        return mapping_at(self.value, "metadata", "annotations")

    @property
    def is_local_config(self) -> bool:
        """Whether the resource is local config, by the rule of the Go SDK."""
        return self.annotations.get(LOCAL_CONFIG, "") not in ("", "false", False)

    @property
    def file(self) -> str:
        """The path from the directory of its package."""
        return self.path[len(self.package) + 1 :] if self.package else self.path

    @property
    def text(self) -> str:
        """The document's text with the changes of functions; every other byte is kept.

        Raises:
            YamlError: A function left a value that YAML cannot hold.
        """
        if not self.written:
            self.written, self.held = emit(self.value) + "\n", copy_value(self.value)
            return self.written
        edits = tuple(differences(self.held, self.value))
        if edits:
            self._write(edits)
        return self.written

    @property
    def tree(self) -> Tree:
        """The nodes of the text, parsed on first use.

        Raises:
            YamlError: As `text`.
        """
        text = self.text
        if self.nodes is None or self.nodes.text != text:
            self.nodes = Tree.parse(text)
        return self.nodes

    def edit(self, edits: Iterable[Edit]) -> None:
        """Change the text, comments included, and the value with it.

        Raises:
            YamlError: As `apply_edits`.
        """
        _ = self.text
        todo = tuple(edits)
        self.value = functools.reduce(edited, todo, self.value)
        self._write(todo)

    def _write(self, edits: tuple[Edit, ...]) -> None:
        """Update the text by edits that lead to the current value."""
        # Parsing is most of the cost of an edit: nodes of the same text are used again.
        if self.nodes is not None and self.nodes.text == self.written:
            self.written = edit_tree(self.nodes, edits).text
        else:
            self.written = apply_edits(self.written, edits).text
        self.held, self.nodes = copy_value(self.value), None

    def copy(self) -> "Resource":
        """Return a copy of the resource with its own value."""
        return replace(self, value=copy_value(self.value))

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where} in {self.path}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
