"""Lock updates of clusters, as values: every other stage knows these, and few runs have any."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct, field

from reconciler.dependencies.lock import format as formats
from reconciler.names.problems import Problem


class ResolveOptions(NamedTuple):
    """Options of one run, in addition to the manifests.

    The packages of `upgrade` may change their locked version. Without `dependencies` generated packages
    stay as they are: none is added, changed or removed. With `prune` everything unneeded goes, also
    packages that are retained by default, and CRDs that removed packages left behind.
    """

    upgrade: frozenset[str] = frozenset()
    dependencies: bool = True
    prune: bool = False


DEFAULT_OPTIONS = ResolveOptions()


if TYPE_CHECKING:
    from reconciler.dependencies.lock.format import ClusterLock, LockChange
    from reconciler.dependencies.solve.solution import Explanation


class ClusterUpdate(Struct, frozen=True):
    """One cluster: its lock before and after, explanations of conflicts, problems and warnings.

    It is not `finished` if a part has no solution, or an input is unknown. It `is_outdated` if it was
    resolved again with the same result, and keeps the digest of other inputs until a run writes.
    `unavailable` completes a sentence about each package with a locked version that is no candidate, by its
    instance.
    """

    cluster: str
    before: "ClusterLock | None"
    after: "ClusterLock | None"
    explanations: "tuple[Explanation, ...]" = ()
    finished: bool = True
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    is_outdated: bool = False
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether anything was decided anew: a new digest of the inputs alone is no change."""
        return self.before != self.after and not self.is_refresh

    @property
    def is_refresh(self) -> bool:
        """Whether nothing but the digest of the inputs differs, so that nothing was decided anew."""
        if self.before is None or self.after is None or self.before.resolution != self.after.resolution:
            return False
        same = {"input_digest": self.after.lock.input_digest, "generation": self.after.lock.generation}
        return msgspec.structs.replace(self.before.lock, **same) == self.after.lock

    @property
    def changes(self) -> "tuple[LockChange, ...]":
        """The pins that differ; none where only inputs changed that do not matter."""
        nothing = formats.Resolution()
        before = self.before.resolution if self.before else nothing
        return formats.lock_changes(before, self.after.resolution if self.after else nothing)


class LockUpdate(Struct, frozen=True):
    """Lock updates of the whole fleet: every cluster that has or gets a lock, sorted, and problems."""

    scopes: tuple[ClusterUpdate, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any file of any cluster changes."""
        return any(scope.changed for scope in self.scopes)

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the state branch that hold these locks; resolutions that none names are left out."""
        files: dict[str, bytes] = {}
        for scope in self.scopes:
            if scope.after is not None:
                files[formats.lock_path(scope.after.lock)] = formats.record_bytes(scope.after.lock)
                path = formats.resolution_path(scope.after.lock.resolution)
                if path not in files:
                    files[path] = formats.record_bytes(scope.after.resolution)
        return dict(sorted(files.items()))
