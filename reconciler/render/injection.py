"""Config injection: what the cluster holds, put into the points that a package declares."""

from reconciler.expand.variants import DesiredVariant
from reconciler.inventory import Snapshot
from reconciler.objects import Files
from reconciler.reasons import Reason
from reconciler.render.rendered import Blocked


def inject_config(files: Files, variant: DesiredVariant, snapshot: Snapshot) -> Files | Blocked:
    """Return the package with every injection point filled that an injector of the variant matches.

    Until points are understood here, a variant that names injectors is blocked, never half made.
    """
    del snapshot
    if variant.spec.injectors:
        return Blocked(
            Reason.NOT_SUPPORTED,
            "The variant has injectors, and this release does not inject configuration",
            "Remove spec.injectors.",
        )
    return files
