"""What is wrong with a manifest before anything is looked up: Porch's checks, then ours."""

from reconciler.expand.validation.extra import check_set, check_variant
from reconciler.expand.validation.sets import validate_set
from reconciler.expand.validation.variants import validate_upstream, validate_variant

__all__ = ["check_set", "check_variant", "validate_set", "validate_upstream", "validate_variant"]
