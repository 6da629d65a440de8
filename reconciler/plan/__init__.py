"""Desired against actual: changes, safety, waves, messages."""

from reconciler.plan.decide import plan_changes

__all__ = ["plan_changes"]
