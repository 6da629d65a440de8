"""Expand manifests to the PackageVariants that should exist."""

from reconciler.expand.expansion import check_declared, check_partial, expand
from reconciler.expand.variants import Desired, DesiredVariant

__all__ = ["Desired", "DesiredVariant", "check_declared", "check_partial", "expand"]
