"""Run the code of two commits over all public packages, and print every byte, row and exit code that changed.

    python -m tools.against COMMIT

The commands are those of this checkout's suite, for both. It exits 1 if anything changed.
"""

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from pathlib import Path

from tests.ecosystem.inputs import inputs_of
from tests.ecosystem.laws import RUNS
from tests.ecosystem.session import Session
from tests.support.conformance import PROJECT
from tests.support.git import run

Drive = Callable[[Session, Path], None]


def compare(session: Session, other: Session) -> Iterator[str]:
    """Yield the lines of a difference: commands with other output or exit codes, files with other bytes."""
    for old, new in zip(session.steps, other.steps, strict=False):
        if (old.code, old.text) != (new.code, new.text):
            yield f"$ reconciler {new.line}" + (
                f": exit {old.code}, now {new.code}" if old.code != new.code else ""
            )
            yield from list(unified_diff(old.text.splitlines(), new.text.splitlines(), n=0, lineterm=""))[2:]
    if len(session.steps) != len(other.steps):
        yield f"{len(session.steps)} commands, now {len(other.steps)}"
    for path in sorted(session.files.keys() | other.files.keys()):
        # The oracle of kpt works in a directory of its own, which Kptfiles name.
        sides = (side.files.get(path, b"") for side in (session, other))
        old_data, new_data = (re.sub(rb"kpt-oracle-\w+", b"kpt-oracle", data) for data in sides)
        if old_data != new_data:
            before, now = (data.decode(errors="replace").splitlines() for data in (old_data, new_data))
            yield from unified_diff(before, now, f"before/{path}", f"now/{path}", n=0, lineterm="")


def main(commit: str) -> int:
    """Compare this checkout with a commit."""
    jobs = [
        (f"{kind} {directory.name} ({drive.__name__})", drive, directory)
        for kind, runs in RUNS.items()
        for directory in inputs_of(kind, everything=True)
        for drive in runs
    ]
    changed = 0
    with tempfile.TemporaryDirectory() as scratch:
        before = Path(scratch) / "before"
        run("worktree", "add", "--quiet", "--detach", str(before), commit, cwd=PROJECT)

        def differences(job: tuple[str, Drive, Path]) -> list[str]:
            _, drive, directory = job
            sessions = []
            for code in (before, PROJECT):
                with tempfile.TemporaryDirectory(dir=scratch) as root:
                    sessions.append(Session(Path(root), code))
                    drive(sessions[-1], directory)
            return list(compare(*sessions))

        try:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                for (name, *_), lines in zip(jobs, pool.map(differences, jobs), strict=True):
                    changed += bool(lines)
                    if lines:
                        print(f"== {name}", *lines, sep="\n", flush=True)
        finally:
            run("worktree", "remove", "--force", str(before), cwd=PROJECT)
    print(f"{changed} of {len(jobs)} inputs changed since {commit}")
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
