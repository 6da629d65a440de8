"""Compare what should be with what is, and plan every effect."""

from reconciler.plan.build import build_plan

__all__ = ["build_plan"]
