"""Files of the cache: bytes behind their digest, written in one step."""

from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from reconciler.base.digest import checked, with_digest


def load_kept(path: Path) -> bytes:
    """Return the bytes of a file of the cache, none if it is missing or damaged. Total."""
    try:
        return checked(path.read_bytes()) or b""
    except OSError:
        return b""


def save_kept(path: Path, data: bytes) -> None:
    """Write a file of the cache; a failure is ignored."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Write and rename: another run may read the file meanwhile.
        with NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(with_digest(data))
        Path(file.name).replace(path)
