"""Credentials of repositories: looked up where the configuration says, and never kept anywhere else."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from reconciler.errors import UnavailableError
from reconciler.git.commit_signing import CommitSigning
from reconciler.git.urls import Credential
from reconciler.policy import CommitPolicy, CredentialRule, Policy, find_rule
from reconciler.report.redact import learn_credential

CONTROL_TOKEN = "RECONCILER_CONTROL_TOKEN"  # noqa: S105 - the name of a variable
CONTROL_KEY = "RECONCILER_CONTROL_SSH_KEY_FILE"
CONTROL_KNOWN_HOSTS = "RECONCILER_CONTROL_KNOWN_HOSTS_FILE"


def control_credential(environment: Mapping[str, str]) -> Callable[[str], Credential | None]:
    """Return what answers for the control repository, which is opened before a configuration is read."""
    token = environment.get(CONTROL_TOKEN, "")
    key, known = environment.get(CONTROL_KEY, ""), environment.get(CONTROL_KNOWN_HOSTS, "")
    learn_credential(token)
    _learn_key(key)
    found = Credential("", token, _path(key), _path(known)) if token or key or known else None
    return lambda _: found


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


def commit_signing(policy: CommitPolicy, environment: Mapping[str, str]) -> CommitSigning:
    """Return how commits are finished. The key is read when the first one is signed, not before.

    Reading it raises UnavailableError if the variable or file that the configuration names is not there.
    """
    if not policy.sign:
        return CommitSigning(policy.sign_off)
    return CommitSigning(policy.sign_off, lambda: _signing_key(policy, environment))


def _signing_key(policy: CommitPolicy, environment: Mapping[str, str]) -> bytes:
    hint = "Set it, or correct spec.commits of reconciler.yaml."
    if policy.signing_key_env:
        if found := environment.get(policy.signing_key_env, ""):
            return found.encode()
        message = f"Commits cannot be signed: environment variable {policy.signing_key_env} is not set"
        raise UnavailableError(message, hint=hint)
    try:
        return Path(policy.signing_key_file).read_bytes()
    except OSError as error:
        message = f"Commits cannot be signed: file {policy.signing_key_file} cannot be read"
        raise UnavailableError(message, hint=hint) from error


def _credential(rule: CredentialRule, environment: Mapping[str, str]) -> Credential:
    if rule.ssh_key_file:
        _learn_key(rule.ssh_key_file)
        return Credential(
            rule.username, ssh_key=Path(rule.ssh_key_file), known_hosts=_path(rule.known_hosts_file)
        )
    if rule.token_env:
        token = environment.get(rule.token_env, "")
        if not token:
            raise _missing(rule, f"environment variable {rule.token_env} is not set")
        learn_credential(token)
        return Credential(rule.username, token)
    try:
        token = Path(rule.token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _missing(rule, f"file {rule.token_file} cannot be read") from error
    if not token:
        raise _missing(rule, f"file {rule.token_file} is empty")
    learn_credential(token)
    return Credential(rule.username, token)


def _learn_key(path: str) -> None:
    """Mask a private key that ssh reads by itself; where it cannot be read here, ssh says so."""
    if path:
        with suppress(OSError, UnicodeDecodeError):
            learn_credential(Path(path).read_text(encoding="utf-8"))


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _missing(rule: CredentialRule, what: str) -> UnavailableError:
    hint = "Set it, or correct spec.credentials of reconciler.yaml."
    return UnavailableError(f"The credential for {rule.prefix} is missing: {what}", hint=hint)
