"""Credentials of repositories: looked up where the configuration says, and never kept anywhere else."""

from collections.abc import Callable, Mapping
from pathlib import Path

from reconciler.errors import UnavailableError
from reconciler.git.urls import Credential
from reconciler.policy import CredentialRule, Policy, find_rule

CONTROL_TOKEN = "RECONCILER_CONTROL_TOKEN"  # noqa: S105 - the name of a variable


def control_credential(environment: Mapping[str, str]) -> Callable[[str], Credential | None]:
    """Return what answers for the control repository, which is opened before a configuration is read."""
    token = environment.get(CONTROL_TOKEN, "")
    return lambda _: Credential("", token) if token else None


def find_credentials(
    policy: Policy,
    environment: Mapping[str, str],
    app: Callable[[CredentialRule], Credential] | None = None,
) -> Callable[[str], Credential | None]:
    """Return what answers with the credential for an address: of the longest matching rule, else none.

    What it returns raises UnavailableError if the variable or file that the rule names is not there:
    the repositories of that rule cannot be read, and the others can.
    """

    def find(remote: str) -> Credential | None:
        rule = find_rule(policy.credentials, remote)
        if rule is not None and rule.app_id and app is not None:
            return app(rule)
        return None if rule is None else _credential(rule, environment)

    return find


def _credential(rule: CredentialRule, environment: Mapping[str, str]) -> Credential:
    if rule.ssh_key_file:
        return Credential(rule.username, ssh_key=Path(rule.ssh_key_file))
    if rule.token_env:
        token = environment.get(rule.token_env, "")
        if not token:
            raise _missing(rule, f"environment variable {rule.token_env} is not set")
        return Credential(rule.username, token)
    try:
        token = Path(rule.token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _missing(rule, f"file {rule.token_file} cannot be read") from error
    if not token:
        raise _missing(rule, f"file {rule.token_file} is empty")
    return Credential(rule.username, token)


def _missing(rule: CredentialRule, what: str) -> UnavailableError:
    hint = "Set it, or correct spec.credentials of reconciler.yaml."
    return UnavailableError(f"The credential for {rule.prefix} is missing: {what}", hint=hint)
