"""What people ticked on the dashboard: an issue of ours in the control repository."""

from reconciler.errors import UnavailableError
from reconciler.forge.base import Forge
from reconciler.forge.remote import RemoteForge
from reconciler.plan.asking import asked_keys, dashboard_key


def read_asked(forge: Forge, instance: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return what is asked for on the dashboard of an instance, and notes on what could not be read.

    Total: a dashboard that cannot be read asks for nothing, this time.
    """
    if not isinstance(forge, RemoteForge):
        return frozenset(), ()
    try:
        issue = forge.find_issue(dashboard_key(instance))
    except UnavailableError as error:
        return frozenset(), (f"The dashboard cannot be read: {error}",)
    return asked_keys(issue.body) if issue is not None and issue.is_open else frozenset(), ()
