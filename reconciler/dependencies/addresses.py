"""How locks call repositories: by their URL as it was registered, the same on every machine."""

import posixpath
from collections.abc import Iterable, Mapping

from reconciler.ids import normalise_url
from reconciler.inventory import RepositoryView


def repository_names(views: Iterable[RepositoryView]) -> Mapping[str, str]:
    """Return what packages of each repository are named after, by its normalised URL. Order-free.

    It is the URL as a registration writes it, normalised. One that is relative to the control
    repository stays relative: `../blueprints` is the same package wherever the two were cloned to.
    Of a repository that is registered in several ways, an absolute URL counts, then the least.
    """
    written: dict[str, set[str]] = {}
    for view in views:
        git = view.manifest.spec.git
        if git is not None and view.url:
            written.setdefault(view.url, set()).add(_normal(git.repo))
    return {url: min(names, key=lambda name: (name.startswith("."), name)) for url, names in written.items()}


def _normal(written: str) -> str:
    name = normalise_url(written)
    return posixpath.normpath(name) if name.startswith(".") else name
