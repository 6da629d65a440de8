"""The folders of the package index in the control repository: every document, read but not understood."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.dependencies.catalog.published import read_package_version
from reconciler.dependencies.dialects import ParsedManifest
from reconciler.errors import Location, Problem
from reconciler.git.trees import PackageRefusedError
from reconciler.ids import Oid
from reconciler.inventory import FoundDocument, Source
from reconciler.policy import Limits
from reconciler.read.documents import parse_file, yaml_limits
from reconciler.read.files import FoundFile, Objects, Walk
from reconciler.reasons import Reason

DIRECTORY = "index"
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class IndexFolders:
    """The documents of the index, sorted by place, and the files that are not YAML."""

    documents: tuple[FoundDocument, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_index_folders(objects: Objects, commit: Oid, limits: Limits) -> IndexFolders:
    """Return what stands below `index/` at a commit; nothing where there is no such directory.

    Isolated: a file that cannot be read is a problem, the others are read.

    Raises:
        UnavailableError: The control repository cannot be read.
    """
    tree = objects.subtree(commit, DIRECTORY)
    if tree is None:
        return IndexFolders()
    walked = Walk(SUFFIXES).below(objects, tree, DIRECTORY)
    files = sorted(file for file in walked if isinstance(file, FoundFile))
    objects.ensure(file.oid for file in files)
    contents: dict[str, bytes] = {}
    problems = []
    for file in files:
        try:
            contents[file.path] = objects.blob(file.oid, limits.manifest_bytes)
        except PackageRefusedError as error:
            message = f"The file of the index was not read: {error.why}"
            problems.append(Problem(Location(file.path), Reason.MANIFEST_UNREADABLE, message))
    return _parsed(contents, limits, problems)


def read_index_directory(root: Path, limits: Limits) -> IndexFolders:
    """Return what stands below `index/` of a working copy, committed or not."""
    found = (path for path in sorted((root / DIRECTORY).rglob("*")) if path.suffix in SUFFIXES)
    contents = {path.relative_to(root).as_posix(): path.read_bytes() for path in found if path.is_file()}
    return _parsed(contents, limits, ())


def parse_version(files: Mapping[str, bytes]) -> ParsedManifest:
    """Return what the files of one version's folder mean together, by path. Total."""
    folders = _parsed(files, Limits(), ())
    reading = read_package_version((one.value, one.source) for one in folders.documents)
    return replace(reading, problems=(*folders.problems, *reading.problems))


def _parsed(contents: Mapping[str, bytes], limits: Limits, problems: Iterable[Problem]) -> IndexFolders:
    documents: list[FoundDocument] = []
    wrong = list(problems)
    for path, data in contents.items():
        content = parse_file(path, data, yaml_limits(limits))
        wrong += (broken.problem for broken in content.broken)
        for value, place in content.objects:
            if isinstance(value, Mapping):
                documents.append(FoundDocument(value, Source(place.location, marks=place)))
            else:
                wrong.append(_no_object(place.location))
    return IndexFolders(tuple(sorted(documents, key=_place)), tuple(sorted(wrong)))


def _no_object(location: Location) -> Problem:
    return Problem(location, Reason.INVALID_MANIFEST, "A document of the index is a mapping")


def _place(document: FoundDocument) -> Location:
    return document.source.location
