"""The comment of `check` on a pull request: one, updated in place."""

from collections.abc import Mapping
from dataclasses import replace

from reconciler.base.defects import guard
from reconciler.base.errors import ReconcilerError
from reconciler.forge.registry import Forges
from reconciler.git.repository import Mirror
from reconciler.git.urls import Credential
from reconciler.policy import ForgeKind, ForgeRule, Policy, find_rule
from reconciler.read.credentials import control_credential, find_credentials, lacks_credential

KEY = "check"


def write_check_comment(
    control: Mirror, trusted: Policy, environment: Mapping[str, str], number: int, body: str
) -> str:
    """Write or update the comment; return why it is not there, empty if it is. Safe to repeat.

    Whom it is sent to, and as whom, is decided by the merged configuration, and by the runner for its
    own repository. A run for a fork may not write, and that is no fault of the change: nothing is raised.
    """
    policy = _with_runner(control, trusted, environment)
    control_secret = control_credential(environment)(control.remote)
    if control_secret and lacks_credential(policy, environment, control.remote):
        # A check of pull requests has no secret; the runner's own token may comment all the same.
        policy = replace(policy, credentials=())
    forges = Forges()
    try:
        with guard(f"comment on pull request {number}"):
            forges.configure(policy, _Find(policy, environment, forges), environment)
            forges.of(control).comment(number, key=KEY, body=body)
    except ReconcilerError as error:
        return str(error)
    return ""


class _Find:
    """The credential for an address: what the configuration names, else the control repository's own."""

    def __init__(self, policy: Policy, environment: Mapping[str, str], forges: Forges) -> None:
        self._named = find_credentials(policy, environment, forges.app_credential)
        self._own = control_credential(environment)

    def __call__(self, remote: str) -> Credential | None:
        return self._named(remote) or self._own(remote)


def _with_runner(control: Mirror, policy: Policy, environment: Mapping[str, str]) -> Policy:
    """Return the policy with the forge of this runner, if it hosts the control repository."""
    server, api = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_API_URL")
    rule = find_rule(policy.forges, control.remote)
    if rule or not server or not api or control.is_local:
        return policy
    gitea = "true" in (environment.get("GITEA_ACTIONS"), environment.get("FORGEJO_ACTIONS"))
    rule = ForgeRule(server, ForgeKind.GITEA if gitea else ForgeKind.GITHUB, api)
    return replace(policy, forges=(*policy.forges, rule)) if find_rule([rule], control.remote) else policy
