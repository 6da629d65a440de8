"""Write a package to a directory: all of it or nothing, and without a moment in which something is lost."""

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from reconciler.base.effects import effect
from reconciler.base.errors import RefusedError, UsageError
from reconciler.names.objects import File, Files, Mode, check_names, file_path_error
from reconciler.read.files import read_directory, stays_inside


def check_writable(output: Path, *, replaces: Path | None = None) -> None:
    """Refuse an output directory that has content which is not to be replaced.

    Raises:
        UsageError: `output` is a file.
        RefusedError: `output` has files and is not `replaces`.
    """
    if not output.exists():
        return
    if not output.is_dir():
        raise UsageError(f"{output} is no directory", hint="Name a directory that exists, or a new one.")
    if not any(output.iterdir()):
        return
    if replaces is None or not output.samefile(replaces):
        raise RefusedError(f"{output} is not empty", hint="Name a directory that does not exist yet.")


def write_directory(files: Files, output: Path, *, replaces: Path | None = None) -> None:
    """Write a package; modes and links are kept.

    A new directory is written beside its place and renamed. In one that exists only the files that differ
    are written: the directory itself stays, so that it may be the working directory of a shell, a mount or
    a link. Every new file is complete before the first one takes its place, and the old ones are kept aside
    until the last one has: a failure puts them back, and a process that is killed leaves them there. A
    request to shut down waits until all is written.

    Raises:
        UsageError: `output` is a file.
        RefusedError: `output` may not be replaced, it would have a name that no package may have, or a link
            leads out of it.
    """
    check_writable(output, replaces=replaces)
    root = output.resolve()
    before = read_directory(root) if root.exists() else {}
    # What people have there stays theirs: `.gitmodules` for one is fine where it is.
    check_names((path for path in files if path not in before or not file_path_error(path)), before)
    with effect(f"write {output}"):
        root.parent.mkdir(parents=True, exist_ok=True)
        scratch = _scratch_of(root) if root.exists() else _scratch(root.parent, root.name)
        try:
            if root.exists():
                _replace_files(root, scratch, files, before)
                return
            for path in sorted(files):
                _write(scratch / "new", path, files[path])
            (scratch / "new").rename(root)
        finally:
            shutil.rmtree(scratch)


def _scratch(parent: Path, name: str) -> Path:
    scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
    (scratch / "new").mkdir()
    return scratch


def _scratch_of(root: Path) -> Path:
    with suppress(OSError):  # the parent cannot be written
        scratch = _scratch(root.parent, root.name)
        with suppress(OSError):  # a link crosses no mount, as a rename does not
            file = next((path for path in root.iterdir() if path.is_file()), root)
            os.link(file, scratch / "probe", follow_symlinks=False)
            return scratch
        shutil.rmtree(scratch)
    return _scratch(root, root.name)


def _replace_files(root: Path, scratch: Path, files: Files, before: Files) -> None:
    changed = sorted(path for path in files if before.get(path) != files[path])
    gone = sorted(before.keys() - files.keys())
    for path in changed:
        _write(scratch / "new", path, files[path])
        if path in before:
            _keep_permissions(root / path, scratch / "new" / path)
    replaced = [*gone, *(path for path in changed if path in before)]
    for path in replaced:
        (scratch / "old" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, scratch / "old" / path, follow_symlinks=False)
    placed: list[str] = []
    try:
        for path in gone:
            (root / path).unlink()
        for path in gone:
            _remove_empty(root, (root / path).parent)
        for path in changed:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (scratch / "new" / path).replace(root / path)
            placed.append(path)
    except BaseException:
        for path in placed:
            (root / path).unlink()
            _remove_empty(root, (root / path).parent)
        for path in replaced:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (scratch / "old" / path).replace(root / path)
        raise


def _remove_empty(root: Path, directory: Path) -> None:
    while directory != root and directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
        directory = directory.parent


def _keep_permissions(old: Path, new: Path) -> None:
    """Give a new file the permissions of the one that it replaces; whether it is executable is its own."""
    before, after = old.lstat().st_mode, new.lstat().st_mode
    if stat.S_ISREG(before) and stat.S_ISREG(after):
        new.chmod((stat.S_IMODE(before) & ~0o111) | (stat.S_IMODE(after) & 0o111))


def _write(root: Path, path: str, file: File) -> None:
    target = root / path
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
