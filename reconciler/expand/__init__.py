"""Targets, selectors, templates, expressions, names: from manifests to PackageVariants."""

from reconciler.expand.diff import SetDiff, VariantChange, diff_variants
from reconciler.expand.expansion import expand
from reconciler.expand.variants import Desired, DesiredVariant

__all__ = ["Desired", "DesiredVariant", "SetDiff", "VariantChange", "diff_variants", "expand"]
