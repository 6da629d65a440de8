"""A bundle as Porter takes it: an Installation document of schema 1.0.2."""

from typing import Any

from reconciler.dependencies.emit.generated import PORTER_KIND, Generated, owner_of
from reconciler.dependencies.emit.names import sharing
from reconciler.dependencies.slots import SHARING_GROUP

SCHEMA_VERSION = "1.0.2"
PARENT = "sh.porter.parentInstallation"


def emit_porter(one: Generated, annotations: dict[str, str]) -> dict[str, Any]:
    """Return an Installation with the labels that the next one who looks for it selects by.

    Its schema knows no annotations: ours stand below `custom`, which is anybody's.
    """
    group, labels = sharing(one.package.instance)
    labels |= {SHARING_GROUP: group} if group else {}
    if parent := owner_of(one, PORTER_KIND):
        labels[PARENT] = "/".join(part for part in (parent.namespace, parent.name) if part)
    bundle = {"repository": one.package.source or one.package.instance.name}
    bundle["version"] = one.package.version.removeprefix("v")
    if one.package.digest.startswith("sha256:"):
        bundle["digest"] = one.package.digest
    return {
        "schemaType": PORTER_KIND,
        "schemaVersion": SCHEMA_VERSION,
        "name": one.ref.name,
        **({"namespace": one.ref.namespace} if one.ref.namespace else {}),
        **({"labels": dict(sorted(labels.items()))} if labels else {}),
        "bundle": bundle,
        **dict(sorted(one.settings.items())),
        "custom": annotations,
    }
