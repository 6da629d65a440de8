"""The resources of a package: read from its files, changed by functions, written back with few edits."""

import functools
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.functions.patterns import ignore_spec
from reconciler.krm.documents import DocumentKind, PackageDocument, PackageFile, split_file
from reconciler.krm.merge.text import TextFormat
from reconciler.krm.values import copy_value, differences, mapping_at
from reconciler.krm.yaml import Edit, Tree, apply_edits, edit_tree, edited, emit, end_line
from reconciler.names.ids import group_of
from reconciler.names.objects import File, Files, Mode

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

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


IGNORE_FILE: Final = ".krmignore"
_KEPT_BYTES: Final = 1 << 20
INPUT: Final = ".input"
"""The end of the name of a file downstream that runs alone read, as `chart.yaml.input`; no agent does."""
RESOURCE_ENDINGS: Final = (".yaml", ".yml", f".yaml{INPUT}", f".yml{INPUT}")
"""The ends of the names of files with resources."""


def package_directories(files: Iterable[str]) -> set[str]:
    """Return the directories with a Kptfile, and the root "" with or without one."""
    return {path.rpartition("/")[0] for path in files if path.rpartition("/")[2] == KPTFILE} | {""}


def package_of(path: str, packages: Container[str]) -> str:
    """Return the directory of the innermost package that has a file in it or below it."""
    directory = path.rpartition("/")[0]
    while directory and directory not in packages:
        directory = directory.rpartition("/")[0]
    return directory


def ignored_paths(files: Files) -> frozenset[str]:
    """Return the paths that the `.krmignore` of one package hides; `files` has no files of sub-packages."""
    ignore = files.get(IGNORE_FILE)
    if ignore is None:
        return frozenset()
    spec = ignore_spec(ignore.data)
    if spec is None:
        return frozenset()  # `check_kptfiles` refuses the package
    return frozenset(path for path in files if path != IGNORE_FILE and _is_ignored(path, spec))


def _is_ignored(path: str, spec: "GitIgnoreSpec") -> bool:
    """Return whether Git would ignore a path: nothing below an ignored directory can be included again."""
    steps = accumulate(path.split("/"), "{}/{}".format)
    return any(spec.match_file(step if step == path else f"{step}/") for step in steps)


class PackageResources(Struct, frozen=True):
    """The resources of a package and its sub-packages, by the directory of the package."""

    files: Files
    split: Mapping[str, PackageFile]
    resources: Mapping[str, list[Resource]]

    def packages(self, *, parents_first: bool = False) -> list[str]:
        """Return the directories of all packages, sub-packages before their parents; the root is "".

        With `parents_first` level by level from the root, by name in each level.
        """
        return sorted(self.resources, key=self._level if parents_first else _depth_first)

    def _level(self, package: str) -> tuple[int, list[str]]:
        above = sum(f"{package}/".startswith(f"{other}/") for other in self.resources if other)
        return (above, package.split("/"))

    @property
    def lasting_paths(self) -> set[str]:
        """The files that stay if all of their resources go: they hold something else, too."""
        krm = {
            path
            for path, file in self.split.items()
            if {doc.kind for doc in file.documents if doc.kind is not DocumentKind.EMPTY}
            == {DocumentKind.KRM}
        }
        return self.files.keys() - krm

    def asks(self, annotation: str) -> bool:
        """Whether the root Kptfile has an annotation with the value `true`.

        Source: kpt pkg/lib/kptops/render_executor.go, Execute.
        """
        kptfile = next((resource for resource in self.resources[""] if resource.path == KPTFILE), None)
        return kptfile is not None and str(kptfile.annotations.get(annotation)).lower() == "true"


def read_resources(files: Files) -> PackageResources:
    """Split the files of a package into resources. Total: text that is no resource is kept as text."""
    directories = sorted(package_directories(files), key=_depth_first)
    own_files: dict[str, dict[str, File]] = {directory: {} for directory in directories}
    for path in sorted(files):
        package = package_of(path, own_files)
        own_files[package][path[len(package) + 1 :] if package else path] = files[path]
    split: dict[str, PackageFile] = {}
    resources: dict[str, list[Resource]] = {}
    for package, package_files in own_files.items():
        ignored = ignored_paths(package_files)
        resources[package] = []
        for name, file in package_files.items():
            if name in ignored or not _holds_resources(name, file):
                continue
            path = f"{package}/{name}" if package else name
            split[path] = SPLIT_FILES.find(file.data, path)
            resources[package] += _resources(split[path], path, package)
    return PackageResources(files, split, resources)


class _SplitFiles:
    """The files that were split last, of `_KEPT_BYTES` to twice as many; nothing changes their documents.

    Packages of one chart have the same templates and definitions.
    """

    def __init__(self) -> None:
        self._young: dict[tuple[bytes, str], PackageFile] = {}
        self._old: dict[tuple[bytes, str], PackageFile] = {}
        self._bytes = 0

    def find(self, data: bytes, path: str) -> PackageFile:
        key = (data, path)
        if key not in self._young:
            if self._bytes + len(data) > _KEPT_BYTES:
                self._old, self._young, self._bytes = self._young, {}, 0
            self._young[key] = self._old.get(key) or split_file(data, path)
            self._bytes += len(data)
        return self._young[key]

    def clear(self) -> None:
        """Free all files: parsed documents take many times the memory of their text."""
        self._old, self._young, self._bytes = {}, {}, 0


SPLIT_FILES: Final = _SplitFiles()


def other_documents(files: Files) -> Iterator[tuple[str, str]]:
    """Yield path and reason of each YAML document that is no resource, so that no function sees it."""
    for path, split in read_resources(files).split.items():
        if split.problem is not None:
            yield path, f"it is no YAML: {split.problem}"
        for document in split.documents:
            if document.kind is DocumentKind.DATA:
                yield path, f"it has no {_missing_field(document.value)}"


def _missing_field(value: object) -> str:
    fields = value if isinstance(value, dict) else {}
    return next((name for name in ("apiVersion", "kind") if not fields.get(name)), "metadata.name")


def write_resources(package: PackageResources, resources: Iterable[Resource]) -> dict[str, File]:
    """Return the files with these resources and no others; a file that loses its last resource is deleted.

    Raises:
        YamlError: A value cannot be written.
    """
    files = dict(package.files)
    staying: dict[str, dict[int, Resource]] = {}
    coming: dict[str, list[Resource]] = {}
    for resource in resources:
        if resource.part is not None and resource.path == resource.source:
            staying.setdefault(resource.path, {})[resource.part] = resource
        else:
            coming.setdefault(resource.path, []).append(resource)
    for path, file in package.split.items():
        documents = list(_remaining(file, staying.get(path, {}), joined=path in coming))
        _put(files, path, file.with_documents(documents))
    for path, added in coming.items():
        _put(files, path, _appended(split_file(files[path].data) if path in files else None, added))
    return files


def _put(files: dict[str, File], path: str, file: PackageFile) -> None:
    if not any(doc.kind is not DocumentKind.EMPTY for doc in file.documents):
        before = files.get(path)
        if before is None or any(
            doc.kind is DocumentKind.KRM for doc in split_file(before.data, path).documents
        ):
            files.pop(path, None)
        return
    data = file.data
    if path not in files or files[path].data != data:
        files[path] = File.of(data, files[path].mode if path in files else Mode.REGULAR)


def _remaining(
    file: PackageFile, staying: Mapping[int, Resource], *, joined: bool
) -> Iterator[PackageDocument]:
    """Yield the remaining documents with their new text; the new first one drops the `---` before it."""
    line_break = _format(file.documents).line_break
    removed = False
    first = True
    for number, doc in enumerate(file.documents):
        if doc.kind is DocumentKind.KRM and number not in staying:
            removed = True
            continue
        marker = "" if first and removed and not file.documents[0].marker else doc.marker
        first = False
        if doc.kind is DocumentKind.KRM:
            text = staying[number].text
            last = number == len(file.documents) - 1
            yield replace(
                doc, marker=marker, text=text if last and not joined else end_line(text, line_break)
            )
        else:
            yield replace(doc, marker=marker)


def _format(documents: Iterable[PackageDocument]) -> TextFormat:
    return TextFormat.split("".join(doc.marker + doc.text for doc in documents))[0]


def _appended(file: PackageFile | None, added: Iterable[Resource]) -> PackageFile:
    """Return a file with more resources at its end, in its line breaks; documents without any text go."""
    old = file.documents if file is not None else ()
    documents = [doc for doc in old if doc.kind is not DocumentKind.EMPTY or doc.text.strip()]
    form = _format(documents)
    for resource in sorted(added, key=lambda item: (item.index is None, item.index or 0)):
        marker = ""
        if documents:
            marker = form.joined("---\n")
            *others, last = documents
            documents = [*others, replace(last, text=end_line(last.text, form.line_break))]
        text = form.joined(end_line(TextFormat.split(resource.text)[1]))
        documents.append(PackageDocument(marker, text, DocumentKind.KRM, resource.value))
    return PackageFile(tuple(documents)) if file is None else file.with_documents(documents)


def _depth_first(package: str) -> tuple[int, str]:
    return (-package.count("/") - 1 if package else 0, package)


def _holds_resources(path: str, file: File) -> bool:
    name = path.rpartition("/")[2]
    return file.mode != Mode.SYMLINK and (name == KPTFILE or name.endswith(RESOURCE_ENDINGS))


def _resources(file: PackageFile, path: str, package: str) -> Iterator[Resource]:
    index = 0
    for number, doc in enumerate(file.documents):
        if doc.kind is DocumentKind.KRM:
            value = copy_value(doc.value)
            yield Resource(value, path, package, index, number, path, doc.text, doc.value, doc.tree)
            # The index counts the resources of the file alone.
            index += 1
