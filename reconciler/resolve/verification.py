"""Verification of chosen upstream revisions: what is not signed with a configured key is not taken."""

from reconciler.errors import Problem
from reconciler.expand.variants import DesiredVariant
from reconciler.ids import Oid
from reconciler.inventory import Inventory
from reconciler.reasons import Reason
from reconciler.resolve.resolution import Pin

NOT_VERIFIED_HINT = (
    "Have its author sign it, add the author's key to spec.verify of the configuration, or take a revision "
    "that is signed."
)


def find_fault(url: str, ref: str, commit: Oid, inventory: Inventory) -> str:
    """Return why a revision is not verified, "" if it is, or if no rule is about its repository."""
    trust = inventory.trust.get(url)
    if trust is None or commit in trust.commits or (ref, commit) in trust.refs:
        return ""
    return trust.faults.get((ref, commit)) or f"commit {commit[:12]} is not signed, or {ref} was moved"


def check_pin(pin: Pin, variant: DesiredVariant, inventory: Inventory) -> Pin | Problem:
    """Return a pin that is verified, or the problem of the variant that would take it."""
    fault = find_fault(pin.package.url, pin.ref, pin.commit.oid, inventory)
    if not fault:
        return pin
    message = f"Upstream {pin.ref} of repository {pin.repository} is not verified: {fault}"
    location = variant.source.at("spec", "upstream")
    return Problem(
        location, Reason.UPSTREAM_NOT_VERIFIED, message, NOT_VERIFIED_HINT, f"PackageVariant {variant.key}"
    )
