"""Guards: what breaks unforeseen while one unit is worked on is a defect of that unit alone (D34)."""

import errno
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Final

from reconciler.base.errors import Exit, ReconcilerError

_PACKAGE: Final = PurePath(__file__).parents[1]
_LOG = logging.getLogger("reconciler")
_LIMITS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EMFILE,
        errno.ENFILE,
        errno.EROFS,
        errno.EIO,
        errno.ENOMEM,
    }
)


class DefectError(ReconcilerError):
    """A bug of ours broke the work on one unit: nothing of it is written, and the next run tries again."""

    exit_code = Exit.BUG
    hint = (
        "This is a bug in reconciler, and only this waits for it. "
        "Please report it with its traceback in the log and `reconciler --version`."
    )

    def __init__(self, error: Exception) -> None:
        super().__init__(f"The reconciler failed here with {_name(error)} at {_place(error)}")


@contextmanager
def guard(unit: str) -> Iterator[None]:
    """Turn what breaks unforeseen inside into a DefectError; its traceback goes to the log.

    Expected errors pass, and so do the limits of the machine, such as a full disk: they are of the run.

    Args:
        unit: The document, package, repository, registry, chart or pull request that is worked on.

    Raises:
        DefectError: Something unforeseen broke inside.
    """
    try:
        yield
    except ReconcilerError:
        raise
    except Exception as error:
        if is_machine_limit(error):
            raise
        _LOG.error("%s: %s", unit, _name(error), exc_info=error)
        raise DefectError(error) from error


def is_machine_limit(error: Exception) -> bool:
    """Tell whether an error is a limit of this machine, such as a full disk."""
    return isinstance(error, OSError) and error.errno in _LIMITS


def _name(error: Exception) -> str:
    return "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]


def _place(error: Exception) -> str:
    """Return file and line of the innermost frame in our code."""
    place = "an unknown place"
    for frame in traceback.extract_tb(error.__traceback__):
        path = PurePath(frame.filename)
        if path.is_relative_to(_PACKAGE) and path != PurePath(__file__):
            place = f"{path.relative_to(_PACKAGE.parent).as_posix()}:{frame.lineno}"
    return place
