"""Bitbucket Cloud as its published description describes it, as far as we use it."""

import re
from dataclasses import dataclass
from typing import Any

from reconciler.git.urls import Credential
from tests.support.forges.server import Answer, Hosted, Pull, Simulator

_STYLES = {"merge_commit": "merge", "squash": "squash", "rebase_merge": "rebase"}
_STATES = {True: "SUCCESSFUL", False: "FAILED", None: "INPROGRESS"}
_SHOWN = {"open": "OPEN", "closed": "DECLINED"}
_FILTER = re.compile(r'state = "OPEN"(?: AND source\.branch\.name = "(.+)")?|state != "OPEN"|id > 0')


@dataclass(eq=False)
class BitbucketSimulator(Simulator):
    """Pull requests with the first digits of their commits; what was declined stays that; no labels.

    Assumed, as nothing documents it: who may not write to a repository is told so, a pull request outlives
    its target branch and not its source branch, and what a merge check demands is named.

    Source: https://developer.atlassian.com/cloud/bitbucket/rest/api-group-pullrequests/ and
    .../api-group-commit-statuses/; https://github.com/jenkinsci/bitbucket-branch-source-plugin/pull/63,
    hashes of twelve digits.
    """

    closes_with_base: bool = False

    def credential(self) -> Credential:
        return Credential("x-token-auth", self.token)

    def limited(self, kind: str) -> Answer:
        if kind == "exists":
            return _error(400, "There is already a pull request for these branches")
        return _error(429, "Rate limit for this resource has been exceeded", {"Retry-After": "25"})

    def forbidden(self, kind: str, hosted: Hosted) -> Answer:
        if kind == "archived":
            return _error(403, f"Repository {hosted.name} is read-only")
        return _error(403, "Your credentials lack one or more required privilege scopes.")

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        if path == "/user":
            return Answer(200, {"uuid": self._id(self.bot)})
        if re.fullmatch(r"/workspaces/[^/]+/members", path):
            members = [{"user": {"uuid": self._id(name), "nickname": name}} for name in self.users]
            return self._paged(members, query, path)
        match = re.fullmatch(r"/repositories/([^/]+/[^/]+)(?:/(.*))?", path)
        hosted = self.repositories.get(match[1]) if match else None
        if match is None or hosted is None:
            return _error(404, "Repository not found")
        rest = match[2] or ""
        if not rest:
            return Answer(200, {"uuid": self._id(hosted.name), "mainbranch": {"name": "main"}})
        if match := re.fullmatch(r"commit/(\w+)(/statuses(?:/build)?)?", rest):
            return self._commit(hosted, match[1], match[2] or "", query, body)
        if rest == "refs/branches":
            heads = {ref: oid for ref, oid in hosted.repo.refs().items() if ref.startswith("refs/heads/")}
            branches = [{"name": ref[11:], "target": {"hash": oid}} for ref, oid in sorted(heads.items())]
            return self._paged(branches, query, path)
        if rest == "pullrequests":
            return self._list(hosted, query, path) if method == "GET" else self._open(hosted, body)
        match = re.fullmatch(r"pullrequests/(\d+)(?:/(.*))?", rest)
        pull = hosted.pulls.get(int(match[1])) if match else None
        if match is None or pull is None or not pull.head:
            return _error(404, "Pull request not found")
        if (method, match[2]) == ("GET", "comments"):
            return self._paged([self._comment(n, *c) for n, c in pull.comments.items()], query, path)
        return self._of_pull(hosted, self.refreshed(hosted, pull), f"{method} {match[2] or ''}", body)

    def _commit(self, hosted: Hosted, commit: str, what: str, query: dict[str, str], body: Any) -> Answer:
        if not what:
            return Answer(200, {"hash": str(hosted.repo.git.revparse_single(commit).id)})
        if what == "/statuses/build":
            state = {"SUCCESSFUL": "success"}.get(body["state"], "failure")
            assert hosted.ref(body["refname"]) == commit
            if len(body["key"]) > 40:
                return _error(
                    400, f"key: Ensure this value has at most 40 characters (it has {len(body['key'])})."
                )
            hosted.set_status(commit, body["key"], state, body["description"])
            return Answer(201, body)
        checks = hosted.checks.get(commit, {})
        return self._paged([{"key": n, "state": _STATES[p]} for n, p in checks.items()], query, "")

    def _of_pull(self, hosted: Hosted, pull: Pull, what: str, body: Any) -> Answer:
        number = 1 + max((n for p in hosted.pulls.values() for n in p.comments), default=0)
        match what:
            case "GET ":
                return Answer(200, self.shown(hosted, pull))
            case "PUT " if pull.state != "open":
                return _error(400, "Only open pull requests can be mutated")
            case "PUT ":
                names = {self._id(name): name for name in self.users}
                pull.title, pull.body = body["title"], body.get("description", pull.body)
                pull.draft = body.get("draft", pull.draft)
                pull.reviewers = sorted(names[user["uuid"]] for user in body.get("reviewers", ()))
                pull.base = body.get("destination", {"branch": {"name": pull.base}})["branch"]["name"]
                pull.updated = self.clock.now()
                return Answer(200, self.shown(hosted, pull))
            case "POST decline":
                if pull.state == "open":
                    self.close(hosted.name, pull.number)
                return Answer(200, self.shown(hosted, pull))
            case "POST merge":
                return self._merge(hosted, pull, body)
            case "POST comments":
                pull.comments[number] = (self.bot, body["content"]["raw"])
                pull.updated = self.clock.now()
                return Answer(201, self._comment(number, *pull.comments[number]))
        number = int(what.rpartition("/")[2])
        if number not in pull.comments:
            return _error(404, "Comment not found")
        if what.startswith("DELETE "):
            del pull.comments[number]
            return Answer(204, None)
        pull.comments[number] = (self.bot, body["content"]["raw"])
        return Answer(200, self._comment(number, *pull.comments[number]))

    def _merge(self, hosted: Hosted, pull: Pull, body: Any) -> Answer:
        if pull.state != "open" or pull.draft:
            return _error(400, "This pull request cannot be merged: it is a draft, or it is closed")
        if _STYLES[body["merge_strategy"]] != hosted.style:
            return _error(400, f"{body['merge_strategy']} is no permitted merge strategy of this branch")
        if hosted.refuses_merge == "person":
            return _error(403, "You do not have permission to merge into this branch")
        if hosted.refuses_merge == "review":
            return _error(400, "Merge checks failed: 1 approval is needed")
        if self.missing_checks(hosted, pull):
            return _error(400, "Merge checks failed: 1 successful build is needed")
        if self.is_checking(hosted):
            return Answer(202, None)
        self.merge(hosted.name, pull.number, hosted.style)
        return Answer(200, self.shown(hosted, pull))

    def _list(self, hosted: Hosted, query: dict[str, str], path: str) -> Answer:
        match = _FILTER.fullmatch(query["q"])
        assert match, query["q"]
        pulls = [self.refreshed(hosted, p) for p in hosted.pulls.values() if p.head and self.visible(p)]
        pulls.sort(key=lambda p: (p.created, p.number))
        if query["sort"] == "-updated_on":
            pulls.sort(key=lambda p: (-p.updated, -p.number))
        shown = [self.shown(hosted, p) for p in pulls]
        if query["q"] != "id > 0":
            is_open = query["q"].startswith("state =")
            shown = [item for item in shown if (item["state"] == "OPEN") is is_open]
        if match[1]:
            shown = [item for item in shown if item["source"]["branch"]["name"] == match[1]]
        return self._paged(shown, query, path)

    def _paged(self, items: list[Any], query: dict[str, str], path: str) -> Answer:
        answer = self.paged(items, query, path, min(100, int(query.get("pagelen", 10))))
        following = {"next": "https://api.bitbucket.org/2.0/x?page=2"} if "Link" in answer.headers else {}
        return Answer(200, {"values": answer.body, "page": int(query.get("page", 1)), **following})

    def _open(self, hosted: Hosted, body: Any) -> Answer:
        head, base = (body[name]["branch"]["name"] for name in ("source", "destination"))
        for name in (head, base):
            if hosted.ref(name) is None:
                return _error(400, f"branch {name} not found")
        current = [self.refreshed(hosted, p) for p in hosted.pulls.values()]
        is_open = any((p.head, p.base, p.state, p.fork) == (head, base, "open", False) for p in current)
        if is_open and not self.lets_in:
            return self.limited("exists")
        fields = {"title": body["title"], "body": body["description"], "draft": body["draft"]}
        return Answer(201, self.shown(hosted, self.new_pull(hosted, **fields, head=head, base=base)))

    def _id(self, name: str) -> str:
        return f"{{{name.encode().hex()}}}"

    def _comment(self, number: int, login: str, text: str) -> dict[str, Any]:
        return {"id": number, "content": {"raw": text}, "user": {"uuid": self._id(login)}, "deleted": False}

    def shown(self, hosted: Hosted, pull: Pull) -> dict[str, Any]:
        def branch(name: str, oid: str, *, fork: bool = False) -> dict[str, Any]:
            strategies = [strategy for strategy, style in _STYLES.items() if style == hosted.style]
            repository = {"uuid": self._id(f"{hosted.name}{'-fork' * fork}")}
            commit = {"hash": oid[:12]} if oid else None
            shown = {"name": name, "merge_strategies": strategies, "default_merge_strategy": strategies[0]}
            return {"branch": shown, "commit": commit, "repository": repository}

        return {
            "id": pull.number,
            "title": pull.title,
            "description": pull.body,
            "state": "MERGED" if pull.merged else _SHOWN[pull.state],
            "draft": pull.draft,
            "source": branch(pull.head, pull.head_oid, fork=pull.fork),
            "destination": branch(pull.base, hosted.ref(pull.base) or ""),
            "merge_commit": {"hash": pull.merge_oid[:12]} if pull.merge_oid else None,
            "reviewers": [{"uuid": self._id(name)} for name in pull.reviewers],
            "links": {"html": {"href": f"{self.address}/{hosted.name}/pull-requests/{pull.number}"}},
            "created_on": self.stamp(pull.created),
            "updated_on": self.stamp(pull.updated or pull.created),
        }


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Answer:
    return Answer(status, {"type": "error", "error": {"message": message}}, headers or {})
