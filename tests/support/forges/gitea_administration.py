"""The simulated Gitea with its administration, for the tests that also run on a real server."""

import base64
import re
import time
from dataclasses import dataclass, field
from typing import Any

from tests.support.forges.gitea import GiteaSimulator
from tests.support.forges.server import Answer, Fault, Hosted, Pull
from tests.support.git import make_repository

ADMIN = "administrator"
_PASSED = {"success": True, "pending": None}


class RealClock:
    """The clock of this machine: the clients of a real server wait as long as they must."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(eq=False)
class GiteaAdministration(GiteaSimulator):
    """Users with tokens of scopes, organizations and repositories, which an administrator makes.

    A creation does not see pull requests of the last moment, as a look before an insert without a lock does
    not. Source: https://docs.gitea.com/api/1.22/, the operations of administrators and organizations.
    """

    passwords: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Login and scopes of each token."""
    race_s: float = 0.0

    def __post_init__(self) -> None:
        self.tokens[self.token] = (ADMIN, ("all",))

    def tokens_in_use(self) -> set[str]:
        return set(self.tokens)

    def authorized(self, authorization: str, path: str) -> bool:
        if path.endswith("/tokens"):
            pair = base64.b64decode(authorization.rpartition(" ")[2]).decode()
            login, _, password = pair.partition(":")
            return bool(password) and self.passwords.get(login) == password
        return super().authorized(authorization, path)

    def _answer(
        self,
        method: str,
        path: str,
        query: str,
        body: Any,
        authorization: str,
        fault: Fault | None,
        *,
        writes: bool,
    ) -> Answer:
        login, scopes = self.tokens.get(authorization.rpartition(" ")[2], ("", ()))
        self.bot = login
        self.may_write = login == "" or bool({"all", "write:repository"} & {*scopes})
        return super()._answer(method, path, query, body, authorization, fault, writes=writes)

    def obeys(self, why: str, method: str, path: str) -> bool:
        # A repository leaves its archive by a change of its settings.
        is_setting = re.fullmatch(r"/repos/[^/]+/[^/]+", path) is not None
        return not is_setting and super().obeys(why, method, path)

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        match method, path.strip("/").split("/"):
            case "POST", ["admin", "users"]:
                self.passwords[body["username"]] = body["password"]
                self.users = (*self.users, body["username"])
                return Answer(201, {"login": body["username"]})
            case "DELETE", ["admin", "users", login]:
                del self.passwords[login]
                return Answer(204, None)
            case "POST", ["users", login, "tokens"]:
                token = f"token-{len(self.tokens)}"
                self.tokens[token] = (login, tuple(body["scopes"]))
                return Answer(201, {"sha1": token})
            case "POST", ["orgs"]:
                return Answer(201, {"username": body["username"]})
            case "DELETE", ["orgs", name]:
                left = [hosted for hosted in self.repositories if hosted.startswith(f"{name}/")]
                refusal = Answer(500, {"message": "user still has ownership of repositories"})
                self.organization_labels.clear()
                return refusal if left else Answer(204, None)
            case "POST", ["orgs", owner, "repos"]:
                repo = make_repository(self.root / owner / f"{body['name']}.git")
                self.host(f"{owner}/{body['name']}", repo)
                return Answer(201, {"full_name": f"{owner}/{body['name']}"})
            case "POST", ["orgs", _, "labels"]:
                number = 900 + len(self.organization_labels)
                self.organization_labels[body["name"]] = number
                return Answer(201, {"id": number, "name": body["name"]})
            case "PUT", ["repos", _, _, "collaborators", _]:
                return Answer(204, None)
            case _, ["repos", owner, name, *rest]:
                return self._of_repository(f"{owner}/{name}", method, rest, query, body)
        return super().answer(method, path, query, body)

    def _of_repository(
        self, name: str, method: str, rest: list[str], query: dict[str, str], body: Any
    ) -> Answer:
        hosted = self.repositories.get(name)
        path = "/".join(("/repos", name, *rest))
        match method, rest:
            case "DELETE", [] if hosted:
                del self.repositories[name]
                return Answer(204, None)
            case "PATCH", [] if hosted:
                hosted.style = body.get("default_merge_style", hosted.style)
                hosted.archived = body.get("archived", hosted.archived)
                hosted.has_pulls = body.get("has_pull_requests", hosted.has_pulls)
                return super().answer("GET", path, query, body)
            case "POST", ["branch_protections"] if hosted:
                hosted.refuses_merge = "review" if body.get("required_approvals") else ""
                hosted.required = tuple(body.get("status_check_contexts", ()))
                return Answer(201, {"rule_name": body["rule_name"]})
            case "POST", ["statuses", commit] if hosted:
                self.check(name, commit, body["context"], passed=_PASSED.get(body["state"], False))
                return Answer(201, {"context": body["context"], "status": body["state"]})
        return super().answer(method, path, query, body)

    def new_pull(self, hosted: Hosted, **fields: Any) -> Pull:
        return super().new_pull(hosted, **fields, author=self.bot)

    def _open(self, hosted: Hosted, body: Any) -> Answer:
        latest = [p.created for p in hosted.pulls.values() if p.head == body["head"] and p.state == "open"]
        self.lets_in = bool(latest) and min(latest) > self.clock.now() - self.race_s
        return super()._open(hosted, body)
