"""Problems: the faults of one input, each with its place, its reason and a next step."""

from msgspec.structs import replace

from reconciler.base.defects import DefectError
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.text import Text
from reconciler.base.values import PartlyCompared
from reconciler.names.ids import ObjectKey, ObjectName


class Problem(PartlyCompared, frozen=True):
    """An error in one input, as a value and not an exception.

    Its owner can fix it and everything else still reconciles.
    """

    UNCOMPARED = frozenset({"cause", "consequence", "owner", "repository"})

    location: Location
    reason: str
    message: Text
    hint: Text = ""
    subject: str = ""
    """Name of the stalled object, as `PackageVariantSet default/nginx`; empty for a file without any."""
    cause: Text = ""
    """The part of the message that is equal in all problems of one cause, as a refused token."""
    consequence: Text = ""
    """The part of the message after the cause."""
    owner: ObjectKey | None = None
    """The subject, where it is an object."""
    repository: ObjectName | None = None
    """The repository that could not be read, where the problem follows from that."""

    def __str__(self) -> str:
        return f"{self.location}: {self.reason}: {self.message}"

    def owned_by(self, owner: ObjectKey) -> "Problem":
        """Return it as a problem of an object, which is its subject."""
        return replace(self, subject=owner.subject, owner=owner)


def defect_problem(
    error: DefectError, location: Location, owner: ObjectKey | None = None, subject: str = ""
) -> Problem:
    """Return a bug of ours as the problem of the one unit that it broke the work on."""
    subject = f"{owner.kind} {owner.namespace}/{owner.name}" if owner is not None else subject
    return Problem(location, Reason.DEFECT, str(error), error.hint, subject, error.cause, owner=owner)
