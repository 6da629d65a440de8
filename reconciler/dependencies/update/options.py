"""Options of dependency resolution that one run gives; cheap to import, for the command line."""

from typing import NamedTuple


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
