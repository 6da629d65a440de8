"""Messages of a command about repositories that could not be read."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from reconciler.errors import Exit, Problem, UnavailableError
from reconciler.report.escape import terminal

if TYPE_CHECKING:
    from reconciler.cli.output import Printer
    from reconciler.inventory import Inventory
    from reconciler.policy import OnUnavailable


def show_unread(printer: "Printer", unread: "Mapping[Problem, OnUnavailable]") -> set[Exit]:
    """Print a line for each repository that could not be read; return the exit code that this asks for."""
    from reconciler.policy import OnUnavailable

    for problem in unread:
        printer.lines([f"not read: {terminal(str(problem))}"], err=True)
        if problem.hint:
            printer.lines([f"  hint: {terminal(problem.hint)}"], err=True)
    return {Exit.UNAVAILABLE} if OnUnavailable.FAIL in unread.values() else set()


def require_readable(inventory: "Inventory", names: Iterable[str]) -> None:
    """Refuse names, as `REPO/PACKAGE` or `REPO#3`, in repositories about which nothing is known.

    Raises:
        UnavailableError: The repository of one of them could not be read.
    """
    named = {name.partition("/")[0].partition("#")[0] for name in names}
    for view in inventory.repositories.values():
        if view.problem is not None and view.key.name in named:
            message = f"Repository {view.key} was not read: {view.problem.message}"
            raise UnavailableError(message, hint=view.problem.hint)
