"""Write a package to a directory, atomically."""

import os
import shutil
import tempfile
from pathlib import Path, PurePosixPath

from reconciler.errors import RefusedError, UsageError
from reconciler.objects import File, Files, Mode
from reconciler.read.files import stays_inside


def check_writable(output: Path, *, replaces: Path | None = None) -> None:
    """Refuse an output directory that has content which is not to be replaced.

    Raises:
        UsageError: `output` is a file.
        RefusedError: `output` has files and is not `replaces`, or is a working copy.
    """
    if not output.exists():
        return
    if not output.is_dir():
        raise UsageError(f"{output} is no directory")
    if not any(output.iterdir()):
        return
    if replaces is None or not output.samefile(replaces):
        raise RefusedError(f"{output} is not empty", hint="Name a directory that does not exist yet.")
    if (output / ".git").exists():
        raise RefusedError(f"{output} is a working copy", hint="Name another output, and copy from there.")


def write_directory(files: Files, output: Path, *, replaces: Path | None = None) -> None:
    """Write a package so that `output` is either as before or complete; modes and links are kept.

    The new content is written beside `output` and put in its place by renaming.

    Raises:
        UsageError: `output` is a file.
        RefusedError: `output` may not be replaced, or a path or link leads out of it.
    """
    check_writable(output, replaces=replaces)
    parent = output.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=parent))
    try:
        content = scratch / "new"
        content.mkdir()
        for path in sorted(files):
            _write(content, path, files[path])
        if output.exists():
            output.rename(scratch / "old")
        content.rename(output)
    finally:
        _restore(scratch, output)


def _restore(scratch: Path, output: Path) -> None:
    """Put the old directory back if the new one did not get there, and leave nothing behind."""
    old = scratch / "old"
    if old.exists() and not output.exists():
        old.rename(output)
    shutil.rmtree(scratch)


def _write(root: Path, path: str, file: File) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or any(part in ("..", ".git") for part in parts):
        raise RefusedError(f"{path} may not be written")
    target = root.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.mode == Mode.SYMLINK:
        link = os.fsdecode(file.data)
        if not stays_inside(path, link):
            raise RefusedError(f"The link {path} leads out of the package, to {link}")
        target.symlink_to(link)
        return
    target.write_bytes(file.data)
    if file.mode == Mode.EXECUTABLE:
        target.chmod(target.stat().st_mode | 0o111)
