"""GitHub: REST, and GraphQL where REST cannot. Tried against its REST description and its public schema."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from reconciler.errors import ConflictError, RefusedError, UnavailableError
from reconciler.forge.answers import read_seen
from reconciler.forge.faults import InvalidError
from reconciler.forge.http import Transport
from reconciler.forge.remote import Comment, ExistsError, Issue, Seen, closed_time, write_times
from reconciler.inventory import PullRequest, PullState

COMMENTS = """
query Comments($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      comments(first: 100, after: $after) {
        nodes { id body viewerDidAuthor }
        pageInfo { hasNextPage endCursor }
      }
    }
  }
}"""
READY = """
mutation Ready($id: ID!) {
  markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { isDraft } }
}"""
DRAFT = """
mutation Draft($id: ID!) {
  convertPullRequestToDraft(input: {pullRequestId: $id}) { pullRequest { isDraft } }
}"""
EDIT_COMMENT = """
mutation EditComment($id: ID!, $body: String!) {
  updateIssueComment(input: {id: $id, body: $body}) { issueComment { id } }
}"""
ISSUES = """
query Issues($owner: String!, $name: String!, $after: String) {
  repository(owner: $owner, name: $name) {
    issues(first: 100, after: $after, orderBy: {field: UPDATED_AT, direction: DESC}) {
      nodes { number body closed viewerDidAuthor updatedAt }
      pageInfo { hasNextPage endCursor }
    }
  }
}"""
CHECKS = """
query Checks($owner: String!, $name: String!, $commit: GitObjectID!, $after: String) {
  repository(owner: $owner, name: $name) {
    object(oid: $commit) {
      ... on Commit {
        statusCheckRollup {
          contexts(first: 100, after: $after) {
            nodes {
              ... on CheckRun { name conclusion }
              ... on StatusContext { context state }
            }
            pageInfo { hasNextPage endCursor }
          }
        }
      }
    }
  }
}"""
DOCUMENTS = (COMMENTS, READY, DRAFT, EDIT_COMMENT, ISSUES, CHECKS)

DRAFT_LABEL = "draft"
"""What says that a pull request is a draft where a repository's plan has no drafts."""
HEADERS = {"X-GitHub-Api-Version": "2022-11-28"}
_NO_DRAFTS = re.compile("draft pull requests are not supported", re.IGNORECASE)
_NO_PAGE: Mapping[str, Any] = {"nodes": (), "pageInfo": {"hasNextPage": False}}
_METHODS = ("merge", "squash", "rebase")


def default_api(host: str) -> str:
    """Return where the API of a host is: github.com's own, or an enterprise server's."""
    return "https://api.github.com" if host == "github.com" else f"https://{host}/api/v3"


class GitHub:
    """The dialect of GitHub for one repository, `owner/name`."""

    most_text = 60_000

    def __init__(self, transport: Transport, name: str) -> None:
        self.name = name
        self.transport = transport
        self.owner, _, self.repository = name.rpartition("/")
        self._root = f"/repos/{quote(name)}"

    def list_all(self) -> Iterator[Seen]:
        """Yield the pull requests from oldest to newest, so that a new one cannot shift a page."""
        asked: dict[str, str | int] = {"state": "all", "sort": "created", "direction": "asc", "per_page": 100}
        yield from self._seen_all(self.transport.pages(f"{self._root}/pulls", asked))

    def find_open(self, head: str) -> Iterator[Seen]:
        """Yield the open pull requests of a branch."""
        asked: dict[str, str | int] = {"state": "open", "head": f"{self.owner}:{head}"}
        found = self._seen_all(self.transport.get(f"{self._root}/pulls", asked).data)
        yield from (s for s in found if s.head == head and s.state is PullState.OPEN)

    def find(self, number: int) -> Seen:
        """Return a pull request; MissingError if there is none."""
        return _seen(self.transport.get(f"{self._root}/pulls/{number}").data)

    def create(self, wanted: PullRequest) -> Seen:
        """Open a pull request; where a plan has no drafts, a label says that it is one."""
        body = {"title": wanted.title, "head": wanted.head, "base": wanted.base, "body": wanted.body}
        try:
            reply = self.transport.write("POST", f"{self._root}/pulls", {**body, "draft": wanted.draft})
        except InvalidError as error:
            said = str(error)
            if _NO_DRAFTS.search(said) and wanted.draft:
                ready = self.create(replace(wanted, draft=False))
                return replace(self.set_labels(ready, (*ready.labels, DRAFT_LABEL)), draft=True)
            raise _why_not(wanted, said) or error from error
        return _seen(reply.data)

    def edit(self, seen: Seen, title: str, body: str, base: str) -> Seen:
        """Give it another title, text and base."""
        moved = {"base": base} if base != seen.base else {}
        return self._patch(seen, {"title": title, "body": body, **moved})

    def set_labels(self, seen: Seen, labels: tuple[str, ...]) -> Seen:
        """Give it exactly these labels."""
        path = f"{self._root}/issues/{seen.number}/labels"
        reply = self.transport.write("PUT", path, {"labels": list(labels)}, repeatable=True)
        return replace(seen, labels=tuple(label["name"] for label in reply.data))

    def mark_ready(self, seen: Seen) -> None:
        """Let it be no draft any more: REST ignores `draft`."""
        if DRAFT_LABEL in seen.labels:
            self.set_labels(seen, tuple(name for name in seen.labels if name != DRAFT_LABEL))
        else:
            self._graphql(READY, {"id": seen.key}, writes=True)

    def mark_draft(self, seen: Seen) -> None:
        """Let it be a draft again: REST ignores `draft`; where there are no drafts it gets the label."""
        try:
            self._graphql(DRAFT, {"id": seen.key}, writes=True)
        except InvalidError as error:
            if not _NO_DRAFTS.search(str(error)):
                raise
            self.set_labels(seen, (*seen.labels, DRAFT_LABEL))

    def close(self, seen: Seen) -> None:
        """Close it."""
        self._patch(seen, {"state": "closed"})

    def merge(self, seen: Seen, expect: str) -> Seen:
        """Merge it if its head is `expect`, by the first method that the repository allows."""
        for method in _METHODS:
            body = {"sha": expect, "merge_method": method}
            try:
                reply = self.transport.write("PUT", f"{self._root}/pulls/{seen.number}/merge", body)
            except InvalidError as error:
                if "not allowed" in str(error) and method != _METHODS[-1]:
                    continue
                raise
            return replace(seen, state=PullState.MERGED, merge_oid=reply.data["sha"])
        raise AssertionError

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield our own comments."""
        after = None
        while True:
            values = {"owner": self.owner, "name": self.repository, "number": number, "after": after}
            page = self._graphql(COMMENTS, values)["repository"]["pullRequest"]["comments"]
            yield from (Comment(c["id"], c["body"]) for c in page["nodes"] if c and c["viewerDidAuthor"])
            if not page["pageInfo"]["hasNextPage"]:
                return
            after = page["pageInfo"]["endCursor"]

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment, one request."""
        reply = self.transport.write("POST", f"{self._root}/issues/{number}/comments", {"body": body})
        return Comment(reply.data["node_id"], reply.data.get("body") or body)

    def edit_comment(self, _: int, comment: Comment, body: str) -> None:
        """Change a comment of ours."""
        self._graphql(EDIT_COMMENT, {"id": comment.key, "body": body}, writes=True)

    def checks(self, commit: str) -> Iterator[tuple[str, bool]]:
        """Yield the check runs and statuses of a commit; of several of one name all must have passed."""
        passed: dict[str, bool] = {}
        asked = {"owner": self.owner, "name": self.repository, "commit": commit, "after": None}
        while True:
            found = self._graphql(CHECKS, asked)["repository"]["object"] or {}
            page = (found.get("statusCheckRollup") or {}).get("contexts") or _NO_PAGE
            for node in page["nodes"]:
                name = node.get("name") or node.get("context") or ""
                is_good = "SUCCESS" in (node.get("conclusion"), node.get("state"))
                passed[name] = passed.get(name, True) and is_good
            if not page["pageInfo"]["hasNextPage"]:
                break
            asked["after"] = page["pageInfo"]["endCursor"]
        yield from passed.items()

    def issues(self) -> Iterator[Issue]:
        """Yield our own issues, open or closed."""
        after = None
        while True:
            data = self._graphql(ISSUES, {"owner": self.owner, "name": self.repository, "after": after})
            page = data["repository"]["issues"]
            for node in page["nodes"]:
                if node["viewerDidAuthor"]:
                    changed = write_times({"updated_at": node["updatedAt"]})
                    yield Issue(node["number"], node["body"], not node["closed"], changed)
            if not page["pageInfo"]["hasNextPage"]:
                return
            after = page["pageInfo"]["endCursor"]

    def create_issue(self, title: str, body: str) -> Issue:
        """Open an issue, one request."""
        reply = self.transport.write("POST", f"{self._root}/issues", {"title": title, "body": body})
        return Issue(reply.data["number"], body)

    def edit_issue(self, number: int, body: str) -> None:
        """Give an issue of ours another text."""
        self.transport.write("PATCH", f"{self._root}/issues/{number}", {"body": body}, repeatable=True)

    def _patch(self, seen: Seen, body: Mapping[str, str]) -> Seen:
        path = f"{self._root}/pulls/{seen.number}"
        return _seen(self.transport.write("PATCH", path, body, repeatable=True).data)

    def _graphql(self, document: str, variables: Mapping[str, Any], *, writes: bool = False) -> Any:
        base = self.transport.base.removesuffix("/v3")
        body = {"query": document, "variables": variables}
        path = f"{base}/graphql"
        if writes:
            return self.transport.write("POST", path, body, repeatable=True).data["data"]
        return self.transport.query(path, body).data["data"]

    def _seen_all(self, items: Any) -> Iterator[Seen]:
        if not hasattr(items, "__iter__"):
            raise UnavailableError(f"{self.name}: the list of pull requests is none")
        own = (item for item in items if _is_own(item))
        yield from (read_seen(item, _seen, "number", lambda i: i["head"]["ref"]) for item in own)


def _is_own(item: Mapping[str, Any]) -> bool:
    """Whether the head stands in the repository itself: a fork may use our names."""
    head, base = item["head"].get("repo"), item["base"].get("repo")
    return bool(head and base and head["id"] == base["id"])


def _seen(item: Mapping[str, Any]) -> Seen:
    merged = item.get("merged_at")
    is_open = item["state"] == "open"
    labels = tuple(label["name"] for label in item.get("labels", ()))
    return Seen(
        number=item["number"],
        head=item["head"]["ref"],
        base=item["base"]["ref"],
        title=item["title"],
        body=item.get("body") or "",
        draft=is_open and (bool(item.get("draft")) or DRAFT_LABEL in labels),
        state=PullState.MERGED if merged else PullState.OPEN if is_open else PullState.CLOSED,
        head_oid=item["head"]["sha"],
        merge_oid=item.get("merge_commit_sha") or "",
        labels=labels,
        url=item.get("html_url", ""),
        key=item.get("node_id", ""),
        times=write_times(item),
        closed=closed_time(item),
    )


def _why_not(wanted: PullRequest, said: str) -> Exception | None:
    """Return what a refusal to open means, None if it means nothing that we know."""
    if "already exists" in said:
        return ExistsError(said)
    if "No commits between" in said:
        return ConflictError(f"{wanted.base} has all of {wanted.head} by now")
    if re.search(r"\bhead\b", said) and "invalid" in said:
        return RefusedError(f"{wanted.head} is no branch any more")
    if re.search(r"\bbase\b", said) and "invalid" in said:
        return RefusedError(f"{wanted.base} is no branch any more")
    return None
