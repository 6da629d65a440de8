"""Which credential a registry gets: of the configuration, of the files of docker and podman, of helpers."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.base.redact import mask_credentials
from reconciler.git.urls import Credential
from reconciler.sources.credentials import registry_credentials

HOST = "reg.example.com"
KIM = {"username": "kim", "password": "of-kim"}
ENCODED = {"auth": base64.b64encode(b"kim:of:kim").decode()}
DOCKER, PODMAN = "home/.docker/config.json", "home/.config/containers/auth.json"


def auths(**entries: Any) -> dict[str, Any]:
    return {"auths": entries}


def found(root: Path, files: dict[str, Any], address: str = f"https://{HOST}/acme/aws") -> Credential | None:
    """Look an address up where files have these values; `env` is the content of the variable."""
    for path, value in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if path.startswith("bin/"):
            file.write_text(f"#!/bin/sh\nread host\n{value}\n")
            file.chmod(0o755)
        elif isinstance(value, str):
            file.write_text(value)
        else:
            file.write_bytes(json.dumps(value).encode())
    environment = {
        "HOME": f"{root}/home",
        "XDG_RUNTIME_DIR": f"{root}/run",
        "PATH": f"{root}/bin:/bin:/usr/bin",
    }
    places = {"DOCKER_CONFIG": root / "docker", "REGISTRY_AUTH_FILE": root / "registry.json"}
    environment |= {name: str(path) for name, path in places.items() if path.exists()}
    if "env" in files:
        environment["DOCKER_AUTH_CONFIG"] = (root / "env").read_text()
    return registry_credentials(environment, lambda _: None)(address)


@pytest.mark.parametrize(
    "place", ["env", DOCKER, PODMAN, "docker/config.json", "registry.json", "run/containers/auth.json"]
)
def test_every_file_of_docker_and_podman_counts(tmp_path: Path, place: str) -> None:
    assert found(tmp_path, {place: auths(**{HOST: KIM})}) == Credential("kim", "of-kim")


def test_the_first_file_that_knows_the_host_counts(tmp_path: Path) -> None:
    order = ["env", "registry.json", "docker/config.json", "run/containers/auth.json", PODMAN]
    files: dict[str, Any] = {
        place: auths(**{HOST: {"username": place, "password": "p"}}) for place in reversed(order)
    }
    for place in order:
        credential = found(tmp_path, files)
        assert credential is not None
        assert credential.username == place
        files[place] = auths(**{"other.example.com": KIM})
    assert found(tmp_path, files) is None


HUB = "https://registry-1.docker.io/library/redis"
ENTRIES = [
    ("user and password", auths(**{HOST: KIM}), Credential("kim", "of-kim")),
    ("encoded, with a colon in the password", auths(**{HOST: ENCODED}), Credential("kim", "of:kim")),
    ("an identity token before all else", auths(**{HOST: {**ENCODED, "identitytoken": "t"}}),
        Credential("<token>", "t")),
    ("a URL", auths(**{f"https://{HOST}/v1/": KIM}), Credential("kim", "of-kim")),
    ("a URL of the second API", auths(**{f"https://{HOST}/v2/": KIM}), Credential("kim", "of-kim")),
    ("the longest path", auths(**{HOST: ENCODED, f"{HOST}/acme": KIM}), Credential("kim", "of-kim")),
    ("no path of a longer name", auths(**{f"{HOST}/acm": KIM}), None),
    ("no path v1 of a name without a scheme", auths(**{f"{HOST}/v1": KIM}), None),
    ("another host", auths(**{f"x.{HOST}": KIM}), None),
    ("a user without a password", auths(**{HOST: {"username": "kim"}}), None),
    ("nothing of a host", auths(**{HOST: {}}), None),
    ("no mapping of a host", auths(**{HOST: "x"}), None),
    ("no mapping of hosts", {"auths": ["x"], "credHelpers": ["x"]}, None),
    ("no mapping at all", ["x"], None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "credential"), [row[1:] for row in ENTRIES], ids=[row[0] for row in ENTRIES]
)
def test_entry_of_a_file(tmp_path: Path, config: Any, credential: Credential | None) -> None:
    assert found(tmp_path, {DOCKER: config}) == credential


@pytest.mark.parametrize("key", ["https://index.docker.io/v1/", "docker.io", "registry-1.docker.io"])
def test_docker_hub_has_several_names_and_no_paths(tmp_path: Path, key: str) -> None:
    config = auths(**{key: KIM, "docker.io/library": ENCODED})

    assert found(tmp_path, {DOCKER: config}, HUB) == Credential("kim", "of-kim")
    assert found(tmp_path, {DOCKER: config}) is None


ANSWER = 'printf \'{"Username": "kim", "Secret": "of-%s"}\' "$host"'


@pytest.mark.parametrize(
    ("config", "address", "secret"),
    [
        ({"credHelpers": {HOST: "own"}, "credsStore": "no"}, f"https://{HOST}/x", f"of-{HOST}"),
        ({"credHelpers": {"x.org": "no"}, "credsStore": "own"}, f"https://{HOST}/x", f"of-{HOST}"),
        ({"credHelpers": {"docker.io": "own"}}, HUB, "of-docker.io"),
        ({"credsStore": "own", **auths(**{"https://index.docker.io/v1/": {}})}, HUB,
            "of-https://index.docker.io/v1/"),
    ],
    ids=["of the host", "of the store", "of another name of the host", "by the key that docker stored"],
)  # fmt: skip
def test_a_helper_is_asked_for_the_host_as_it_is_stored(
    tmp_path: Path, config: Any, address: str, secret: str
) -> None:
    files = {DOCKER: config, "bin/docker-credential-own": ANSWER}

    assert found(tmp_path, files, address) == Credential("kim", secret)


def test_a_helper_that_has_none_gives_none_and_the_next_file_counts(tmp_path: Path) -> None:
    files = {DOCKER: {"credsStore": "own"}, "bin/docker-credential-own": f"{ANSWER}\nexit 1"}

    assert found(tmp_path, files) is None
    assert found(tmp_path, {**files, PODMAN: auths(**{HOST: KIM})}) == Credential("kim", "of-kim")


@pytest.mark.parametrize(
    ("files", "message", "hint"),
    [
        ({"env": "{"}, "the variable DOCKER_AUTH_CONFIG is no JSON: ", "`docker login` writes it anew."),
        ({DOCKER: "{"}, r"/home/\.docker/config\.json is no JSON: ", "`docker login`"),
        ({f"{DOCKER}/x": ""}, r"config\.json cannot be read: Is a directory", ""),
        ({DOCKER: auths(**{HOST: {"auth": "§"}})}, rf"config\.json has no readable credential for {HOST}",
            ""),
        ({DOCKER: {"credsStore": "../sh"}}, r"names the credential helper '\.\./sh', which is no program",
            ""),
        ({DOCKER: {"credsStore": "no"}}, f"docker-credential-no gives no credential for {HOST}: ",
            "Install docker-credential-no"),
        ({DOCKER: {"credsStore": "own"}, "bin/docker-credential-own": "echo x"},
            "The answer of docker-credential-own is no JSON", ""),
    ],
)  # fmt: skip
def test_what_is_named_and_does_not_work_is_an_error(
    tmp_path: Path, files: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UnavailableError, match=message) as caught:
        found(tmp_path, files)
    assert hint in (caught.value.hint or "")


def test_a_rule_of_the_configuration_comes_first_if_it_has_a_password() -> None:
    stored = {
        "DOCKER_AUTH_CONFIG": json.dumps(auths(**{HOST: {"username": "kim", "password": "stored-of-kim"}}))
    }
    rules = {f"https://{HOST}/a": Credential("robot", "rule"), f"https://{HOST}/b": Credential("robot", "")}
    find = registry_credentials(stored, rules.get)

    assert find(f"https://{HOST}/a") == Credential("robot", "rule")
    assert find(f"https://{HOST}/b") == find(f"https://{HOST}/c") == Credential("kim", "stored-of-kim")
    assert "stored-of-kim" not in mask_credentials("it was stored-of-kim")
