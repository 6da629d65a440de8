"""Where the generated manifests of a cluster go: one package of a repository that belongs to the cluster."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from reconciler.errors import Problem
from reconciler.expand.own_checks import check_downstream
from reconciler.inventory import FieldPath, RepositoryView
from reconciler.reasons import Reason

PLACE = "reconciler.dev/dependencies"
"""On a Repository: the path of the package in it; it also chooses among several of one cluster."""


class Place(NamedTuple):
    """A package of a repository; `path` is inside the view."""

    view: RepositoryView
    path: str


def find_place(
    cluster: str, views: Sequence[RepositoryView], path: str, instance: str
) -> Place | Problem | str:
    """Return where a cluster's manifests go; a problem where that is said wrongly, a sentence where nowhere.

    The Repository that says so by annotation, else the only one of the cluster that is deployed
    from, else the only one. Empty where the configuration wants nothing delivered.

    Args:
        cluster: The cluster.
        views: The repositories that belong to it, sorted.
        path: The configured path of the package, empty where nothing is to be delivered.
        instance: The name of this instance.
    """
    chosen = [view for view in views if PLACE in _annotations(view)]
    if len(chosen) > 1:
        return _twice(cluster, chosen)
    if chosen:
        return _checked(chosen[0], _annotations(chosen[0])[PLACE], instance)
    if not path:
        return ""
    deployed = [view for view in views if view.deployment]
    several = deployed or views
    if len(several) == 1:
        return _checked(several[0], path, instance)
    hint = f"annotate one of its Repositories with {PLACE}: {path}"
    if several:
        names = ", ".join(view.key.name for view in several)
        return f"Nothing is delivered to cluster {cluster}: it has several Repositories, {names}; {hint}"
    return f"Nothing is delivered to cluster {cluster}: no Repository belongs to it; {hint}"


def _checked(view: RepositoryView, path: str, instance: str) -> Place | Problem:
    field: FieldPath = ("metadata", "annotations", PLACE)
    hint = "Write the path of a package below the Repository's directory, `dependencies` for example."
    refused = None if path.startswith("/") else next(check_downstream(view, path, instance, field), None)
    if not path.startswith("/") and refused is None:
        return Place(view, path.strip("/"))
    message = refused.message if refused else f"package path {path!r} is not valid: it begins with a slash"
    subject = f"Repository {view.key}"
    return Problem(view.source.at(*field), Reason.INVALID_NAME, message, hint, subject)


def _twice(cluster: str, chosen: Iterable[RepositoryView]) -> Problem:
    first, *others = chosen
    where = first.source.at("metadata", "annotations", PLACE)
    named = ", ".join(f"{view.key} ({view.source.location})" for view in others)
    message = f"The manifests of cluster {cluster} would also go to Repository {named}"
    hint = f"Keep the annotation {PLACE} on one of them."
    return Problem(where, Reason.DUPLICATE_DOWNSTREAM, message, hint, f"Repository {first.key}")


def _annotations(view: RepositoryView) -> dict[str, str]:
    return view.manifest.metadata.annotations or {}
