"""Credentials of registries: rules of spec.credentials, then what docker and podman have stored."""

import base64
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from reconciler.base.errors import UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.redact import learn_credential
from reconciler.git.urls import Credential

_HELPER = regex(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HELPER_SECONDS = 30
_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")
TOKEN_USER = "<token>"  # noqa: S105 - the user name that marks an identity token in docker's files
"""The user of a refresh token, as credential helpers write it."""

Find = Callable[[str], Credential | None]
"""Returns the credential of an address, https://HOST/NAME."""


def registry_credentials(environment: Mapping[str, str], configured: Find) -> Find:
    """Return the lookup of credentials: a rule of the configuration comes first.

    The files are those of docker and podman: $DOCKER_AUTH_CONFIG (their content), $REGISTRY_AUTH_FILE,
    config.json in $DOCKER_CONFIG or ~/.docker, and auth.json of podman; the first that knows the host counts.
    Each of them may name a credential helper.

    The lookup raises UnavailableError if a file or a helper that is named does not work.
    """

    def find(address: str) -> Credential | None:
        if (rule := configured(address)) is not None and rule.password:
            return rule
        name = address.partition("://")[2]
        for config, where in _configs(environment):
            credential = _stored(config, name, where, environment)
            if credential is not None:
                learn_credential(credential.password, where)
                return credential
        return None

    return find


def _configs(environment: Mapping[str, str]) -> Iterator[tuple[Mapping[str, Any], str]]:
    if text := environment.get("DOCKER_AUTH_CONFIG", ""):
        yield _parsed(text.encode(), "the variable DOCKER_AUTH_CONFIG"), "the variable DOCKER_AUTH_CONFIG"
    home, runtime = environment.get("HOME", ""), environment.get("XDG_RUNTIME_DIR", "")
    docker = environment.get("DOCKER_CONFIG", "") or (f"{home}/.docker" if home else "")
    paths = [
        environment.get("REGISTRY_AUTH_FILE", ""),
        docker and f"{docker}/config.json",
        runtime and f"{runtime}/containers/auth.json",
        home and f"{home}/.config/containers/auth.json",
    ]
    for path in filter(None, paths):
        try:
            yield _parsed(Path(path).read_bytes(), path), path
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UnavailableError(f"{path} cannot be read: {error.strerror}") from error


def _parsed(data: bytes, where: str) -> Mapping[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        hint = "`docker login` writes it anew."
        raise UnavailableError(f"{where} is no JSON: {error}", hint=hint) from error
    return value if isinstance(value, Mapping) else {}


def _stored(
    config: Mapping[str, Any], name: str, where: str, environment: Mapping[str, str]
) -> Credential | None:
    """Return the credential of a registry or, as podman has it, of a path in it; the longest match."""
    host = name.partition("/")[0]
    hosts = _HUB if host in _HUB else (host,)
    helpers = config.get("credHelpers")
    listed = helpers if isinstance(helpers, Mapping) else {}
    named = next((host for host in hosts if host in listed), "")
    if named:
        return _ask(str(listed[named]), named, where, environment)
    auths = config.get("auths")
    items = auths.items() if isinstance(auths, Mapping) else ()
    entries = {_plain(key): (key, entry) for key, entry in items}
    names = (name if host not in _HUB else "", *hosts)
    fitting = [key for key in entries if any(name == key or name.startswith(f"{key}/") for name in names)]
    key, entry = entries[max(fitting, key=len)] if fitting else (host, None)
    if store := config.get("credsStore"):
        return _ask(str(store), key, where, environment)
    if not isinstance(entry, Mapping):
        return None
    if token := str(entry.get("identitytoken") or ""):
        return Credential(TOKEN_USER, token)
    user, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if auth := str(entry.get("auth") or ""):
        try:
            user, _, password = base64.b64decode(auth, validate=True).decode().partition(":")
        except ValueError as error:
            raise UnavailableError(f"{where} has no readable credential for {key}") from error
    return Credential(user, password) if password else None


def _plain(key: str) -> str:
    """Return the registry and path of a key, which may be a URL of docker's first API."""
    text = key.rpartition("://")[2].rstrip("/")
    return text.removesuffix("/v1").removesuffix("/v2") if "://" in key else text


def _ask(helper: str, host: str, where: str, environment: Mapping[str, str]) -> Credential | None:
    """Return the credential that a helper of docker has; None if it has none."""
    program = f"docker-credential-{helper}"
    if not _HELPER.fullmatch(helper):
        raise UnavailableError(f"{where} names the credential helper {helper!r}, which is no program")
    try:
        done = subprocess.run(  # noqa: S603 - a program that the person's own file names, as docker runs it
            [program, "get"],
            input=host.encode(),
            capture_output=True,
            timeout=_HELPER_SECONDS,
            env={**os.environ, **environment},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        hint = f"Install {program}, or take it out of {where}."
        raise UnavailableError(f"{program} gives no credential for {host}: {error}", hint=hint) from error
    if done.returncode:
        return None
    value = _parsed(done.stdout, f"The answer of {program}")
    return Credential(str(value.get("Username") or ""), str(value.get("Secret") or ""))
