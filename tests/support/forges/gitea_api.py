"""A Gitea or Forgejo server at an address of the environment: what its administrator and people do there."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import httpx
import pytest

from reconciler.forge.api.forge import ApiForge
from reconciler.forge.api.gitea import Gitea
from reconciler.forge.http import Budget, Transport
from reconciler.http.client import SYSTEM_CLOCK, StaticToken
from reconciler.policy import ForgeKind, ForgeRule, WriteLimits
from tests.support.forges.bench import HEADS
from tests.support.git import Repo, kptfile, make_repository, run

URL, TOKEN = "RECONCILER_GITEA_URL", "RECONCILER_GITEA_TOKEN"
SCOPES = ("write:repository", "write:issue", "read:user", "read:organization")
"""Those that docs/forges.md asks for."""
FAST = WriteLimits(per_minute=6000, per_hour=60_000, max_wait_s=300)


class User(NamedTuple):
    """A user of the server, with a token of these scopes."""

    login: str
    password: str
    token: str


@dataclass
class GiteaServer:
    """A server on which an administrator makes an organization and users for tests, and deletes them.

    Only what this object made is ever changed. Every name has a random part.
    """

    url: str
    token: str
    root: Path
    organization: str = field(default_factory=lambda: f"reconciler-{secrets.token_hex(4)}")
    users: list[User] = field(default_factory=list)
    repositories: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.url = self.url.rstrip("/")
        self.client = httpx.Client(base_url=f"{self.url}/api/v1", timeout=60.0)

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Send a request as the administrator; the test fails if the server refuses it."""
        if "auth" not in options:
            options["headers"] = {"Authorization": f"token {self.token}"}
        reply = self.client.request(method, path, json=body, **options)
        assert reply.status_code < 300, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json() if reply.content else None

    def create(self) -> None:
        """Make the organization, the user whose token the tests use, and a person."""
        self.call("POST", "/orgs", {"username": self.organization, "visibility": "public"})
        for name in ("bot", "kim"):
            self.add_user(name)

    def add_user(self, name: str, scopes: tuple[str, ...] = SCOPES) -> User:
        """Make a user with a token of these scopes."""
        login, password = f"{self.organization}-{name}", f"Aa1!{secrets.token_hex(12)}"
        account = {"username": login, "email": f"{login}@example.com", "password": password}
        self.call("POST", "/admin/users", {**account, "must_change_password": False})
        made = User(login, password, self.add_token(login, password, scopes))
        self.users.append(made)
        return made

    def add_token(self, login: str, password: str, scopes: tuple[str, ...]) -> str:
        """Make another token of a user."""
        body = {"name": secrets.token_hex(4), "scopes": list(scopes)}
        return str(self.call("POST", f"/users/{login}/tokens", body, auth=(login, password))["sha1"])

    def delete(self) -> None:
        """Delete everything that was made, whatever fails on the way."""
        paths = [f"/repos/{self.organization}/{name}" for name in self.repositories]
        paths += [f"/orgs/{self.organization}"]
        paths += [f"/admin/users/{user.login}?purge=true" for user in self.users]
        failed = []
        for path in paths:
            try:
                self.call("DELETE", path)
            except (AssertionError, httpx.HTTPError) as error:
                failed.append(str(error))
        self.client.close()
        assert not failed, f"Delete these by hand: {failed}"

    @property
    def bot(self) -> User:
        """The user whose token the tests use."""
        return self.users[0]

    @property
    def person(self) -> User:
        """A person who may write to every repository."""
        return self.users[1]

    def host(self, repo: Repo, name: str) -> "HostedRepository":
        """Make a repository of the organization, with every branch of a local one."""
        settings = {"name": name, "default_branch": "main", "private": False, "auto_init": False}
        self.call("POST", f"/orgs/{self.organization}/repos", settings)
        self.repositories.append(name)
        for user in self.users[:2]:
            path = f"/repos/{self.organization}/{name}/collaborators/{user.login}"
            self.call("PUT", path, {"permission": "write"})
        hosted = HostedRepository(self, name, repo)
        hosted.push("main", "--all")
        hosted.wait(lambda: not hosted.call("GET", "")["empty"], "the first push")
        return hosted


@dataclass
class HostedRepository:
    """A repository on the server, and a local one from which people push to it."""

    server: GiteaServer
    name: str
    repo: Repo

    @property
    def full_name(self) -> str:
        """Owner and name."""
        return f"{self.server.organization}/{self.name}"

    @property
    def url(self) -> str:
        """The address of the repository for git."""
        return f"{self.server.url}/{self.full_name}.git"

    def push(self, *refs: str) -> None:
        """Push as the administrator."""
        options = [ref for ref in refs if ref.startswith("--")]
        names = [] if "--all" in options else [ref for ref in refs if not ref.startswith("--")]
        self._git("push", "-q", *options, self.url, *names)

    def refs(self) -> dict[str, str]:
        """Return the refs of the server."""
        listed = self._git("ls-remote", self.url).splitlines()
        return {ref: oid for oid, _, ref in (line.partition("\t") for line in listed)}

    def _git(self, *arguments: str) -> str:
        """Run git as the administrator, whose token no message shows."""
        parts, token = urlsplit(self.server.url), self.server.token
        address = self.url.replace(parts.netloc, f"x-access-token:{token}@{parts.netloc}", 1)
        given = [address if argument == self.url else argument for argument in arguments]
        try:
            return run(*given, cwd=self.repo.path)
        except AssertionError as error:
            raise AssertionError(str(error).replace(token, "***")) from None

    def call(self, method: str, path: str = "", body: Any = None) -> Any:
        """Send a request about this repository as the administrator."""
        return self.server.call(method, f"/repos/{self.full_name}{path}", body)

    def pulls(self) -> list[dict[str, Any]]:
        """Return the newest fifty pull requests as the server has them, by number."""
        listed = self.call("GET", "/pulls?state=all&limit=50")
        return sorted(listed, key=lambda pull: int(pull["number"]))

    def open_heads(self) -> list[str]:
        """Return the heads of the open pull requests, by number."""
        return [pull["head"]["label"] for pull in self.pulls() if pull["state"] == "open"]

    def wait(self, condition: Any, what: str) -> None:
        """Wait until something holds that the server does some time after a push."""
        for _ in range(100):
            if condition():
                return
            SYSTEM_CLOCK.sleep(0.2)
        raise AssertionError(f"{self.full_name}: {what} did not happen within 20 s")


class GiteaBench:
    """A repository with two draft branches on the server; `again` is the forge as another process sees it."""

    def __init__(self, server: GiteaServer) -> None:
        self.server = server
        name = f"edge-{len(server.repositories)}"
        repo = make_repository(server.root / f"{server.organization}-{name}.git", {"README.md": "edge\n"})
        for package, head in HEADS.items():
            repo.commit({f"{package}/Kptfile": kptfile(package)}, branch=head, start="main")
        self.hosted = server.host(repo, name)
        self.forge = self.again()

    def again(self, token: str = "", url: str = "", **settings: Any) -> ApiForge:
        """Return the forge as another process sees it, with another token or other settings if given."""
        transport = Transport(
            f"{url or self.server.url}/api/v1", StaticToken(token or self.server.bot.token), Budget(FAST)
        )
        rule = ForgeRule("*", ForgeKind.GITEA, **settings)
        return ApiForge(Gitea(transport, self.hosted.full_name, rule), transport, "fleet")

    def push(self, head: str) -> str:
        """Add a person's commit to a branch; return its id."""
        oid = self.hosted.repo.commit({"notes.md": head}, branch=head, message="A person's\n")
        self.hosted.push(head)
        return str(oid)

    def delete(self, head: str) -> None:
        """Delete a branch; the server closes its pull requests in the background."""
        self.hosted.push("--delete", head)
        self.hosted.wait(lambda: head not in self.hosted.open_heads(), "the close")


@contextmanager
def gitea_server(root: Path) -> Iterator[GiteaServer]:
    """Return the server that the environment names, with an organization and users of its own."""
    url, token = os.environ.get(URL, ""), os.environ.get(TOKEN, "")
    if not url or not token:
        pytest.fail(f"Set {URL} and {TOKEN}, the token of an administrator with all scopes", pytrace=False)
    server = GiteaServer(url, token, root)
    try:
        server.create()
        yield server
    finally:
        server.delete()


def other_address(url: str) -> str:
    """Return another address of a server on this machine, the same one elsewhere."""
    names = {"127.0.0.1": "localhost", "localhost": "127.0.0.1"}
    host = urlsplit(url).hostname or ""
    return url.replace(quote(host), names.get(host, host), 1)
