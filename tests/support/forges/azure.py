"""Azure DevOps as its published description describes it, as far as we use it."""

import base64
import re
from dataclasses import dataclass
from typing import Any

from tests.support.forges.server import Answer, Hosted, Pull, Simulator

PROJECT = "fleet"
INVALID, UNMET = "InvalidArgumentValueException", "GitPullRequestUpdateRejectedByPolicyException"
_STRATEGIES = {"noFastForward": "merge", "squash": "squash", "rebase": "rebase", "rebaseMerge": "rebase"}
_STATES = {True: "succeeded", False: "failed", None: "pending"}
_STATUSES = {"abandoned": "closed", "active": "open"}


@dataclass(eq=False)
class AzureSimulator(Simulator):
    """Pull requests of one project; lists shorten texts, completing takes a moment, labels keep a case.

    Assumed, as nothing documents it: who may not write to a disabled repository is told so, a pull request
    outlives its target branch and not its source branch, and numbers are counted in each repository.

    Source: https://github.com/MicrosoftDocs/vsts-rest-api-specs, specification/git/7.1 and core/7.1;
    https://github.com/shayki5/azure-devops-create-pr-task/issues/31, TF401179 as it is answered;
    https://github.com/MicrosoftDocs/power-platform/issues/1499, TF401398;
    https://github.com/mc1arke/sonarqube-community-branch-plugin/issues/1219, statuses of iterations.
    """

    shows_labels: bool = True
    """Whether pull requests have their labels, which some answers were seen to lack."""
    closes_with_base: bool = False

    def url(self, name: str) -> str:
        return f"{self.address}/{self.called(name)}"

    def called(self, name: str) -> str:
        owner, _, repository = name.partition("/")
        return f"{owner}/{PROJECT}/_git/{repository}"

    def git_path(self, path: str) -> str:
        match = re.fullmatch(rf"/([^/]+)/{PROJECT}/_git/([^/]+)(/.*)", path)
        usual = path if ".git/" in path else ""  # for scripts that push to every kind of forge
        return f"/{match[1]}/{match[2]}.git{match[3]}" if match else usual

    def hosted_at(self, path: str) -> Hosted | None:
        match = re.match(rf"/([^/]+)/{PROJECT}/_apis/git/repositories/([^/]+)", path)
        return self.repositories.get(f"{match[1]}/{match[2]}") if match else None

    def authorized(self, authorization: str, path: str) -> bool:
        scheme, _, value = authorization.partition(" ")
        sent = base64.b64decode(value).decode() if scheme == "Basic" else ""
        return sent.startswith(":") and sent[1:] in self.tokens_in_use()

    def limited(self, kind: str) -> Answer:
        if kind == "exists":
            message = "TF401179: An active pull request for the source and target branch already exists."
            return _error(409, message, "GitPullRequestExistsException")
        message = "TF400733: The request has been canceled: Request was blocked"
        return _error(429, message, "", {"Retry-After": "25"})

    def forbidden(self, kind: str, hosted: Hosted) -> Answer:
        if kind == "archived":
            return _error(403, f"The repository {hosted.name} is disabled.", "GitRepositoryDisabledException")
        message = "TF401027: You need the Git 'PullRequestContribute' permission to perform this action."
        return _error(403, message, "GitNeedsPermissionException")

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        if not query.get("api-version", "").startswith("7.1"):
            self.violations.append(f"no version of the API: {method} {path}")
        if path.endswith("/_apis/connectionData"):
            return Answer(200, {"authenticatedUser": {"id": self._id(self.bot)}})
        if match := re.fullmatch(r"/[^/]+/_apis/projects/fleet/teams(?:/(\w+)/members)?", path):
            return self._teams(match[1], query)
        hosted = self.hosted_at(path)
        if path.endswith("/_apis/git/policy/configurations"):
            return self._policies(query["repositoryId"])
        if hosted is None:
            message = "TF401019: The Git repository with name or identifier does not exist or you do not have"
            return _error(404, f"{message} permissions.", "GitRepositoryNotFoundException")
        rest = path.partition("/_apis/git/repositories/")[2].partition("/")[2]
        if not rest:
            branch = {"defaultBranch": "refs/heads/main"} if hosted.repo.refs() else {}
            return Answer(200, {"id": f"repository-{hosted.number}", "name": hosted.name, **branch})
        if match := re.fullmatch(r"commits/(\w+)/statuses", rest):
            checks = hosted.checks.get(match[1], {})
            return _values({"context": {"name": n}, "state": _STATES[passed]} for n, passed in checks.items())
        if rest == "pullrequests":
            return self._list(hosted, query) if method == "GET" else self._open(hosted, body)
        match = re.fullmatch(r"pullrequests/(\d+)(?:/(.*))?", rest)
        pull = hosted.pulls.get(int(match[1])) if match else None
        if match is None or pull is None:
            return _error(
                404, "TF401180: The requested pull request was not found.", "GitPullRequestNotFoundException"
            )
        return self._of_pull(hosted, self.refreshed(hosted, pull), f"{method} {match[2] or ''}", body)

    def refreshed(self, hosted: Hosted, pull: Pull) -> Pull:
        pull = super().refreshed(hosted, pull)
        if pull.completing and not self.is_checking(hosted) and pull.state == "open":
            how, pull.completing = pull.completing, ""
            self.merge(hosted.name, pull.number, how)
        return pull

    def _of_pull(self, hosted: Hosted, pull: Pull, what: str, body: Any) -> Answer:
        number = 1 + max(pull.comments, default=0)
        match what.split("/"):
            case ["GET "]:
                return Answer(200, self.shown(hosted, pull))
            case ["PATCH "] if body.get("status") == "completed":
                return self._complete(hosted, pull, body)
            case ["PATCH "]:
                return self._update(hosted, pull, body)
            case ["GET labels"]:
                return _values({"name": name, "active": True} for name in pull.labels)
            case ["POST labels"]:
                # The one who writes a label first decides its case.
                known = {name.casefold(): name for p in hosted.pulls.values() for name in p.labels}
                pull.labels = sorted({*pull.labels, known.get(body["name"].casefold(), body["name"])})
                return Answer(200, {"name": body["name"], "active": True})
            case ["DELETE labels", name]:
                pull.labels.remove(name)
                return Answer(200, None)
            case ["PUT reviewers", known]:
                names = {self._id(name): name for name in (*self.users, "team/platform")}
                pull.reviewers = sorted({*pull.reviewers, names[known]})
                return Answer(200, {"id": known, "vote": body["vote"]})
            case ["GET iterations"]:
                return _values([{"id": 1}, {"id": 2}])
            case ["POST statuses"]:
                assert body["iterationId"] == 2
                state = {"succeeded": "success"}.get(body["state"], body["state"])
                hosted.set_status(pull.head_oid, body["context"]["name"], state, body["description"])
                return Answer(200, body)
            case ["GET threads"]:
                return _values(self._thread(n, *comment) for n, comment in pull.comments.items())
            case ["POST threads"]:
                assert body["status"] == "closed"
                pull.comments[number] = (self.bot, body["comments"][0]["content"])
                return Answer(200, self._thread(number, *pull.comments[number]))
            case ["DELETE threads", thread, "comments", "1"]:
                del pull.comments[int(thread)]
                return Answer(200, None)
            case ["PATCH threads", thread, "comments", "1"]:
                pull.comments[int(thread)] = (self.bot, body["content"])
                return Answer(200, {"id": 1, "content": body["content"]})
        return _error(404, "The controller for path was not found", "")

    def _update(self, hosted: Hosted, pull: Pull, body: Any) -> Answer:
        if len(body.get("description", "")) > 4000:
            return _error(400, "The description is longer than 4000 characters", INVALID)
        pull.title, pull.body = body.get("title", pull.title), body.get("description", pull.body)
        pull.base = body.get("targetRefName", f"refs/heads/{pull.base}").removeprefix("refs/heads/")
        pull.draft = body.get("isDraft", pull.draft)
        pull.state = _STATUSES.get(body.get("status", ""), pull.state)
        if "status" in body:
            pull.closed = self.clock.now() if pull.state == "closed" else None
        if "autoCompleteSetBy" in body:
            if body["autoCompleteSetBy"]["id"] != self._id(self.bot) or not hosted.auto_merge:
                return _error(400, "Auto-complete can be set by the caller alone", "")
            pull.auto = _STRATEGIES[body["completionOptions"]["mergeStrategy"]]
        pull.updated = self.clock.now()
        return Answer(200, self.shown(hosted, pull))

    def _complete(self, hosted: Hosted, pull: Pull, body: Any) -> Answer:
        if body["lastMergeSourceCommit"]["commitId"] != pull.head_oid:
            return _error(409, "TF401192: The pull request has new commits.", "GitPullRequestStaleException")
        style = _STRATEGIES[body["completionOptions"]["mergeStrategy"]]
        refusal = "A merge strategy is not permitted." if style != hosted.style else ""
        refusal = {"review": "Minimum number of reviewers", "person": "Required reviewers"}.get(
            hosted.refuses_merge, refusal
        )
        refusal = "Status check" if self.missing_checks(hosted, pull) else refusal
        if refusal:
            return _error(403, f"Policies are not met: {refusal}", UNMET)
        if pull.draft or pull.state != "open":
            return _error(400, "The pull request cannot be completed", INVALID)
        shown = self.shown(hosted, pull)
        pull.completing = style
        return Answer(200, shown)

    def _list(self, hosted: Hosted, query: dict[str, str]) -> Answer:
        pulls = [self.refreshed(hosted, p) for p in hosted.pulls.values() if p.head and self.visible(p)]
        shown = [self.shown(hosted, p) for p in sorted(pulls, key=lambda p: p.number, reverse=True)]
        for item in shown:
            item["description"] = item["description"][:400]
        if (status := query.get("searchCriteria.status", "active")) != "all":
            shown = [item for item in shown if item["status"] == status]
        if head := query.get("searchCriteria.sourceRefName"):
            shown = [item for item in shown if item["sourceRefName"] == head]
        if query.get("searchCriteria.queryTimeRangeType") == "closed":
            least = query["searchCriteria.minTime"]
            shown = [item for item in shown if item["closedDate"] and item["closedDate"] >= least]
        start, most = int(query.get("$skip", 0)), int(query.get("$top", 100))
        start = max(0, start + (self.page_slip if start else 0))
        return _values(shown[start : start + most])

    def _open(self, hosted: Hosted, body: Any) -> Answer:
        head, base = (body[name].removeprefix("refs/heads/") for name in ("sourceRefName", "targetRefName"))
        if hosted.ref(head) is None or hosted.ref(base) is None:
            return self._no_branch()
        current = [self.refreshed(hosted, p) for p in hosted.pulls.values()]
        is_open = any((p.head, p.base, p.state, p.fork) == (head, base, "open", False) for p in current)
        if is_open and not self.lets_in:
            return self.limited("exists")
        if len(body["description"]) > 4000:
            return _error(400, "The description is longer than 4000 characters", INVALID)
        fields = {"title": body["title"], "body": body["description"], "draft": body["isDraft"]}
        fields |= {"head": head, "base": base, "labels": [label["name"] for label in body["labels"]]}
        return Answer(201, self.shown(hosted, self.new_pull(hosted, **fields)))

    def _no_branch(self) -> Answer:
        message = (
            "TF401398: The pull request cannot be activated because the source and/or the target branch no "
            "longer exists, or the requested refs are not branches"
        )
        return _error(400, message, "GitPullRequestCannotBeActivated")

    def _teams(self, team: str | None, query: dict[str, str]) -> Answer:
        start, most = int(query.get("$skip", 0)), int(query.get("$top", 100))
        if team is None:
            return _values([{"id": self._id("team/platform"), "name": "platform"}][start : start + most])
        members = [
            {"id": self._id(name), "uniqueName": name, "displayName": f"{name.title()} of the team"}
            for name in self.users
        ]
        return _values({"identity": member} for member in members[start : start + most])

    def _policies(self, repository: str) -> Answer:
        (hosted,) = [h for h in self.repositories.values() if f"repository-{h.number}" == repository]
        names = {"allowNoFastForward": "merge", "allowSquash": "squash", "allowRebase": "rebase"}
        settings = {name: hosted.style == style for name, style in names.items()}
        return _values([{"isEnabled": True, "settings": settings}])

    def _id(self, name: str) -> str:
        return f"{name.encode().hex():0<32}"

    def _thread(self, number: int, login: str, text: str) -> dict[str, Any]:
        comment = {"id": 1, "content": text, "author": {"id": self._id(login)}, "commentType": "text"}
        return {"id": number, "status": "closed", "comments": [comment]}

    def shown(self, hosted: Hosted, pull: Pull) -> dict[str, Any]:
        status = "completed" if pull.merged else {"closed": "abandoned"}.get(pull.state, "active")
        made = {
            "pullRequestId": pull.number,
            "title": pull.title,
            "description": pull.body,
            "status": status,
            "isDraft": pull.draft,
            "mergeStatus": "queued" if pull.completing else "succeeded",
            "sourceRefName": f"refs/heads/{pull.head}",
            "targetRefName": f"refs/heads/{pull.base}",
            "lastMergeSourceCommit": {"commitId": pull.head_oid},
            "lastMergeCommit": {"commitId": pull.merge_oid} if pull.merge_oid else None,
            "labels": [{"name": name, "active": True} for name in pull.labels],
            "reviewers": [{"id": self._id(name), "vote": 0} for name in pull.reviewers],
            "autoCompleteSetBy": {"id": self._id(self.bot)} if pull.auto else None,
            "forkSource": {"name": "refs/heads/x"} if pull.fork else None,
            "creationDate": self.stamp(pull.created),
            "closedDate": self.stamp(pull.closed),
        }
        if not self.shows_labels:
            del made["labels"]
        return {name: value for name, value in made.items() if value is not None or name == "closedDate"}


def _values(items: Any) -> Answer:
    values = list(items)
    return Answer(200, {"count": len(values), "value": values})


def _error(status: int, message: str, kind: str, headers: dict[str, str] | None = None) -> Answer:
    body = {"$id": "1", "innerException": None, "message": message, "typeName": kind, "typeKey": kind}
    return Answer(status, {**body, "errorCode": 0, "eventId": 3000}, headers or {})
