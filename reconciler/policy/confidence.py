"""Settings of confidence: how a fleet must have fared with an upstream revision."""

from reconciler.policy.settings import Amount, Bound, Duration, SettingsGroup
from reconciler.values import settled_dataclass


@settled_dataclass(frozen=True, slots=True)
class RequiredConfidence(SettingsGroup):
    """Confidence in an upstream revision, counted over the packages of this fleet."""

    packages: Bound = 1
    """Packages that run the revision."""
    age: Duration = 0
    """Time (`30m`, `3d`) for which each of these runs it."""
    max_reverted: Amount = "0"
    """Most packages that went back from it: a number, or a share of all that had it, rounded down."""
    max_conflicts: Amount = "100%"
    """Most packages that met a conflict with it: a number, or a share of all that had it, rounded down."""
