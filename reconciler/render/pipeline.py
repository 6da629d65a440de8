"""The pipeline of a Kptfile: a variant's own functions, put before the package's."""

from reconciler.expand.variants import DesiredVariant
from reconciler.objects import Files
from reconciler.reasons import Reason
from reconciler.render.rendered import Blocked


def add_functions(files: Files, variant: DesiredVariant) -> Files | Blocked:
    """Return the package with the variant's functions first in its pipeline, its former ones replaced.

    Until that is understood here, a variant that names functions is blocked, never half made.
    """
    spec = variant.spec
    given = [spec.mutators, *((spec.pipeline.mutators, spec.pipeline.validators) if spec.pipeline else ())]
    if any(given):
        return Blocked(
            Reason.NOT_SUPPORTED,
            "The variant has pipeline functions, and this release does not add them",
            "Remove spec.pipeline and spec.mutators.",
        )
    return files
