"""The run of `validate`: check manifests by themselves, without any repository. Writes nothing."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.base.errors import ConfigurationError, Location
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.index import read_index
from reconciler.dependencies.dialects import read_manifest
from reconciler.expand import check_declared
from reconciler.functions.declared import check_functions
from reconciler.names.problems import Problem
from reconciler.policy import Policy
from reconciler.policy.rollouts import idle_approvals
from reconciler.read.configuration import FILE, KIND, parse_configuration
from reconciler.read.dependencies import parse_index
from reconciler.read.manifests import parse_manifests

_CONFIGURATION = regex(rb"^kind: *[\"']?%s\b" % KIND.encode(), re.MULTILINE)


class Validation(NamedTuple):
    """The result of a validation: what was checked, what is wrong, and what was left out."""

    files: int
    manifests: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def validate_files(
    files: Mapping[str, bytes],
    policy: Policy | None = None,
    index: Mapping[str, bytes] = MappingProxyType({}),
    absent: Iterable[Problem] = (),
) -> Validation:
    """Check every manifest of files by path, and every configuration. Pure, total.

    A file with the name of the configuration is one, whatever kind it has.

    Checked are YAML, fields, annotations, selectors, expressions, whether two manifests declare one object,
    and the files of the package `index`, version by version; with the `policy` of a configuration also
    whether the functions of manifests may run. Whether a repository, a revision or a target exists is for
    `check`, which reads them. `absent` are the problems of files that are not there.
    """
    functions = policy.functions if policy else None
    policy = policy or Policy()
    configurations = {
        path: data
        for path, data in files.items()
        if PurePosixPath(path).name == FILE or _CONFIGURATION.search(data)
    }
    others = {path: data for path, data in files.items() if path not in configurations}
    read = parse_manifests(others, policy)
    problems = {*read.problems, *check_declared(read.variants, read.sets, policy.limits)}
    problems |= {*check_functions(read.variants, read.sets, functions)} if functions else set()
    dependencies = 0
    for document in read.documents:
        reading = read_manifest(document.value, document.source)
        dependencies += reading is not None
        problems |= {*reading.problems} if reading is not None else set()
    for path, data in configurations.items():
        problems |= {*_configuration_problems(path, data)}
    folders = parse_index(index, policy.limits)
    problems |= {*absent, *folders.problems, *read_index(folders.documents).problems}
    manifests = len(read.variants) + len(read.sets) + len(read.repositories) + len(read.stalled)
    count = manifests + dependencies + len(configurations) + len(folders.documents)
    return Validation(len(files) + len(index), count, tuple(sorted(map(_placed, problems))), read.notes)


def _placed(problem: Problem) -> Problem:
    """Return a problem with line and column: an editor jumps there, to the first where none is known."""
    path, line, column = problem.location
    return replace(problem, location=Location(path, line or 1, column or 1))


def _configuration_problems(path: str, data: bytes) -> Iterator[Problem]:
    try:
        yield from idle_approvals(parse_configuration(data, path, {}).rollouts, path)
    except ConfigurationError as error:
        for part in error.parts:
            where = part.location or Location(path)
            yield Problem(where, Reason.INVALID_MANIFEST, part.message, part.hint)
