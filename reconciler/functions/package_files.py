"""Between the files of a package and the resources in them, so that what did not change keeps its bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.api.kptfile import KPTFILE
from reconciler.functions.differences import copy_value
from reconciler.functions.resource import Resource
from reconciler.functions.shelf import Shelf
from reconciler.krm.documents import DocumentKind, PackageDocument, PackageFile, split_file
from reconciler.krm.yaml import YamlError
from reconciler.objects import File, Files, Mode

Hidden = Callable[[Files], frozenset[str]]
"""Which paths of one package are not resources (`.krmignore`); the files are those of the package alone."""

_ENDINGS: Final = (".yaml", ".yml")
_SHELF: Final = Shelf()


@dataclass(frozen=True, slots=True)
class Contents:
    """The resources of a package and its sub-packages, by the directory of the package."""

    files: Files
    split: Mapping[str, PackageFile]
    resources: Mapping[str, list[Resource]]
    problems: tuple[tuple[str, YamlError], ...] = field(default=())

    @property
    def packages(self) -> tuple[str, ...]:
        """The directories of all packages, each before what holds it; the root is "" and last."""
        return tuple(sorted(self.resources, key=_depth_first))


def read_contents(files: Files, hidden: Hidden = lambda _: frozenset()) -> Contents:
    """Split the files of a package into resources. Total: what is not a resource stays as it is."""
    owned: dict[str, dict[str, File]] = {path: {} for path in _packages(files)}
    for path in sorted(files):
        owner = _owner(path, owned)
        owned[owner][path[len(owner) + 1 :] if owner else path] = files[path]
    split: dict[str, PackageFile] = {}
    resources: dict[str, list[Resource]] = {}
    problems: list[tuple[str, YamlError]] = []
    for package, own in owned.items():
        ignored = hidden(own)
        resources[package] = []
        for name, file in own.items():
            if name in ignored or not _holds_resources(name, file):
                continue
            path = f"{package}/{name}" if package else name
            split[path] = _SHELF.split(file, path)
            resources[package] += _resources(split[path], path, package)
            if (problem := split[path].problem) is not None:
                problems.append((path, problem))
    return Contents(files, split, resources, tuple(problems))


def write_contents(contents: Contents, resources: Iterable[Resource]) -> dict[str, File]:
    """Return the files with these resources in them, and no other; a file without any left is gone.

    Raises:
        YamlError: A value cannot be written.
    """
    files = dict(contents.files)
    staying: dict[str, dict[int, Resource]] = {}
    coming: dict[str, list[Resource]] = {}
    for resource in resources:
        if resource.part is not None and resource.path == resource.source:
            staying.setdefault(resource.path, {})[resource.part] = resource
        else:
            coming.setdefault(resource.path, []).append(resource)
    for path, file in contents.split.items():
        parts = list(_kept(file, staying.get(path, {}), joined=path in coming))
        _put(files, path, file.with_parts(parts))
    for path, added in coming.items():
        _put(files, path, _appended(split_file(files[path].data) if path in files else None, added))
    return files


def _put(files: dict[str, File], path: str, file: PackageFile) -> None:
    if not any(part.kind is not DocumentKind.EMPTY for part in file.parts):
        before = files.get(path)
        if before is None or any(
            part.kind is DocumentKind.KRM for part in split_file(before.data, path).parts
        ):
            files.pop(path, None)
        return
    data = file.data
    if path not in files or files[path].data != data:
        files[path] = File.of(data, files[path].mode if path in files else Mode.REGULAR)


def _kept(file: PackageFile, staying: Mapping[int, Resource], *, joined: bool) -> Iterator[PackageDocument]:
    """Yield the documents that stay, with their new text; the first one needs no `---` of a lost one."""
    lost = False
    first = True
    for number, part in enumerate(file.parts):
        if part.kind is DocumentKind.KRM and number not in staying:
            lost = True
            continue
        marker = "" if first and lost and not file.parts[0].marker else part.marker
        first = False
        if part.kind is DocumentKind.KRM:
            text = staying[number].text
            last = number == len(file.parts) - 1
            text = text if text.endswith("\n") or (last and not joined) else f"{text}\n"
            yield replace(part, marker=marker, text=text)
        else:
            yield replace(part, marker=marker)


def _appended(file: PackageFile | None, added: Iterable[Resource]) -> PackageFile:
    parts = [] if file is None else [part for part in file.parts if part.kind is not DocumentKind.EMPTY]
    for resource in sorted(added, key=lambda item: (item.index is None, item.index or 0)):
        if parts and not (parts[-1].marker + parts[-1].text).endswith("\n"):
            parts[-1] = replace(parts[-1], text=f"{parts[-1].text}\n")
        text = resource.text if resource.text.endswith("\n") else f"{resource.text}\n"
        parts.append(PackageDocument("---\n" if parts else "", text, DocumentKind.KRM, resource.value))
    return PackageFile(tuple(parts)) if file is None else file.with_parts(parts)


def _packages(files: Files) -> list[str]:
    found = {path.rpartition("/")[0] for path in files if path.rpartition("/")[2] == KPTFILE}
    return sorted(found | {""}, key=_depth_first)


def _depth_first(package: str) -> tuple[int, str]:
    return (-package.count("/") - 1 if package else 0, package)


def _owner(path: str, packages: Mapping[str, object]) -> str:
    directory = path
    while directory:
        directory = directory.rpartition("/")[0]
        if directory in packages:
            return directory
    return ""


def _holds_resources(path: str, file: File) -> bool:
    name = path.rpartition("/")[2]
    return file.mode != Mode.SYMLINK and (name == KPTFILE or name.endswith(_ENDINGS))


def _resources(file: PackageFile, path: str, package: str) -> Iterator[Resource]:
    index = 0
    for number, part in enumerate(file.parts):
        if part.kind is DocumentKind.KRM:
            value = copy_value(part.value)
            yield Resource(value, path, package, index, number, path, part.text, part.value, part.tree)
            index += 1
