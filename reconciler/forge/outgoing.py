"""Pull requests as they may be written: texts for people are masked, a credential elsewhere is refused."""

from msgspec.structs import replace

from reconciler.base.redact import mask_credentials, outgoing_fields
from reconciler.inventory.inventory import PullRequest

_FIELDS = ("head", "base", "title", "body", "labels", "reviewers", "assignees", "proposes")


def outgoing_pull(pull: PullRequest) -> PullRequest:
    """Return a pull request without credentials in its title, its text and the text of its status.

    Raises:
        RefusedError: A credential is in a field that machines read.
    """
    fields = {name: getattr(pull, name) for name in _FIELDS}
    status = pull.status and pull.status._replace(text=mask_credentials(pull.status.text))
    return replace(pull, **outgoing_fields(fields, f"the pull request of {pull.head}"), status=status)
