"""Record clusters without a complete solution, so that equal inputs are not resolved again."""

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec import Struct, field

from reconciler import __version__
from reconciler.base.errors import Problem
from reconciler.base.wire import Record, read_record
from reconciler.dependencies.lock.format import (
    SCHEMA,
    SOLVER,
    ClusterLock,
    PackageLock,
    Resolution,
    record_bytes,
)
from reconciler.dependencies.lock.paths import UNSOLVED_DIRECTORY
from reconciler.dependencies.model.cluster import Catalogue, ClusterInputs
from reconciler.dependencies.solve.solution import Explanation
from reconciler.dependencies.update.memo import CanonicalText


class UnsolvedCluster(Record, frozen=True, kw_only=True):
    """The result for a cluster without a complete solution.

    It is an observation and changes no decision: a missing record, or one of other inputs, costs time only.
    `digest` is that of everything that the resolution read and of the fields below, so an edited record
    is ignored. `lock` and `resolution` are left out if the lock stays as it was.
    """

    api_version: str = SCHEMA
    kind: str = "UnsolvedCluster"
    cluster: str
    digest: str = ""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    lock: PackageLock | None = None
    resolution: Resolution | None = None

    @property
    def new_lock(self) -> ClusterLock | None:
        """The lock that the resolution gave; None if that is the one from before."""
        return ClusterLock(self.lock, self.resolution) if self.lock and self.resolution else None

    @property
    def path(self) -> str:
        """Its path on the status branch."""
        return f"{UNSOLVED_DIRECTORY}/{self.cluster}.json"

    def digest_for(self, question: str) -> str:
        """Return the digest of this record as the result for a digest of inputs."""
        content = record_bytes(msgspec.structs.replace(self, digest=question))
        return f"sha256:{hashlib.sha256(content).hexdigest()}"


class UnsolvedClusters(Struct):
    """The records of the status branch, by path, and digests of inputs that were computed in this run."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    _catalogues: dict[int, tuple[Catalogue, str]] = field(default_factory=dict)

    def find(
        self, inputs: ClusterInputs, before: ClusterLock | None, *, keeps: bool
    ) -> UnsolvedCluster | None:
        """Return the record of a resolution of exactly these inputs, unsigned, if there is one."""
        data = self.files.get(UnsolvedCluster(cluster=inputs.cluster).path)
        if data is None:
            return None
        try:
            record = read_record(data, UnsolvedCluster)
        except ValueError:
            return None
        digest = record.digest_for(self._question(inputs, before, keeps=keeps))
        return msgspec.structs.replace(record, digest="") if record.digest == digest else None

    def sign(
        self, record: UnsolvedCluster, inputs: ClusterInputs, before: ClusterLock | None, *, keeps: bool
    ) -> UnsolvedCluster:
        """Return a record with the digest of its inputs and content."""
        digest = record.digest_for(self._question(inputs, before, keeps=keeps))
        return msgspec.structs.replace(record, digest=digest)

    def _question(self, inputs: ClusterInputs, before: ClusterLock | None, *, keeps: bool) -> str:
        """Return the digest of everything that the resolution of a cluster reads, with every place in it.

        Explanations name packages that nothing can reach, and places, so the whole catalogue counts.
        """
        lock = [record_bytes(before.lock).decode(), before.resolution.digest] if before else []
        own = (
            "installs",
            "presence",
            "pins",
            "chosen",
            "held",
            "activations",
            "observed",
            "choices",
            "assumed",
        )
        parts = (_full_text(getattr(inputs, name)) for name in own)
        return _digest(
            __version__, SOLVER, inputs.cluster, str(keeps), *lock, *parts, self._catalogue(inputs.catalogue)
        )

    def _catalogue(self, catalogue: Catalogue) -> str:
        if id(catalogue) not in self._catalogues:
            candidates = (_full_text(versions) for versions in catalogue.packages.values())
            refused = (
                f"{name}={_full_text(problems)}" for name, problems in sorted(catalogue.refused.items())
            )
            # The catalogue is held, or another one could get its id.
            self._catalogues[id(catalogue)] = catalogue, _digest(*candidates, *refused)
        return self._catalogues[id(catalogue)][1]


_full_text = CanonicalText(lambda own: own.repr).write
"""Write a value with its places: fields that are not shown are computed from others."""


def _digest(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode())
    return digest.hexdigest()
