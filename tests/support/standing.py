"""What stands in the repositories of a fleet, to be compared between ways to run."""

import re
from pathlib import Path

from tests.support.git import Repo
from tests.support.world import git

_MACHINE = re.compile(r"refs/heads/reconciler/[^/]+/(state|status)")


def standing(root: Path) -> dict[str, str]:
    """Return every ref of the bare repositories below a directory.

    Of the branches of state and status that is each file, as their history is each run's own; dashboards
    are left out, which shards write in parts.
    """
    found = {}
    for path in sorted(root.glob("*.git")):
        for ref, oid in Repo(path).refs().items():
            if not _MACHINE.fullmatch(ref):
                found[f"{path.name} {ref}"] = oid
                continue
            for line in git(path, "ls-tree", "-r", oid).splitlines():
                blob, name = line.split("\t", 1)
                if not name.startswith("dashboard"):
                    found[f"{path.name} {ref} {name}"] = blob
    return found
