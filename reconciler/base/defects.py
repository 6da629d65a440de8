"""Guards: what breaks unforeseen while one unit is worked on is a defect of that unit alone (D34)."""

import errno
import logging
import traceback
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import PurePath
from typing import Final, TypeVar

from reconciler.base.errors import Exit, ReconcilerError

_PACKAGE: Final = PurePath(__file__).parents[1]
LOGGER: Final = "reconciler"
"""The name of the log that defects go to."""
_LOG = logging.getLogger(LOGGER)
_MOST_TRIALS: Final = 200
"""Most runs of work for parts of its units; then the rest is left out together."""
T = TypeVar("T", bound=Hashable)
R = TypeVar("R")
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
_LOCAL_FAILURES = (
    "No space left", "Disk quota", "File too large", "Too many open files", "died of signal 25",
    "Read-only file system", "Cannot allocate memory",
)  # fmt: skip


class DefectError(ReconcilerError):
    """A bug of ours broke the work on one unit: nothing of it is written, and the next run tries again."""

    exit_code = Exit.BUG
    hint = (
        "This is a bug in reconciler, and only this waits for it. "
        "Please report it with its traceback in the log and `reconciler --version`."
    )

    def __init__(self, error: BaseException) -> None:
        # The innermost frame of our own code says where the defect is; later ones are of libraries.
        location = "an unknown place"
        for frame in traceback.extract_tb(error.__traceback__):
            path = PurePath(frame.filename)
            if path.is_relative_to(_PACKAGE) and path != PurePath(__file__):
                location = f"{path.relative_to(_PACKAGE.parent).as_posix()}:{frame.lineno}"
        self.cause = f"The reconciler failed here: {type(error).__name__} at {location}"
        details = str(error).strip().partition("\n")[0]
        super().__init__(f"{self.cause} ({details})" if details else self.cause)


class guard:  # noqa: N801 - it reads as a statement; a function would be called a million times a run
    """Turn what breaks unforeseen inside into a DefectError; its traceback goes to the log.

    Expected errors pass, and so do the limits of the machine, such as a full disk: they are of the run.
    """

    __slots__ = ("_unit",)

    def __init__(self, unit: object) -> None:
        """Guard the work on a document, package, repository, registry, chart or pull request."""
        self._unit = unit

    def __enter__(self) -> None:
        """Begin the work."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """End the work.

        Raises:
            DefectError: Something unforeseen broke inside.
        """
        if isinstance(error, Exception) and is_unforeseen(error):
            raise as_defect(f"{self._unit}", error) from error


def isolate(
    units: Callable[[], Iterable[T]],
    work: Callable[[Mapping[T, DefectError]], R],
    name: Callable[[T], str] = str,
) -> tuple[R, Mapping[T, DefectError]]:
    """Return the result of work without the units that it breaks with, and their defects.

    For work that looks at all units at once, and has no effect. Only where it breaks it is done again:
    without any unit, then with ever more of them, in parts that are halved where it breaks. Of units that
    break only together the last is left out. Units that are left out are to the work as if they could not be
    understood.

    Raises:
        Exception: The work breaks without any unit too.
    """
    try:
        return work({}), {}
    except Exception as error:
        if not is_unforeseen(error):
            raise
        unknown = DefectError(error)
    every, guilty = tuple(dict.fromkeys(units())), dict[T, Exception]()
    left_out, parts, trials = frozenset(every), [every], 0
    work(dict.fromkeys(every, unknown))
    while parts:
        part, trials = parts.pop(), trials + 1
        half = len(part) // 2 if trials < _MOST_TRIALS else 0
        try:
            work(dict.fromkeys(left_out.difference(part), unknown))
        except Exception as error:
            if not is_unforeseen(error):
                raise
            if half:
                parts += (part[half:], part[:half])
            else:
                guilty |= dict.fromkeys(part, error)
        else:
            left_out = left_out.difference(part)
    defects = {unit: as_defect(name(unit), error) for unit, error in guilty.items()}
    return work(defects), defects


def is_unforeseen(error: Exception) -> bool:
    """Tell whether an error is a bug of ours: it was not expected, and is no limit of this machine."""
    is_expected = isinstance(error, ReconcilerError) and error.exit_code is not Exit.BUG
    return not is_expected and not is_machine_limit(error)


def as_defect(unit: str, error: Exception) -> DefectError:
    """Return an unforeseen error as a defect of one unit, after its traceback went to the log."""
    if isinstance(error, DefectError):
        return error
    _LOG.error("%s: %s", unit, type(error).__name__, exc_info=error)
    return DefectError(error)


def is_machine_limit(error: Exception) -> bool:
    """Tell whether an error is a limit of this machine, such as a full disk."""
    if not isinstance(error, OSError):
        return False
    return error.errno in _LIMITS or (
        error.errno is None and is_local_failure(str(error))
    )  # libgit2 gives none


def is_local_failure(text: str) -> bool:
    """Tell whether a message of git is about the disk or another limit of this machine."""
    return any(words in text for words in _LOCAL_FAILURES)
