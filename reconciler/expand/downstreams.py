"""Validation of downstream package paths against the rules of Git refs and of Porch."""

from collections.abc import Iterator

from reconciler.expand.findings import Finding
from reconciler.inventory import FieldPath, PackageState, RepositoryView
from reconciler.package_paths import refuse_new_name, refuse_path, relative_package
from reconciler.reasons import Reason

DOWNSTREAM_PACKAGE: FieldPath = ("spec", "downstream", "package")
_RULE = "Use lower-case letters, digits and - in each segment of the path"


def check_downstream(
    view: RepositoryView, package: str, instance: str, path: FieldPath = DOWNSTREAM_PACKAGE
) -> Iterator[Finding]:
    """Yield a finding if no package can be made at `package` of a repository.

    Every path must be legal in a Git ref. A package that does not exist yet must also have a name
    that Porch accepts; whether it exists is unknown while the repository is unavailable, and then
    only Git's rule holds.

    Args:
        view: The downstream repository.
        package: The package's path below the repository's directory, as the manifest gives it.
        instance: The name of this instance.
        path: The field to blame.
    """
    full = view.full_path(package)
    why = refuse_path(full, instance)
    if not why and view.is_available and not view.packages.get(full, PackageState(full)).exists:
        why = refuse_new_name(view.key.name, relative_package(full, view.directory))
    if why:
        directory = f", and in spec.git.directory of Repository {view.key.name}" if view.directory else ""
        message = f'package path "{full}" is not valid: {why}'
        yield Finding(path, message, Reason.INVALID_NAME, f"{_RULE}{directory}.")
