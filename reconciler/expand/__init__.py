"""Manifests to desired PackageVariants: what should exist, and how that differs from what was applied."""

from reconciler.expand.diff import SetDiff, VariantChange, diff_variants
from reconciler.expand.expansion import expand
from reconciler.expand.guard import Refused
from reconciler.expand.variants import Desired, DesiredVariant

__all__ = ["Desired", "DesiredVariant", "Refused", "SetDiff", "VariantChange", "diff_variants", "expand"]
