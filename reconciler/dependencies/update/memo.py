"""Cache solutions and input digests, so that equal clusters are resolved once."""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from operator import attrgetter
from typing import Any

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.dependencies.lock.format import SOLVER, PackageLock
from reconciler.dependencies.model.cluster import Catalogue, ClusterInputs
from reconciler.dependencies.model.packages import Candidate, PackageId, PackageNeed
from reconciler.dependencies.solve.solution import Solution

Key = tuple[int, ...]


class SolutionCache(Struct):
    """Solutions of one run by inputs. Names of clusters are no part of the key.

    Values that are equal count as the same wherever they come from; a value that was seen
    before is recognised without looking at it again.
    """

    _tokens: dict[Hashable, int] = field(default_factory=dict)
    _by_id: dict[int, int] = field(default_factory=dict)
    _held: list[object] = field(default_factory=list)
    _solutions: dict[Key, Solution] = field(default_factory=dict)
    _digests: dict[Key, str] = field(default_factory=dict)
    _texts: dict[int, str] = field(default_factory=dict)

    def solution(self, inputs: ClusterInputs) -> Solution:
        """Return the world's solution, computed and verified once per distinct question.

        Raises:
            UnverifiedSolutionError: An answer does not survive the independent check.
        """
        # The solver is loaded only where something is solved: most runs resolve nothing.
        from reconciler.dependencies.solve.resolve import resolve_cluster, warnings_of  # noqa: PLC0415

        locked = (inputs.pins, inputs.chosen, inputs.held, inputs.assumed)
        key = (*self._key(inputs), *(self._token(part) for part in locked))
        if key in self._solutions and self._solutions[key].problems:
            places = tuple(install.location for install in inputs.installs)
            key = (*key, self._token(places))  # what is wrong is told with the places of this cluster
        if key not in self._solutions:
            self._solutions[key] = resolve_cluster(replace(inputs, cluster=""))
        solution = self._solutions[key]
        return replace(solution, warnings=warnings_of(inputs, solution)) if solution.warnings else solution

    def digest(self, inputs: ClusterInputs) -> str:
        """Return the digest of everything but the lock that the world's answer can depend on."""
        key = (*self._key(inputs), self._token(inputs.activations))
        if key not in self._digests:
            self._digests[key] = input_digest(inputs, self._texts)
        return self._digests[key]

    def _key(self, inputs: ClusterInputs) -> Key:
        parts = (inputs.installs, inputs.presence, inputs.choices)
        return (self._same(inputs.catalogue), *(self._token(part) for part in parts))

    def _same(self, catalogue: Catalogue) -> int:
        if id(catalogue) not in self._by_id:
            self._held.append(catalogue)
            self._by_id[id(catalogue)] = -len(self._held)
        return self._by_id[id(catalogue)]

    def _token(self, part: Hashable) -> int:
        token = self._by_id.get(id(part))
        if token is None:
            token = self._tokens.setdefault(part, len(self._tokens))
            self._held.append(part)
            self._by_id[id(part)] = token
        return token


def outdated_clusters(
    worlds: Iterable[ClusterInputs], locks: Mapping[str, PackageLock], memo: SolutionCache | None = None
) -> tuple[str, ...]:
    """Return the clusters with a lock of other inputs, sorted; the others need no resolution."""
    cache = memo or SolutionCache()
    clusters = []
    for inputs in worlds:
        lock = locks.get(inputs.cluster)
        if lock is None or lock.input_digest != cache.digest(inputs):
            clusters.append(inputs.cluster)
    return tuple(sorted(clusters))


def input_digest(inputs: ClusterInputs, texts: dict[int, str] | None = None) -> str:
    """Return the SHA-256 of what a resolution depends on, apart from lock and cluster name.

    Of the catalogue only what can be reached by name from the installs counts, so that a new
    version of one package touches only the clusters that can use it. Order-free.

    Args:
        inputs: The inputs of the cluster.
        texts: Keeps what was written of each candidate, by its `id`, while the catalogue lives.
    """
    written = {} if texts is None else texts
    candidates = _reachable(inputs)
    for candidate in candidates:
        if id(candidate) not in written:
            written[id(candidate)] = _plain(candidate)
    relevant = {
        "solver": SOLVER,
        "installs": sorted(_plain(install) for install in inputs.installs),
        "presence": _plain(inputs.presence),
        "choices": _plain(inputs.choices),
        "wishes": sorted(_plain(activation) for activation in inputs.activations),
        "catalogue": [written[id(candidate)] for candidate in candidates],
    }
    data = orjson.dumps(relevant, option=orjson.OPT_SORT_KEYS)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _reachable(inputs: ClusterInputs) -> list[Candidate]:
    catalogue = inputs.catalogue
    if inputs.choices.discovery:
        return [candidate for candidates in catalogue.packages.values() for candidate in candidates]
    queue = [catalogue.find(install.need.id) for install in inputs.installs]
    queue += [catalogue.find(id_) for _, id_ in inputs.choices.defaults]
    seen: set[PackageId] = set()
    while queue:
        id_ = queue.pop()
        if id_ in seen:
            continue
        seen.add(id_)
        for candidate in catalogue.candidates(id_):
            for requirement in candidate.requires:
                needs = (*requirement.alternatives, *([requirement.default] if requirement.default else []))
                queue += [catalogue.find(need.id) for need in needs if isinstance(need, PackageNeed)]
    return [candidate for id_ in sorted(seen) for candidate in catalogue.candidates(id_)]


# Digests stand in locks: a renamed class keeps its first name here, or every lock would be outdated.
_DIGEST_NAMES = {
    "ActivationRequest": "RevisionWish",
    "ClusterState": "Presence",
    "ObservedInstallation": "Installed",
    "ResolverSettings": "Choices",
}


class CanonicalText:
    """Writes values of dataclasses, tuples and sets as text, with the fields that `has` admits.

    Equal values give equal texts. How a type is written is found out once: a catalogue has many values.
    """

    def __init__(self, has: Callable[[Field[Any]], bool]) -> None:
        self._has = has
        self._writers: dict[type, Callable[[Any], str]] = {}

    def write(self, value: Any) -> str:
        """Return the text of a value."""
        writer = self._writers.get(type(value))
        if writer is None:
            writer = self._writers[type(value)] = self._writer_of(type(value))
        return writer(value)

    def _writer_of(self, kind: type) -> Callable[[Any], str]:
        if is_dataclass(kind):
            return self._dataclass_writer(kind)
        if issubclass(kind, Enum):
            return {member: repr(member.value) for member in kind}.__getitem__
        if issubclass(kind, frozenset):
            return lambda value: f"{{{','.join(sorted(map(self.write, value)))}}}"
        if issubclass(kind, tuple):
            return lambda value: f"({','.join([self.write(item) for item in value])})"
        return repr

    def _dataclass_writer(self, kind: type) -> Callable[[Any], str]:
        """Return a writer that knows the texts of the defaults: most fields have theirs."""
        own = [each for each in fields(kind) if self._has(each)]
        form = f"{_DIGEST_NAMES.get(kind.__name__, kind.__name__)}({','.join(f'{f.name}=%s' for f in own)})"
        values = attrgetter(*(each.name for each in own), own[0].name)  # of one name it returns no tuple
        defaults = [each.default for each in own]
        texts = ["" if default is MISSING else self.write(default) for default in defaults]

        def write(value: Any) -> str:
            pairs = zip(values(value), defaults, texts, strict=False)
            return form % tuple([text if own is default else self.write(own) for own, default, text in pairs])

        return write


_plain = CanonicalText(lambda own: own.compare).write
"""Write a value as one text, without places."""
