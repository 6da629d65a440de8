"""A Carvel package as kapp-controller takes it: a PackageInstall of exactly one version."""

from typing import Any

from reconciler.dependencies.emit.generated import CARVEL_KIND, Generated, owner_of
from reconciler.dependencies.versions import parse_relaxed

API_VERSION = "packaging.carvel.dev/v1alpha1"
OWNER = "kapp-controller.carvel.dev/owner"


def emit_carvel(one: Generated, annotations: dict[str, str]) -> dict[str, Any] | str:
    """Return a PackageInstall; a sentence where kapp-controller could never reconcile it.

    Source: the proposal of package dependencies, automatically created PackageInstalls.
    Differs: the name has no version, which would recreate the workload with every upgrade.
    """
    settings = one.settings
    if not ("serviceAccountName" in settings or "cluster" in settings):
        return "Nobody who needs it names a service account that could install it"
    owner = owner_of(one, CARVEL_KIND)
    owned = {OWNER: f"{CARVEL_KIND}/{owner.name}"} if owner else {}
    version = one.package.version
    selection: dict[str, Any] = {"constraints": version}
    if parse_relaxed(version).prerelease:
        selection["prereleases"] = {}
    spec: dict[str, Any] = dict(sorted(settings.items(), reverse=True))
    spec["packageRef"] = {"refName": one.package.instance.name, "versionSelection": selection}
    if one.values:
        spec["values"] = [{"secretRef": _secret(value.secret, value.key)} for value in one.values]
    metadata = {"name": one.ref.name, "namespace": one.ref.namespace, "annotations": owned | annotations}
    return {"apiVersion": API_VERSION, "kind": CARVEL_KIND, "metadata": metadata, "spec": spec}


def _secret(name: str, key: str) -> dict[str, str]:
    return {"name": name, "key": key} if key else {"name": name}
