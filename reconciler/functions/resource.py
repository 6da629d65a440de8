"""A resource on its way through a pipeline: a value that functions change, and the text that follows it."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.functions.differences import copy_value, differences
from reconciler.ids import group_of
from reconciler.krm.yaml import Edit, Tree, apply_edits, edit_tree, edited, emit

LOCAL_CONFIG: Final = "config.kubernetes.io/local-config"


@dataclass(slots=True, eq=False)  # not frozen: functions change resources in place, each in its own copy
class Resource:
    """One object of a package. Functions change `value`; the text is brought up to date when it is needed.

    `path` is its file, from the root of what is rendered; `package` the directory of the package
    that owns it, "" for the root; `index` its place in that file, None for the end. `part` is the
    number of the document that it was read from, None for a new one.
    """

    value: dict[str, Any]
    path: str = ""
    package: str = ""
    index: int | None = None
    part: int | None = None
    source: str = ""
    written: str = ""
    held: dict[str, Any] = field(default_factory=dict)
    nodes: Tree | None = field(default=None, repr=False)

    @property
    def api_version(self) -> str:
        """The apiVersion, "" where it is no string."""
        found = self.value.get("apiVersion")
        return found if type(found) is str else ""

    @property
    def group(self) -> str:
        """The API group, "" for the core group."""
        return group_of(self.api_version)

    @property
    def kind(self) -> str:
        """The kind, "" where it is no string."""
        found = self.value.get("kind")
        return found if type(found) is str else ""

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata as they are; an empty mapping of its own where there are none."""
        found = self.value.get("metadata")
        return found if isinstance(found, dict) else {}

    @property
    def name(self) -> str:
        """metadata.name, "" where it is no string."""
        return _text(self.metadata.get("name"))

    @property
    def namespace(self) -> str:
        """metadata.namespace, "" where it is no string."""
        return _text(self.metadata.get("namespace"))

    @property
    def annotations(self) -> dict[str, Any]:
        """The annotations as they are; an empty mapping of its own where there are none."""
        found = self.metadata.get("annotations")
        return found if isinstance(found, dict) else {}

    @property
    def is_local_config(self) -> bool:
        """Whether the resource is for tools alone, as the Go SDK judges it."""
        return self.annotations.get(LOCAL_CONFIG, "") not in ("", "false", False)

    @property
    def file(self) -> str:
        """The file, from the directory of its package."""
        return self.path[len(self.package) + 1 :] if self.package else self.path

    @property
    def text(self) -> str:
        """The document's text with everything that functions changed, and every other byte as it was.

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
        """The nodes of the text, parsed when they are needed.

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
        """Make edits that lead to the value, so that text and value say the same."""
        known = self.nodes is not None and self.nodes.text == self.written
        if known and self.nodes is not None:
            self.written = edit_tree(self.nodes, edits).text
        else:
            self.written = apply_edits(self.written, edits).text
        self.held, self.nodes = copy_value(self.value), None

    def copy(self) -> "Resource":
        """Return the same resource with a value of its own."""
        return Resource(
            copy_value(self.value),
            self.path,
            self.package,
            self.index,
            self.part,
            self.source,
            self.written,
            self.held,
            self.nodes,
        )

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where} in {self.path}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
