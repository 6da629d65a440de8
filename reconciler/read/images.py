"""The digests of function images in the lock: which code the tags of images stand for."""

from dataclasses import replace
from typing import NamedTuple

from pydantic import ValidationError

from reconciler.errors import Location, Problem
from reconciler.git.trees import PackageRefusedError
from reconciler.ids import Oid
from reconciler.lock import IMAGES_PATH, ImagesLock
from reconciler.policy import Policy
from reconciler.read.files import Objects
from reconciler.read.state import check_schema
from reconciler.reasons import Reason


class Images(NamedTuple):
    """The lock of images at a commit; `problem` says why it cannot be read, and is then empty."""

    lock: ImagesLock = ImagesLock()
    problem: Problem | None = None


def read_images(objects: Objects, commit: Oid | None, limit: int) -> Images:
    """Return the digests that are locked at a commit; none without one.

    A lock that cannot be read pins nothing: what needs it then stands still, by name.

    Args:
        objects: The control repository.
        commit: The commit of the state branch; of main, where the lock is reviewed.
        limit: The largest file that is read, in bytes.

    Raises:
        ConfigurationError: The lock was written by a newer version.
        UnavailableError: The repository cannot be read.
    """
    oid = objects.blob_at(commit, IMAGES_PATH) if commit else None
    if oid is None:
        return Images()
    objects.ensure([oid])
    try:
        data = objects.blob(oid, limit)
        check_schema(IMAGES_PATH, data)
        return Images(ImagesLock.model_validate_json(data, by_alias=True, by_name=False))
    except ValidationError as error:
        return Images(problem=_unreadable(error.errors(include_url=False)[0]["msg"]))
    except PackageRefusedError as error:
        return Images(problem=_unreadable(error.why))


def with_images(policy: Policy, lock: ImagesLock) -> Policy:
    """Return the policy with what is locked; what the configuration itself pins comes first."""
    functions = policy.functions
    return replace(policy, functions=replace(functions, images={**lock.images, **functions.images}))


def _unreadable(why: str) -> Problem:
    hint = "Remove the file, and pin the images again with `reconciler functions pull`."
    message = f"The lock of function images cannot be read: {why}"
    return Problem(Location(IMAGES_PATH), Reason.INVALID_STATE, message, hint)
