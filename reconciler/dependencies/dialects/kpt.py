"""kpt packages, which declare what they need with a `Package` manifest inside."""

from reconciler.dependencies.dialects.carvel import read_package
from reconciler.dependencies.dialects.reading import Document, Reading
from reconciler.dependencies.model import Dialect, Ecosystem, PackageId
from reconciler.inventory import Source


def read_kpt(document: Document, source: Source, *, repository: str, path: str, revision: str) -> Reading:
    """Read the `Package` manifest of one published revision of a kpt package. Total.

    `repository` is a normalised URL and `path` the package's directory; its identity is both
    together, and `spec.refName` is a further name of it. The version is the tag's: what the
    manifest says of its own version is advisory, so a copy of it in a later revision does no harm.
    """
    spec = document.get("spec")
    tagged = {**document, "spec": {**spec, "version": revision}} if isinstance(spec, dict) else document
    return read_package(tagged, source, dialect=Dialect.KPT, id_=package_id(repository, path))


def package_id(repository: str, path: str) -> PackageId:
    """Return the identity of a kpt package."""
    return PackageId(Ecosystem.KPT, f"{repository}//{path.strip('/')}")


def version_of(tag: str) -> str:
    """Return the version that a tag of a package stands for: Porch's `vN` counts as `N.0.0`."""
    number = tag.removeprefix("v")
    return f"{number}.0.0" if number.isdigit() else number
