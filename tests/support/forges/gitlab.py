"""GitLab as its documentation describes it, as far as we use it: no description judges this one."""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from tests.support.forges.server import Answer, Hosted, Pull, Simulator


@dataclass(eq=False)
class GitLabSimulator(Simulator):
    """Merge requests; projects are named by their path, percent-encoded.

    Source: https://docs.gitlab.com/api/merge_requests/#merge-a-merge-request, where 401 says that the user
    may not merge, and 405 anything else (https://gitlab.com/gitlab-org/gitlab/-/issues/28779);
    https://docs.gitlab.com/api/rest/authentication/, whose `insufficient_scope` is OAuth's;
    https://gitlab.com/gitlab-org/gitlab/-/issues/20319, where a merge request outlives its target branch.
    """

    closes_with_base: bool = False

    def limited(self, kind: str) -> Answer:
        if kind == "exists":
            return Answer(
                409, {"message": ["Another open merge request already exists for this source branch: !1"]}
            )
        return Answer(429, "Retry later", {"Retry-After": "25"})

    def forbidden(self, kind: str, hosted: Hosted) -> Answer:
        if kind == "archived":
            return Answer(403, {"message": "403 Forbidden"})
        description = "The request requires higher privileges than provided by the access token."
        return Answer(403, {"error": "insufficient_scope", "error_description": description, "scope": "api"})

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        if path == "/users":
            names = [name for name in self.users if name == query["username"]]
            return Answer(200, [{"id": self.users.index(name), "username": name} for name in names])
        if path == "/user":
            return Answer(200, {"username": self.bot, "id": 7})
        if match := re.fullmatch(r"/projects/(.+?)/repository/commits/(\w+)/statuses", unquote(path)):
            checks = self.repositories[match[1]].checks.get(match[2], {})
            states = {True: "success", False: "failed", None: "running"}
            statuses = [{"name": n, "status": states[p]} for n, p in checks.items()]
            return self._paged(statuses, query, path)
        if match := re.fullmatch(r"/projects/(.+?)/statuses/(\w+)", unquote(path)):
            self.repositories[match[1]].set_status(match[2], body["name"], body["state"], body["description"])
            return Answer(201, {"name": body["name"], "status": body["state"]})
        if issues := re.fullmatch(r"/projects/(.+?)/issues(?:/(\d+))?", unquote(path)):
            return self._issues(self.repositories[issues[1]], method, issues[2], query, body)
        if project := re.fullmatch(r"/projects/([^/]+/[^/]+)", unquote(path)):
            hosted = self.repositories.get(project[1])
            level = "enabled" if hosted and hosted.has_pulls else "disabled"
            trains = bool(hosted and hosted.refuses_merge == "queue")
            facts = {"merge_requests_access_level": level, "merge_trains_enabled": trains}
            found = Answer(200, {**facts, "path_with_namespace": project[1]})
            return found if hosted else Answer(404, {"message": "404 Project Not Found"})
        if match := re.fullmatch(r"/projects/(.+?)/merge_trains(?:/merge_requests/(\d+))?", unquote(path)):
            return self._train(self.repositories[match[1]], match[2], query, path, body)
        match = re.fullmatch(r"/projects/(.+?)/merge_requests(?:/(\d+)(?:/(.*))?)?", unquote(path))
        hosted = self.repositories.get(match[1]) if match else None
        if not match or hosted is None:
            return Answer(404, {"message": "404 Project Not Found"})
        if not hosted.has_pulls:
            return Answer(403, {"message": "403 Forbidden"})
        if not match[2]:
            return self._list(hosted, query) if method == "GET" else self._open(hosted, body)
        pull = hosted.pulls.get(int(match[2]))
        if pull is None:
            return Answer(404, {"message": "404 Not found"})
        if (method, match[3]) == ("GET", "notes"):
            notes = [_note(n, *c) for n, c in pull.comments.items()]
            return self._paged(notes, query, path)
        return self._of_pull(hosted, self.refreshed(hosted, pull), f"{method} {match[3] or ''}", body)

    def _issues(
        self, hosted: Hosted, method: str, number: str | None, query: dict[str, str], body: Any
    ) -> Answer:
        if method == "POST":
            pull = self.new_pull(hosted, title=body["title"], body=body["description"])
            return Answer(201, self._issue(pull))
        if number is not None:
            pull = hosted.pulls[int(number)]
            pull.body, pull.updated = body["description"], self.clock.now()
            pull.state = "closed" if body.get("state_event") == "close" else pull.state
            return Answer(200, self._issue(pull))
        issues = [p for p in hosted.pulls.values() if not p.head and p.author in ("", self.bot)]
        shown = [self._issue(p) for p in issues if self.visible(p)]
        return self._paged(shown, query, f"/projects/{hosted.name}/issues")

    def _paged(self, items: list[Any], query: dict[str, str], path: str) -> Answer:
        return self.paged(items, query, path, min(100, int(query.get("per_page", 20))))

    def _issue(self, pull: Pull) -> dict[str, Any]:
        state = {"open": "opened"}.get(pull.state, pull.state)
        times = {"created_at": self.stamp(pull.created), "updated_at": self.stamp(pull.updated)}
        return {"iid": pull.number, "title": pull.title, "description": pull.body, "state": state, **times}

    def _of_pull(self, hosted: Hosted, pull: Pull, what: str, body: Any) -> Answer:
        match what:
            case "GET ":
                return Answer(200, self.shown(hosted, pull))
            case "PUT ":
                pull.title = body.get("title", pull.title)
                pull.body = body.get("description", pull.body)
                pull.base = body.get("target_branch", pull.base)
                if "labels" in body:
                    pull.labels = [name for name in body["labels"].split(",") if name]
                for name, people in (("reviewer_ids", pull.reviewers), ("assignee_ids", pull.assignees)):
                    people[:] = [self.users[user] for user in body[name]] if name in body else people
                if body.get("state_event") == "close":
                    pull.state, pull.closed = "closed", self.clock.now()
                pull.updated = self.clock.now()
                return Answer(200, self.shown(hosted, pull))
            case "PUT merge":
                return self._merge(hosted, pull, body)
            case "POST notes":
                number = 1 + max(pull.comments, default=1000 * pull.number)
                pull.comments[number] = (self.bot, body["body"])
                pull.updated = self.clock.now()
                return Answer(201, _note(number, self.bot, body["body"]))
        number = int(what.rpartition("/")[2])
        if what.startswith("DELETE "):
            del pull.comments[number]
            return Answer(204, None)
        pull.comments[number] = (self.bot, body["body"])
        return Answer(200, _note(number, self.bot, body["body"]))

    def _list(self, hosted: Hosted, query: dict[str, str]) -> Answer:
        pulls = [self.refreshed(hosted, p) for p in hosted.pulls.values() if p.head and self.visible(p)]
        by_change = query.get("order_by") == "updated_at"
        pulls.sort(
            key=lambda p: (p.updated if by_change else p.created, p.number),
            reverse=query.get("sort", "desc") == "desc",
        )
        shown = [self.shown(hosted, p) for p in pulls]
        for name in ("state", "source_branch", "target_branch"):
            if query.get(name, "all") != "all":
                shown = [item for item in shown if item[name] == query[name]]
        path = f"/projects/{hosted.name.replace('/', '%2F')}/merge_requests"
        return self._paged(shown, query, path)

    def _open(self, hosted: Hosted, body: Any) -> Answer:
        head, base = body["source_branch"], body["target_branch"]
        for name in (head, base):
            if hosted.ref(name) is None:
                return Answer(422, {"message": [f'Branch "{name}" does not exist']})
        current = [self.refreshed(hosted, p) for p in hosted.pulls.values()]
        is_open = any(p.head == head and p.base == base and not p.fork and p.state == "open" for p in current)
        if is_open and not self.lets_in:
            return self.limited("exists")
        labels = [name for name in body.get("labels", "").split(",") if name]
        fields = {"title": body["title"], "body": body.get("description", ""), "labels": labels}
        fields |= {"head": head, "base": base}
        return Answer(201, self.shown(hosted, self.new_pull(hosted, **fields)))

    def _train(
        self, hosted: Hosted, number: str | None, query: dict[str, str], path: str, body: Any
    ) -> Answer:
        if hosted.refuses_merge != "queue":
            return Answer(403, {"message": "403 Forbidden"})
        if number is None:
            queued = [pull for pull in hosted.pulls.values() if pull.queued]
            return self._paged([{"merge_request": {"iid": pull.number}} for pull in queued], query, path)
        pull = self.refreshed(hosted, hosted.pulls[int(number)])
        if body["sha"] != pull.head_oid or pull.queued or pull.state != "open":
            return Answer(409, {"message": "Failed to add to the merge train"})
        pull.queued = True
        return Answer(201, [])

    def _merge(self, hosted: Hosted, pull: Pull, body: Any) -> Answer:
        if pull.state != "open" or pull.title.startswith("Draft:") or self.is_checking(hosted):
            return Answer(405, {"message": "405 Method Not Allowed"})
        if hosted.refuses_merge == "person":
            return Answer(401, {"message": "401 Unauthorized"})
        if hosted.refuses_merge == "review":
            return Answer(405, {"message": "405 Method Not Allowed"})
        if body.get("sha", pull.head_oid) != pull.head_oid:
            return Answer(409, {"message": "SHA does not match HEAD of source branch"})
        if self.missing_checks(hosted, pull):
            if not body.get("auto_merge") or not hosted.auto_merge:
                return Answer(405, {"message": "405 Method Not Allowed"})
            pull.auto = hosted.style
            return Answer(200, self.shown(hosted, pull))
        self.merge(hosted.name, pull.number, "squash" if body.get("squash") else hosted.style)
        return Answer(200, self.shown(hosted, pull))

    def shown(self, hosted: Hosted, pull: Pull) -> dict[str, Any]:
        state = "merged" if pull.merged else {"open": "opened"}.get(pull.state, pull.state)
        return {
            "iid": pull.number,
            "id": hosted.number * 10_000 + pull.number,
            "title": pull.title,
            "description": pull.body,
            "state": state,
            "draft": pull.title.startswith("Draft:"),
            "detailed_merge_status": self._merge_status(hosted, pull),
            "source_branch": pull.head,
            "target_branch": pull.base,
            "source_project_id": hosted.number + (1000 if pull.fork else 0),
            "target_project_id": hosted.number,
            "sha": pull.head_oid,
            "merge_when_pipeline_succeeds": bool(pull.auto),
            "merge_commit_sha": pull.merge_oid or None,
            "squash_commit_sha": None,
            "labels": pull.labels,
            "reviewers": [{"id": self.users.index(name), "username": name} for name in pull.reviewers],
            "assignees": [{"id": self.users.index(name), "username": name} for name in pull.assignees],
            "author": {"id": 7, "username": pull.author or self.bot},
            "web_url": f"{self.address}/{hosted.name}/-/merge_requests/{pull.number}",
            "created_at": self.stamp(pull.created),
            "updated_at": self.stamp(pull.updated or pull.created),
            "closed_at": self.stamp(pull.closed),
            "merged_at": self.stamp(pull.merged),
        }

    def _merge_status(self, hosted: Hosted, pull: Pull) -> str:
        if self.is_checking(hosted):
            return "checking"
        if hosted.refuses_merge == "review":
            return "not_approved"
        return "ci_must_pass" if self.missing_checks(hosted, pull) else "mergeable"


def _note(number: int, login: str, body: str) -> dict[str, Any]:
    return {"id": number, "body": body, "author": {"username": login}, "system": False}
