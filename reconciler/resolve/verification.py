"""Verification of chosen upstream revisions: what is not signed with a configured key is not taken."""

from reconciler.base.errors import Problem
from reconciler.base.reasons import Reason
from reconciler.expand.variants import DesiredVariant
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import Oid
from reconciler.resolve.resolution import Pin

NOT_VERIFIED_HINT = (
    "Have its author sign a tag of it, add the author's key to spec.verify of the configuration, or take a "
    "revision whose tag is signed."
)


def find_fault(url: str, ref: str, commit: Oid, inventory: Inventory) -> str:
    """Return why a revision is not verified, "" if it is, or if no rule is about its repository."""
    trust = inventory.trust.get(url)
    if trust is None or (ref, commit) in trust.tags:
        return ""
    return trust.faults.get((ref, commit)) or f"{ref} is no signed tag of commit {commit[:12]}"


def check_pin(pin: Pin, variant: DesiredVariant, inventory: Inventory) -> Pin | Problem:
    """Return a pin that is verified, or the problem of the variant that would take it."""
    fault = find_fault(pin.package.url, pin.ref, pin.commit.oid, inventory)
    if not fault:
        return pin
    message = f"Upstream {pin.ref} of repository {pin.repository} is not verified: {fault}"
    return _problem(variant, message, NOT_VERIFIED_HINT)


def check_forward(pin: Pin, variant: DesiredVariant, inventory: Inventory) -> Pin | Problem:
    """Return the pin that a selector finds, or its problem if a package would go back to it.

    An old signature stays good, so it does not tell whether a holder of the key moved or deleted the tag. To
    go back on purpose takes a change in Git.
    """
    trust, lock = inventory.trust.get(pin.package.url), inventory.locks.get(variant.key)
    if trust is None or lock is None or lock.commit == pin.commit.oid:
        return pin
    if pin.commit.oid not in trust.older.get(Oid(lock.commit), ()):
        return pin
    message = (
        f"Upstream {pin.ref} of repository {pin.repository} is not verified: {lock.ref}, which was taken at "
        f"commit {lock.commit[:12]}, is newer, and no signature tells who took it back"
    )
    hint = f"To go back, name the revision in the manifest, or run `reconciler lock --upgrade {variant.key}`."
    return _problem(variant, message, hint)


def _problem(variant: DesiredVariant, message: str, hint: str) -> Problem:
    location, subject = variant.source.at("spec", "upstream"), f"PackageVariant {variant.key}"
    return Problem(location, Reason.UPSTREAM_NOT_VERIFIED, message, hint, subject)
