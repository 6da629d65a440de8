"""Records of variants on a state branch, whatever the files are that hold them."""

from pathlib import Path
from typing import Any

import msgspec

from reconciler.base.values import read_record
from reconciler.records.state import PackageVariantRecord, branch_records
from tests.support.world import git

STATE = "reconciler/fleet/state"


def recorded(control: Path, branch: str = STATE) -> dict[str, bytes]:
    """Return the records of a state branch by path."""
    names = git(control, "ls-tree", "-r", "-z", "--name-only", branch).split("\0")
    return branch_records({name: git(control, "show", f"{branch}:{name}").encode() for name in names if name})


def record(control: Path, name: str, branch: str = STATE) -> dict[str, Any]:
    """Return the record of a variant, with its defaults."""
    line = recorded(control, branch)[f"packagevariants/default/{name}.json"]
    value: dict[str, Any] = msgspec.to_builtins(read_record(line, PackageVariantRecord))
    return value
