"""GitHub as its REST description and public schema describe it, as far as we use it."""

import copy
import re
from dataclasses import dataclass, field
from typing import Any

from tests.support.forges.server import Answer, Hosted, Pull, Simulator


@dataclass(eq=False)
class GitHubSimulator(Simulator):
    """Drafts are marked by GraphQL alone; an App's installation has a token of its own.

    Source: https://github.com/pascalgn/automerge-action/issues/235, the refusal of the merge queue, into
    which auto-merge puts a pull request (https://cli.github.com/manual/gh_pr_merge);
    https://github.com/Reviewable/Reviewable/issues/561, that of a protected branch;
    https://github.com/r-universe-org/help/issues/247, an archived repository;
    https://docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api, missing permissions;
    https://github.com/cli/cli/issues/14223, a deleted base closes its pull requests.
    """

    no_drafts: bool = False
    tokens: int = 0
    documents: Any = None

    permissions: dict[str, str] = field(default_factory=dict)
    """The requested permissions of the newest installation token."""

    def authorized(self, authorization: str, path: str) -> bool:
        return path.endswith("/access_tokens") or super().authorized(authorization, path)

    def is_write(self, method: str, path: str, body: Any) -> bool:
        if path.endswith("/graphql"):
            return str((body or {}).get("query", "")).lstrip().startswith("mutation")
        return super().is_write(method, path, body)

    def limited(self, kind: str) -> Answer:
        secondary = (
            "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
        )
        match kind:
            case "secondary":
                return Answer(403, _error(secondary), {"Retry-After": "30"})
            case "secondary-silent":
                return Answer(403, _error(secondary))
            case "abuse-old":
                return Answer(
                    403, _error("You have triggered an abuse detection mechanism."), {"Retry-After": "20"}
                )
            case "429":
                return Answer(429, _error("Too many requests"), {"Retry-After": "25"})
            case "abuse":
                body = {
                    **_error("Validation Failed"),
                    "errors": [{"resource": "PullRequest", "code": "abuse"}],
                }
                return Answer(422, body)
            case "primary":
                reset = str(int(self.clock.now()) + 50)
                headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}
                return Answer(403, _error("API rate limit exceeded for user ID 1."), headers)
            case "too-quickly":
                return Answer(
                    200,
                    {"data": None, "errors": [{"message": "was submitted too quickly (createPullRequest)"}]},
                )
            case "cap":
                body = {
                    "data": None,
                    "errors": [
                        {
                            "type": "FORBIDDEN",
                            "path": ["createPullRequest"],
                            "message": "FORBIDDEN CreatePullRequest",
                        }
                    ],
                }
                return Answer(200, body)
            case "exists":
                return _invalid("A pull request already exists for o:x.", "custom")
            case _:
                raise AssertionError(kind)

    def forbidden(self, kind: str, hosted: Hosted) -> Answer:
        archived = "Repository was archived so is read-only."
        return Answer(
            403, _error(archived if kind == "archived" else "Resource not accessible by integration")
        )

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        if path.endswith("/graphql"):
            return self._graphql(body)
        if path.endswith("/access_tokens"):
            self.tokens += 1
            self.permissions = body["permissions"]
            self.token = f"{self.token.partition('#')[0]}#{self.tokens}"
            until = self.stamp(self.clock.now() + 3600)
            return Answer(
                201,
                {
                    "token": self.token,
                    "expires_at": until,
                    "permissions": {"contents": "write"},
                    "repository_selection": "all",
                },
            )
        match = re.fullmatch(r"/repos/([^/]+/[^/]+)/(.*)", path)
        hosted = self.repositories.get(match[1]) if match else None
        if not match or hosted is None:
            return Answer(404, _error("Not Found"))
        return self._route(hosted, method, match[2], query, body)

    def _route(self, hosted: Hosted, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        if path == "pulls":
            return self._list(hosted, query) if method == "GET" else self._open(hosted, body)
        if path == "issues":
            return self._issues(hosted, query) if method == "GET" else self._open_issue(hosted, body)
        if match := re.fullmatch(r"statuses/(\w+)", path):
            hosted.set_status(match[1], body["context"], body["state"], body["description"])
            status = {"context": body["context"], "state": body["state"], "description": body["description"]}
            return Answer(201, {**self._example("status"), **status})
        match = re.fullmatch(r"(pulls|issues)/(\d+)(/\w+)?", path)
        pull = hosted.pulls.get(int(match[2])) if match else None
        if match is None or pull is None or (match[1] == "pulls" and not pull.head):
            return Answer(404, _error("Not Found"))
        self.refreshed(hosted, pull)
        match match[1], match[3], method:
            case "pulls", None, "GET":
                return Answer(200, self.shown(hosted, pull))
            case _, None, "PATCH":
                return self._patch(hosted, pull, body)
            case "pulls", "/merge", "PUT":
                return self._merge(hosted, pull, body)
            case "pulls", "/requested_reviewers", "POST":
                return self._request_reviews(hosted, pull, body)
            case "issues", "/assignees", "POST":
                pull.assignees += [
                    n for n in body["assignees"] if n in self.users and n not in pull.assignees
                ]
                return Answer(201, self._issue(pull))
            case "issues", "/labels", "PUT":
                pull.labels, pull.updated = list(body["labels"]), self.clock.now()
                return Answer(200, [_label(name) for name in pull.labels])
            case "issues", "/comments", "POST":
                number = 1 + max(pull.comments, default=1000 * pull.number)
                pull.comments[number] = (self.bot, body["body"])
                pull.updated = self.clock.now()
                return Answer(
                    201,
                    {
                        **self._example("issue-comment"),
                        "id": number,
                        "node_id": f"C{hosted.number}-{pull.number}-{number}",
                        "body": body["body"],
                    },
                )
        return Answer(404, _error("Not Found"))

    def _request_reviews(self, hosted: Hosted, pull: Pull, body: Any) -> Answer:
        names = [*body["reviewers"], *(f"team/{slug}" for slug in body["team_reviewers"])]
        if not {*names} <= {*self.users, "team/platform"}:
            message = (
                "Reviews may only be requested from collaborators. One or more of the users or teams you "
            )
            return Answer(
                422, _error(f"{message}specified is not a collaborator of the {hosted.name} repository.")
            )
        pull.reviewers = sorted({*pull.reviewers, *names})
        return Answer(201, self.shown(hosted, pull, simple=True))

    def _list(self, hosted: Hosted, query: dict[str, str]) -> Answer:
        pulls = [
            p
            for p in (self.refreshed(hosted, q) for q in hosted.pulls.values())
            if p.head and self.visible(p)
        ]
        state = query.get("state", "open")
        pulls = [p for p in pulls if state in ("all", p.state)]
        if head := query.get("head"):
            pulls = [p for p in pulls if f"{hosted.name.partition('/')[0]}:{p.head}" == head and not p.fork]
        if base := query.get("base"):
            pulls = [p for p in pulls if p.base == base]
        by_change = query.get("sort") == "updated"
        pulls.sort(
            key=lambda p: (p.updated if by_change else p.number, p.number),
            reverse=query.get("direction", "desc") == "desc",
        )
        return self._page(
            [self.shown(hosted, p, simple=True) for p in pulls], query, f"/repos/{hosted.name}/pulls"
        )

    def _page(self, items: list[Any], query: dict[str, str], path: str) -> Answer:
        return self.paged(items, query, path, int(query.get("per_page", 30)))

    def _open(self, hosted: Hosted, body: Any) -> Answer:
        head, base = hosted.ref(body["head"]), hosted.ref(body["base"])
        for name, oid in (("head", head), ("base", base)):
            if oid is None:
                return _invalid("", "invalid", name)
        if body.get("draft") and self.no_drafts:
            return _invalid("Draft pull requests are not supported in this repository.", "custom")
        if len(body.get("body") or "") > 65_536:
            return _invalid("body is too long (maximum is 65536 characters)", "custom", "body")
        if not self.lets_in and any(
            p.head == body["head"]
            and not p.fork
            and p.base == body["base"]
            and self.refreshed(hosted, p).state == "open"
            for p in hosted.pulls.values()
        ):
            return _invalid(
                f"A pull request already exists for {hosted.name.partition('/')[0]}:{body['head']}.", "custom"
            )
        if base == head or hosted.repo.git.descendant_of(base, head):
            return _invalid(f"No commits between {body['base']} and {body['head']}", "custom")
        pull = self.new_pull(
            hosted,
            title=body["title"],
            body=body.get("body") or "",
            head=body["head"],
            base=body["base"],
            draft=bool(body.get("draft")),
        )
        return Answer(201, self.shown(hosted, pull))

    def _open_issue(self, hosted: Hosted, body: Any) -> Answer:
        pull = self.new_pull(hosted, title=body["title"], body=body.get("body") or "")
        return Answer(201, self._issue(pull))

    def _issues(self, hosted: Hosted, query: dict[str, str]) -> Answer:
        issues = [
            p for p in hosted.pulls.values() if not p.head and query.get("state", "open") in ("all", p.state)
        ]
        return self._page([self._issue(p) for p in issues], query, f"/repos/{hosted.name}/issues")

    def _issue(self, pull: Pull) -> Any:
        made = self._example("issue")
        made.pop("pull_request", None)
        user = {**made["user"], "login": self.bot}
        return {
            **made,
            "number": pull.number,
            "title": pull.title,
            "body": pull.body,
            "state": pull.state,
            "user": user,
            "labels": [],
        }

    def _patch(self, hosted: Hosted, pull: Pull, body: Any) -> Answer:
        for name in ("title", "body", "state", "base"):
            if name in body:
                setattr(pull, name, body[name])
        pull.updated = self.clock.now()
        if "state" in body:
            pull.closed = self.clock.now() if body["state"] == "closed" else None
        return Answer(200, self.shown(hosted, pull) if pull.head else self._issue(pull))

    def _merge(self, hosted: Hosted, pull: Pull, body: Any) -> Answer:
        if pull.merged or pull.state != "open" or pull.draft:
            return Answer(405, _error("Pull Request is not mergeable"))
        if body.get("sha", pull.head_oid) != pull.head_oid:
            return Answer(409, _error("Head branch was modified. Review and try the merge again."))
        if self.is_checking(hosted):
            return Answer(405, _error("Base branch was modified. Review and try the merge again."))
        if message := self._protection(hosted, pull):
            return Answer(405, _error(message))
        method = body.get("merge_method", "merge")
        if method != hosted.style and hosted.style:
            what = "commits" if method == "merge" else "merges"
            return Answer(405, _error(f"{method.capitalize()} {what} are not allowed on this repository."))
        oid = self.merge(hosted.name, pull.number, method)
        return Answer(200, {"sha": oid, "merged": True, "message": "Pull Request successfully merged"})

    def _protection(self, hosted: Hosted, pull: Pull) -> str:
        """Return why the protection of the base refuses a merge."""
        refusals = {
            "queue": "Changes must be made through the merge queue",
            "review": "At least 1 approving review is required by reviewers with write access.",
            "person": "You're not authorized to push to this branch.",
        }
        missing = self.missing_checks(hosted, pull)
        check = f'Required status check "{missing[0]}" is expected.' if missing else ""
        return refusals.get(hosted.refuses_merge, check)

    def shown(self, hosted: Hosted, pull: Pull, *, simple: bool = False) -> Any:
        """Return a pull request as the API shows it: the description's own example, with our facts."""
        example = self._example("pull-request-simple-items")[0] if simple else self._example("pull-request")
        example["requested_teams"] = []
        for side, branch, oid in (
            ("head", pull.head, pull.head_oid),
            ("base", pull.base, hosted.ref(pull.base) or "0" * 40),
        ):
            number = hosted.number + (1000 if side == "head" and pull.fork else 0)
            example[side] |= {
                "ref": branch,
                "sha": oid or "0" * 40,
                "label": f"{hosted.name.partition('/')[0]}:{branch}",
            }
            example[side]["repo"] |= {"id": number, "full_name": hosted.name}
        facts = {
            "number": pull.number,
            "id": hosted.number * 10_000 + pull.number,
            "node_id": f"PR{hosted.number}-{pull.number}",
            "title": pull.title,
            "body": pull.body,
            "draft": pull.draft,
            "state": pull.state,
            "created_at": self.stamp(pull.created),
            "updated_at": self.stamp(pull.updated or pull.created),
            "closed_at": self.stamp(pull.closed),
            "merged_at": self.stamp(pull.merged),
            "merge_commit_sha": pull.merge_oid or None,
            "html_url": f"{self.address}/{hosted.name}/pull/{pull.number}",
            "auto_merge": {
                "enabled_by": example["user"],
                "merge_method": pull.auto,
                "commit_title": "",
                "commit_message": "",
            }
            if pull.auto
            else None,
            "labels": [_label(name) for name in pull.labels],
        }
        return example | facts | ({} if simple else {"merged": bool(pull.merged)})

    def _example(self, name: str) -> Any:
        assert self.description
        return copy.deepcopy(self.description.document["components"]["examples"][name]["value"])

    def _graphql(self, body: Any) -> Answer:
        query, values = body["query"], body["variables"]
        self.violations += [f"GraphQL: {why}" for why in (self.documents or (lambda _: []))(query)]
        if "Comments(" in query:
            hosted = self.repositories.get(f"{values['owner']}/{values['name']}")
            pull = hosted.pulls.get(values["number"]) if hosted else None
            if hosted is None or pull is None:
                return Answer(
                    200,
                    {
                        "data": {"repository": None},
                        "errors": [{"type": "NOT_FOUND", "message": "Could not resolve"}],
                    },
                )
            size, start = min(100, self.most_in_a_page), int(values["after"] or 0)
            nodes = [
                {
                    "id": f"C{hosted.number}-{pull.number}-{n}",
                    "body": text,
                    "viewerDidAuthor": who == self.bot,
                }
                for n, (who, text) in pull.comments.items()
            ]
            page = _connection(nodes, start, size)
            return Answer(200, {"data": {"repository": {"pullRequest": {"comments": page}}}})
        if "Author(" in query:
            pull = self.repositories[f"{values['owner']}/{values['name']}"].pulls[values["number"]]
            shown = {"viewerDidAuthor": pull.author in ("", self.bot)}
            return Answer(200, {"data": {"repository": {"pullRequest": shown}}})
        if "Checks(" in query:
            return Answer(200, {"data": {"repository": {"object": self._rollup(values)}}})
        if "Queue(" in query:
            return Answer(200, {"data": {"repository": {"mergeQueue": self._queue(values)}}})
        if "Issues(" in query:
            return Answer(200, {"data": {"repository": {"issues": self._nodes(values)}}})
        hosted, pull, rest = self._node(values["id"])
        if why := self.forbids(hosted):
            error = {"type": "FORBIDDEN", "message": self.forbidden(why, hosted).body["message"]}
            return Answer(200, {"data": None, "errors": [error]})
        pull.updated = self.clock.now()
        if "Ready(" in query:
            pull.draft = False
            return Answer(
                200, {"data": {"markPullRequestReadyForReview": {"pullRequest": {"isDraft": False}}}}
            )
        if "Draft(" in query:
            pull.draft = True
            return Answer(200, {"data": {"convertPullRequestToDraft": {"pullRequest": {"isDraft": True}}}})
        if "Enqueue(" in query:
            assert values["head"] == pull.head_oid
            pull.queued = True
            return Answer(200, {"data": {"enqueuePullRequest": {"mergeQueueEntry": {"state": "QUEUED"}}}})
        if "AutoMerge(" in query:
            return self._enable_auto_merge(hosted, pull, values)
        if "EditComment(" in query:
            pull.comments[rest] = (self.bot, values["body"])
            return Answer(200, {"data": {"updateIssueComment": {"issueComment": {"id": values["id"]}}}})
        if "DeleteComment(" in query:
            del pull.comments[rest]
            return Answer(200, {"data": {"deleteIssueComment": {"clientMutationId": None}}})
        raise AssertionError(query)

    def _enable_auto_merge(self, hosted: Hosted, pull: Pull, values: Any) -> Answer:
        method = values["method"].lower()
        refusals = {
            "Pull request Auto merge is not allowed for this repository": not hosted.auto_merge,
            f"Merge method {method} merges are not allowed on this repository": method != hosted.style,
            "Pull request Pull request is in clean status": hosted.refuses_merge != "queue"
            and not self.missing_checks(hosted, pull),
        }
        if message := next((text for text, holds in refusals.items() if holds), ""):
            error = {"type": "UNPROCESSABLE", "path": ["enablePullRequestAutoMerge"], "message": message}
            return Answer(200, {"data": {"enablePullRequestAutoMerge": None}, "errors": [error]})
        assert values["head"] == pull.head_oid
        is_queued = hosted.refuses_merge == "queue" and not self.missing_checks(hosted, pull)
        pull.auto, pull.queued = ("", True) if is_queued else (method, False)
        return Answer(200, {"data": {"enablePullRequestAutoMerge": {"pullRequest": {"state": "OPEN"}}}})

    def _queue(self, values: Any) -> Any:
        """Return a page of one entry of the merge queue of a branch, None where it has none."""
        hosted = self.repositories[f"{values['owner']}/{values['name']}"]
        if hosted.refuses_merge != "queue":
            return None
        queued = [p for p in hosted.pulls.values() if p.queued and p.base == values["branch"]]
        nodes = [{"pullRequest": {"number": pull.number}} for pull in queued]
        return {"entries": _connection(nodes, int(values["after"] or 0), 1)}

    def _rollup(self, values: Any) -> Any:
        """Return the checks of a commit, half of them as check runs, half as statuses."""
        checks = self.repositories[f"{values['owner']}/{values['name']}"].checks.get(values["commit"])
        if not checks:
            return {"statusCheckRollup": None}
        nodes = [
            {"name": name, "conclusion": {True: "SUCCESS", False: "FAILURE"}.get(passed)}
            if number % 2
            else {"context": name, "state": {True: "SUCCESS", False: "FAILURE", None: "PENDING"}[passed]}
            for number, (name, passed) in enumerate(checks.items())
        ]
        contexts = _connection(nodes, int(values["after"] or 0), min(100, self.most_in_a_page))
        return {"statusCheckRollup": {"contexts": contexts}}

    def _nodes(self, values: Any) -> Any:
        """Return a page of two issues, last changed first."""
        hosted = self.repositories[f"{values['owner']}/{values['name']}"]
        issues = sorted((p for p in hosted.pulls.values() if not p.head), key=lambda p: -p.updated)
        start = int(values["after"] or 0)
        nodes = [
            {
                "number": pull.number,
                "title": pull.title,
                "body": pull.body,
                "closed": pull.state != "open",
                "viewerDidAuthor": pull.author in ("", self.bot),
                "updatedAt": self.stamp(pull.updated),
            }
            for pull in issues[start : start + 2]
            if self.visible(pull)
        ]
        return {
            "nodes": nodes,
            "pageInfo": {"hasNextPage": start + 2 < len(issues), "endCursor": str(start + 2)},
        }

    def _node(self, key: str) -> tuple[Hosted, Pull, int]:
        match = re.fullmatch(r"(?:PR|C)(\d+)-(\d+)(?:-(\d+))?", key)
        assert match
        hosted = next(h for h in self.repositories.values() if h.number == int(match[1]))
        return hosted, hosted.pulls[int(match[2])], int(match[3] or 0)


def _connection(nodes: list[Any], start: int, size: int) -> dict[str, Any]:
    """Return one page of the nodes of a connection."""
    more = start + size < len(nodes)
    info = {"hasNextPage": more, "endCursor": str(start + size) if more else None}
    return {"nodes": nodes[start : start + size], "pageInfo": info}


def _label(name: str) -> dict[str, Any]:
    return {
        "id": len(name),
        "node_id": "L",
        "url": "https://api.github.com/l",
        "name": name,
        "description": "",
        "color": "ededed",
        "default": False,
    }


def _error(message: str) -> dict[str, str]:
    return {"message": message, "documentation_url": "https://docs.github.com/rest"}


def _invalid(message: str, code: str, field: str = "") -> Answer:
    error = {
        "resource": "PullRequest",
        "code": code,
        **({"message": message} if message else {}),
        **({"field": field} if field else {}),
    }
    return Answer(422, {**_error("Validation Failed"), "errors": [error]})
