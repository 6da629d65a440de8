"""Look up credentials of repositories, and the signing key, in environment and files."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.base.errors import UnavailableError
from reconciler.base.redact import learn_credential
from reconciler.git.local import read_secret
from reconciler.git.signing import CommitSigning
from reconciler.git.urls import Credential

if TYPE_CHECKING:
    from reconciler.policy import CommitPolicy, CredentialRule, Policy

CONTROL_TOKEN = "RECONCILER_CONTROL_TOKEN"  # noqa: S105 - the name of a variable
CONTROL_KEY = "RECONCILER_CONTROL_SSH_KEY_FILE"
CONTROL_KNOWN_HOSTS = "RECONCILER_CONTROL_KNOWN_HOSTS_FILE"


def control_credential(environment: Mapping[str, str]) -> Callable[[str], Credential | None]:
    """Return the credential lookup for the control repository, which is opened before its configuration."""
    token = environment.get(CONTROL_TOKEN, "")
    key, known_hosts = environment.get(CONTROL_KEY, ""), environment.get(CONTROL_KNOWN_HOSTS, "")
    learn_credential(token, f"the variable {CONTROL_TOKEN}")
    _learn_key(key)
    is_set = token or key or known_hosts
    credential = Credential("", token, _path(key), _path(known_hosts)) if is_set else None
    return lambda _: credential


def find_credentials(
    policy: "Policy",
    environment: Mapping[str, str],
    app: Callable[["CredentialRule"], Credential] | None = None,
) -> Callable[[str], Credential | None]:
    """Return the credential lookup by address: the longest matching rule counts.

    The lookup raises UnavailableError if the variable or file of a rule is missing, so that only the
    repositories of that rule are unreadable. `app` creates the credential of a rule for a GitHub App.
    """

    def find(remote: str) -> Credential | None:
        from reconciler.policy import find_rule  # noqa: PLC0415 - the control repository is opened without it

        rule = find_rule(policy.credentials, remote)
        if rule is not None and rule.app_id and app is not None:
            return app(rule)
        return None if rule is None else _credential(rule, environment)

    return find


def lacks_credential(policy: "Policy", environment: Mapping[str, str], remote: str) -> bool:
    """Tell whether the rule of an address names a variable that is not set, or a file that is not there."""
    from reconciler.policy import find_rule  # noqa: PLC0415 - as above

    rule = find_rule(policy.credentials, remote)
    if rule is None:
        return False
    variables = filter(None, (rule.token_env, rule.app_key_env))
    files = filter(None, (rule.token_file, rule.app_key_file, rule.ssh_key_file))
    return not (all(map(environment.get, variables)) and all(Path(file).is_file() for file in files))


def commit_signing(policy: "CommitPolicy", environment: Mapping[str, str]) -> CommitSigning:
    """Return the signing of commits. The key is read when the first one is signed.

    Reading it raises UnavailableError if its variable or file is missing.
    """
    if not policy.sign:
        return CommitSigning(policy.sign_off)
    return CommitSigning(policy.sign_off, lambda: _signing_key(policy, environment))


def _signing_key(policy: "CommitPolicy", environment: Mapping[str, str]) -> bytes:
    hint = "Set it, or correct spec.commits of reconciler.yaml."
    if policy.signing_key_env:
        if key := environment.get(policy.signing_key_env, ""):
            return key.encode()
        message = f"Commits cannot be signed: environment variable {policy.signing_key_env} is not set"
        raise UnavailableError(message, hint=hint)
    try:
        return read_secret(policy.signing_key_file)
    except OSError as error:
        message = f"Commits cannot be signed: file {policy.signing_key_file} cannot be read: {error.strerror}"
        raise UnavailableError(message, hint=hint) from error


def _credential(rule: "CredentialRule", environment: Mapping[str, str]) -> Credential:
    if rule.ssh_key_file:
        _learn_key(rule.ssh_key_file)
        known_hosts = _path(rule.known_hosts_file)
        return Credential(rule.username, ssh_key=Path(rule.ssh_key_file), known_hosts=known_hosts)
    token = _token(rule, environment)
    origin = f"the variable {rule.token_env}" if rule.token_env else f"the file {rule.token_file}"
    learn_credential(token, origin)
    return Credential(rule.username, token)


def _token(rule: "CredentialRule", environment: Mapping[str, str]) -> str:
    if rule.token_env:
        if token := environment.get(rule.token_env, ""):
            return token
        raise _missing(rule, f"environment variable {rule.token_env} is not set")
    try:
        token = read_secret(rule.token_file).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "it is no text")
        raise _missing(rule, f"file {rule.token_file} cannot be read: {why}") from error
    if not token:
        raise _missing(rule, f"file {rule.token_file} is empty")
    return token


def _learn_key(path: str) -> None:
    """Mask a private key that ssh reads by itself; ssh reports one that is unreadable."""
    if path:
        with suppress(OSError, UnicodeDecodeError):
            learn_credential(read_secret(path).decode(), f"the file {path}")


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _missing(rule: "CredentialRule", why: str) -> UnavailableError:
    hint = "Set it, or correct spec.credentials of reconciler.yaml."
    return UnavailableError(f"The credential for {rule.prefix} is missing: {why}", hint=hint)
