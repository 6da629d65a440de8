"""Gitea as its description describes it, as far as we use it."""

import re
from dataclasses import dataclass, field
from typing import Any

from tests.support.forges.server import Answer, Hosted, Pull, Simulator

_PERMITS = {
    "merge": "allow_merge_commits",
    "squash": "allow_squash_merge",
    "rebase": "allow_rebase",
    "rebase-merge": "allow_rebase_explicit",
    "fast-forward-only": "allow_fast_forward_only_merge",
}


@dataclass(eq=False)
class GiteaSimulator(Simulator):
    """Drafts are titles; a branch that is gone leaves its name in `label`; comments are numbered globally.

    Concurrent creations, checks after a merge, refused styles and labels of organizations are as Gitea 1.22
    was seen to handle them. So are refused merges: 405 with the cause.

    Source: https://docs.gitea.com/development/oauth2-provider#scopes, the scopes of tokens;
    https://github.com/go-gitea/gitea/pull/9927, a deleted branch closes its pull requests. The description
    tells which requests answer 423 for an archived repository; its other ones are let through.
    """

    follows_closed: bool = True
    waits_for_any_check: bool = False
    """Whether a scheduled merge waits for a first check, as up to 1.22, where nothing demands one."""
    draft_prefixes: tuple[str, ...] = ("WIP:", "[WIP]")
    tells_drafts: bool = True
    """Whether the server is of version 1.22 or later; earlier ones show no field `draft`."""
    organization_labels: dict[str, int] = field(default_factory=dict)

    def limited(self, kind: str) -> Answer:
        if kind == "exists":
            return Answer(409, {"message": "pull request already exists for these targets", "url": "u"})
        return Answer(429, "Too Many Requests", {"Retry-After": "25"})

    def forbidden(self, kind: str, hosted: Hosted) -> Answer:
        if kind == "archived":
            return Answer(423, {"message": f"{hosted.name} is archived", "url": "u"})
        message = "token does not have at least one of required scope(s), required=[write:repository]"
        return Answer(403, {"message": message, "url": "u"})

    def obeys(self, why: str, method: str, path: str) -> bool:
        operation = self.description.find(method, path) if self.description else None
        return why != "archived" or operation is None or "423" in operation.replies

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        if path == "/user":
            return Answer(200, {"login": self.bot, "id": 7})
        if re.fullmatch(r"/orgs/[^/]+/labels", path):
            labels = [{"id": number, "name": name} for name, number in self.organization_labels.items()]
            missing = Answer(404, {"message": "not found", "url": "u"})
            return self._paged(labels, query, path) if labels else missing
        match = re.fullmatch(r"/repos/([^/]+/[^/]+)(?:/(.*))?", path)
        hosted = self.repositories.get(match[1]) if match else None
        if not match or hosted is None:
            return Answer(404, {"message": "not found", "url": "u"})
        rest = match[2] or ""
        if not rest:
            style = {"default_merge_style": hosted.preferred or hosted.style}
            permits = {name: hosted.style == allowed for allowed, name in _PERMITS.items()}
            facts = {"archived": hosted.archived, "has_pull_requests": hosted.has_pulls}
            facts["empty"] = self._is_empty(hosted)
            return Answer(200, {"id": hosted.number, "full_name": hosted.name, **facts, **style, **permits})
        if match := re.fullmatch(r"branches/(.+)", rest):
            oid, missing = hosted.ref(match[1]), Answer(404, {"message": "branch does not exist", "url": "u"})
            return Answer(200, {"name": match[1], "commit": {"id": oid}}) if oid else missing
        if match := re.fullmatch(r"labels/(\d+)", rest):
            hosted.doubled.pop(int(match[1]))
            return Answer(204, None)
        if rest.startswith("pulls") and (self._is_empty(hosted) or not hosted.has_pulls):
            return Answer(404, {"message": "The target couldn't be found.", "url": "u"})
        if match := re.fullmatch(r"statuses/(\w+)", rest):
            if method == "POST":
                hosted.set_status(match[1], body["context"], body["state"], body["description"])
                return Answer(201, {"context": body["context"], "status": body["state"]})
            checks = hosted.checks.get(match[1], {})
            states = {True: "success", False: "failure", None: "pending"}
            statuses = [{"context": n, "status": states[p]} for n, p in checks.items()]
            return self._paged(statuses, query, path)
        if rest == "issues":
            return self._issues(hosted, method, query, body)
        if rest == "labels":
            return self._labels(hosted, method, query, body)
        if rest == "pulls":
            return self._list(hosted, query) if method == "GET" else self._open(hosted, body)
        if match := re.fullmatch(r"pulls/(?!\d+/)([^/]+)/(.+)", rest):
            return self._of_branches(hosted, match[1], match[2])
        if match := re.fullmatch(r"issues/comments/(\d+)", rest):
            return self._change_comment(hosted, int(match[1]), body)
        match = re.fullmatch(r"(pulls|issues)/(\d+)(/\w+)?", rest)
        pull = hosted.pulls.get(int(match[2])) if match else None
        if match is None or pull is None:
            return Answer(404, {"message": "not found", "url": "u"})
        return self._of_pull(hosted, self.refreshed(hosted, pull), f"{method} {match[3] or ''}", body)

    def _of_pull(self, hosted: Hosted, pull: Pull, what: str, body: Any) -> Answer:
        match what:
            case "GET ":
                return Answer(200, self.shown(hosted, pull))
            case "PATCH " if not pull.head:
                pull.body, pull.state = body.get("body", pull.body), body.get("state", pull.state)
                pull.updated = self.clock.now()
                return Answer(201, self._issue(hosted, pull))
            case "PATCH ":
                for name in ("title", "body", "state", "base"):
                    setattr(pull, name, body.get(name, getattr(pull, name)))
                if "state" in body:
                    pull.closed = self.clock.now() if body["state"] == "closed" else None
                if not {*body.get("assignees", ())} <= {*self.users}:
                    return Answer(422, {"message": "Assignee does not exist", "url": "u"})
                pull.assignees = body.get("assignees", pull.assignees)
                pull.updated = self.clock.now()
                return Answer(201, self.shown(hosted, pull))
            case "POST /requested_reviewers":
                names = [*body["reviewers"], *(f"team/{name}" for name in body["team_reviewers"])]
                if not {*names} <= {*self.users, "team/platform"}:
                    return Answer(404, {"message": "user does not exist", "url": "u"})
                pull.reviewers = sorted({*pull.reviewers, *names})
                return Answer(201, [])
            case "POST /merge":
                return self._merge(hosted, pull, body)
            case "PUT /labels":
                pull.labels = self._names(hosted, body["labels"])
                return Answer(200, self._shown_labels(hosted, pull))
            case "GET /comments":
                return Answer(200, [_comment(n, *c) for n, c in pull.comments.items()])
            case "POST /comments":
                number = 1 + max((n for p in hosted.pulls.values() for n in p.comments), default=0)
                pull.comments[number] = (self.bot, body["body"])
                pull.updated = self.clock.now()
                return Answer(201, _comment(number, self.bot, body["body"]))
        return Answer(404, {"message": "not found", "url": "u"})

    def _issues(self, hosted: Hosted, method: str, query: dict[str, str], body: Any) -> Answer:
        if method == "POST":
            pull = self.new_pull(hosted, title=body["title"], body=body.get("body", ""))
            return Answer(201, self._issue(hosted, pull))
        by = query.get("created_by", "")
        issues = [p for p in hosted.pulls.values() if not p.head and by in ("", p.author or self.bot)]
        shown = [self._issue(hosted, p) for p in issues if self.visible(p)]
        return self._paged(shown, query, f"/repos/{hosted.name}/issues")

    def _issue(self, hosted: Hosted, pull: Pull) -> dict[str, Any]:
        names = (
            "number",
            "id",
            "title",
            "body",
            "state",
            "html_url",
            "created_at",
            "updated_at",
            "closed_at",
        )
        shown = self.shown(hosted, pull)
        return {n: shown[n] for n in names if n in shown} | {"user": {"login": pull.author or self.bot}}

    def _labels(self, hosted: Hosted, method: str, query: dict[str, str], body: Any) -> Answer:
        if method == "POST":
            number = 1 + max((*hosted.label_ids.values(), *hosted.doubled), default=0)
            if hosted.label_ids.setdefault(body["name"], number) != number:
                hosted.doubled[number] = body["name"]
            return Answer(201, {"id": number, "name": body["name"]})
        named = [(number, name) for name, number in hosted.label_ids.items()]
        labels = [{"id": number, "name": name} for number, name in (*named, *hosted.doubled.items())]
        return self._paged(labels, query, f"/repos/{hosted.name}/labels")

    def _paged(self, items: list[Any], query: dict[str, str], path: str) -> Answer:
        return self.paged(items, query, path, min(50, int(query.get("limit", 30))))

    def _list(self, hosted: Hosted, query: dict[str, str]) -> Answer:
        pulls = [self.refreshed(hosted, p) for p in hosted.pulls.values() if p.head]
        state, base = query.get("state", "open"), query.get("base_branch", "")
        pulls = [p for p in pulls if state in ("all", p.state) and base in ("", p.base) and self.visible(p)]
        newest = query.get("sort") == "recentupdate"
        order = (lambda p: (-p.updated, -p.number)) if newest else (lambda p: p.number)
        shown = [self.shown(hosted, p) for p in sorted(pulls, key=order)]
        return self._paged(shown, query, f"/repos/{hosted.name}/pulls")

    def _open(self, hosted: Hosted, body: Any) -> Answer:
        if hosted.ref(body["head"]) is None or hosted.ref(body["base"]) is None:
            return Answer(404, {"message": "could not find the branch", "url": "u"})
        current = self._current(hosted)
        is_open = any(p.head == body["head"] and not p.fork and p.state == "open" for p in current)
        if is_open and not self.lets_in:
            return self.limited("exists")
        fields = {
            "title": body["title"],
            "body": body.get("body", ""),
            "head": body["head"],
            "base": body["base"],
            "labels": self._names(hosted, body.get("labels", [])),
        }
        return Answer(201, self.shown(hosted, self.new_pull(hosted, **fields)))

    def _of_branches(self, hosted: Hosted, base: str, head: str) -> Answer:
        """Return the oldest pull request of two branches of the repository itself, open or not."""
        own = [p for p in self._current(hosted) if not p.fork and self.visible(p)]
        pulls = [p for p in own if (p.base, p.head) == (base, head)]
        if not pulls:
            return Answer(404, {"message": "pull request does not exist", "url": "u"})
        return Answer(200, self.shown(hosted, min(pulls, key=lambda p: p.number)))

    def _names(self, hosted: Hosted, ids: list[int]) -> list[str]:
        names = {number: name for name, number in {**self.organization_labels, **hosted.label_ids}.items()}
        names |= hosted.doubled
        return [names[number] for number in ids]

    def _shown_labels(self, hosted: Hosted, pull: Pull) -> list[dict[str, Any]]:
        ids = {**self.organization_labels, **hosted.label_ids}
        return [{"id": ids.get(name, 0), "name": name} for name in pull.labels]

    def _is_empty(self, hosted: Hosted) -> bool:
        return not any(ref.startswith("refs/heads/") for ref in hosted.repo.refs()) or (
            self.clock.now() < hosted.empty_until
        )

    def _is_draft(self, pull: Pull) -> bool:
        return pull.title.startswith(self.draft_prefixes)

    def _current(self, hosted: Hosted) -> list[Pull]:
        return [self.refreshed(hosted, p) for p in hosted.pulls.values()]

    def _merge(self, hosted: Hosted, pull: Pull, body: Any) -> Answer:
        if pull.state != "open" or self._is_draft(pull):
            return Answer(405, {"message": "not mergeable", "url": "u"})
        if self.is_checking(hosted):
            return Answer(405, {"message": "Please try again later", "url": "u"})
        if body["Do"] != hosted.style:
            message = f"{body['Do']} is not allowed an allowed merge style for this repository"
            return Answer(405, {"message": message, "url": "u"})
        if hosted.refuses_merge == "person":
            return Answer(405, {"message": "User not allowed to merge PR", "url": "u"})
        if hosted.refuses_merge == "review":
            return Answer(405, {"message": "Does not have enough approvals", "url": "u"})
        if body.get("head_commit_id", pull.head_oid) != pull.head_oid:
            return Answer(409, {"message": "head out of date", "url": "u"})
        waits = self.waits_for_any_check and not hosted.checks.get(pull.head_oid)
        if self.missing_checks(hosted, pull) or (waits and body.get("merge_when_checks_succeed")):
            if not body.get("merge_when_checks_succeed") or not hosted.auto_merge:
                return Answer(405, {"message": "not all required status checks successful", "url": "u"})
            if pull.auto:
                message = "pull request is already scheduled to auto merge when checks succeed [pull_id: 1]"
                return Answer(409, {"message": message, "url": "u"})
            pull.auto = body["Do"]
            return Answer(200, None)
        self.merge(hosted.name, pull.number, {"merge": "merge", "squash": "squash"}.get(body["Do"], "rebase"))
        return Answer(200, None)

    def _change_comment(self, hosted: Hosted, number: int, body: Any) -> Answer:
        for pull in hosted.pulls.values():
            if number in pull.comments and body is None:
                del pull.comments[number]
                return Answer(204, None)
            if number in pull.comments:
                pull.comments[number] = (pull.comments[number][0], body["body"])
                return Answer(200, _comment(number, *pull.comments[number]))
        return Answer(404, {"message": "not found", "url": "u"})

    def shown(self, hosted: Hosted, pull: Pull) -> dict[str, Any]:
        gone = hosted.ref(pull.head) is None
        number = hosted.number + (1000 if pull.fork else 0)
        made = {
            "number": pull.number,
            "id": hosted.number * 10_000 + pull.number,
            "user": {"id": 7, "login": pull.author or self.bot},
            "title": pull.title,
            "body": pull.body,
            "state": pull.state,
            "merged": bool(pull.merged),
            "merge_commit_sha": pull.merge_oid or None,
            "head": {
                "label": pull.head,
                "ref": f"refs/pull/{pull.number}/head" if gone else pull.head,
                "sha": pull.head_oid,
                "repo_id": number,
            },
            "base": {"label": pull.base, "ref": pull.base, "sha": "", "repo_id": hosted.number},
            "draft": self._is_draft(pull) if self.tells_drafts else None,
            "mergeable": pull.state == "open"
            and not self._is_draft(pull)
            and self.clock.now() > pull.created,
            "labels": self._shown_labels(hosted, pull),
            "assignees": [{"id": 1, "login": name} for name in pull.assignees],
            "html_url": f"{self.address}/{hosted.name}/pulls/{pull.number}",
            "created_at": self.stamp(pull.created),
            "updated_at": self.stamp(pull.updated or pull.created),
            "closed_at": self.stamp(pull.closed),
            "merged_at": self.stamp(pull.merged),
        }
        return {name: value for name, value in made.items() if value is not None}


def _comment(number: int, login: str, body: str) -> dict[str, Any]:
    return {"id": number, "body": body, "user": {"login": login}}
