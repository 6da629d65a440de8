"""Seeds of what repositories hold, from the worlds and states that are kept, and of what servers answer."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.fuzz.servers import DIGEST, HEAD, OID, answers
from tools.fuzz.shapes import SEPARATOR

_FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
_LARGEST, _MOST = 6000, 24


def _files(*patterns: str) -> list[bytes]:
    """Return kept files, as different ones as there are: at most one of a directory's name, spread evenly."""
    found: dict[tuple[str, ...], bytes] = {}
    for pattern in patterns:
        for path in sorted(_FIXTURES.glob(pattern)):
            data = path.read_bytes()
            keys = tuple(line.split(b":")[0].decode() for line in data.splitlines()[:60])
            if len(data) <= _LARGEST:
                found.setdefault(keys, data)
    kept = sorted(found.values(), key=lambda data: hashlib.sha256(data).digest())
    assert kept, patterns
    return kept[:_MOST]


def _locks() -> Iterator[bytes]:
    for path in sorted(_FIXTURES.glob("state/*/*/reconciler/*/state/locks/*.json")):
        body = (
            path.parent
            / "resolutions"
            / f"{json.loads(path.read_bytes())['resolution'].partition(':')[2]}.json"
        )
        yield path.read_bytes() + SEPARATOR + body.read_bytes()
    pin = {
        "namespace": "default",
        "name": "web",
        "repository": "b",
        "package": "web",
        "selector": {"revision": 1},
    }
    yield json.dumps({**pin, "apiVersion": "reconciler.dev/v1alpha1", "commit": OID, "tree": OID}).encode()


_JSON = {"Content-Type": "application/json"}
_TIMES = {"created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-02T00:00:00Z", "closed_at": None}
_TEXT = "What changed\n\n[//]: # (reconciler:begin 1)\n"
_USER = {"login": "bot", "username": "bot", "id": 7, "uuid": "{7}", "nickname": "bot"}
_NEXT = {"Link": '<https://h.example/api/v3/x?page=2>; rel="next", <https://h.example/?page=9>; rel="last"'}


def _at(
    path: str, body: Any, status: int = 200, says: str = "", headers: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], Any]:
    method, _, path = path.rpartition(" ")
    fields = {"path": path, "method": method, "says": says, "status": status}
    return {**fields, "headers": {**_JSON, **(headers or {})}}, body


def _github(number: int, state: str = "open") -> dict[str, Any]:
    repository = {"id": 1}
    return {
        "number": number,
        "state": state,
        "title": "Update web",
        "body": _TEXT,
        "draft": number == 1,
        **_TIMES,
        "head": {"ref": HEAD, "label": HEAD, "sha": OID, "repo": repository, "repo_id": 1},
        "base": {"ref": "main", "label": "main", "sha": OID, "repo": repository, "repo_id": 1},
        "labels": [{"name": "a", "id": 3}],
        "user": _USER,
        "html_url": "https://h.example/1",
        "node_id": "N",
        "merged_at": None,
        "merged": False,
        "merge_commit_sha": None,
        "mergeable": True,
        "auto_merge": None,
        "assignees": [_USER],
    }


def _graph(field: str, node: Any) -> tuple[dict[str, Any], Any]:
    connection = {"nodes": [node], "pageInfo": {"hasNextPage": False, "endCursor": "c"}}
    return _at("/graphql", {"data": {"repository": {field: connection}}}, says=field)


def _forge_github() -> bytes:
    pull, rollup = (
        "/pulls/1",
        {"nodes": [{"name": "ci", "conclusion": "SUCCESS"}, {"context": "b", "state": "X"}]},
    )
    rollup["pageInfo"] = {"hasNextPage": False, "endCursor": None}  # type: ignore[assignment]
    comments = {"nodes": [{"id": "C", "body": "b", "viewerDidAuthor": True}], "pageInfo": rollup["pageInfo"]}
    issue = {"number": 4, "title": "Dashboard", "body": "b", "closed": False, "viewerDidAuthor": True}
    return answers(
        _at("POST /pulls", _github(5), 201),
        _at("/pulls", [_github(1), _github(2, "closed")], headers={"ETag": 'W/"a"', **_NEXT}),
        _at("/pulls", [_github(3, "closed")]),
        _at(pull, _github(1)),
        _at("/merge", {"sha": OID}),
        _at("/labels", [{"name": "a"}]),
        _at("/comments", {"node_id": "C", "body": "b"}, 201),
        _at("/issues", {"number": 4}, 201),
        _at(
            "/graphql",
            {"data": {"repository": {"object": {"statusCheckRollup": {"contexts": rollup}}}}},
            says="Checks",
        ),
        _at("/graphql", {"data": {"repository": {"pullRequest": {"comments": comments}}}}, says="Comments("),
        _graph("issues", issue | {"updatedAt": "2026-01-01T00:00:00Z"}),
        _at(
            "/graphql",
            {"data": {"repository": {"mergeQueue": None, "pullRequest": {"viewerDidAuthor": True}}}},
        ),
        _at("/acme/edge", {"has_pull_requests": True}),
        _at("", {"id": 1}),
    )


def _gitlab(number: int, state: str = "opened") -> dict[str, Any]:
    return {
        "iid": number,
        "state": state,
        "title": "Draft: Update web",
        "description": _TEXT,
        **_TIMES,
        "sha": OID,
        "source_branch": HEAD,
        "target_branch": "main",
        "source_project_id": 1,
        "target_project_id": 1,
        "labels": ["a"],
        "web_url": "https://h.example/1",
        "merge_commit_sha": None,
        "author": _USER,
        "reviewers": [_USER],
        "assignees": None,
        "detailed_merge_status": "mergeable",
    }


def _forge_gitlab() -> bytes:
    return answers(
        _at("POST /merge_requests", _gitlab(5), 201),
        _at("POST /notes", {"id": 5, "body": "b"}, 201),
        _at("POST /issues", {"iid": 5, "title": "Dashboard"}, 201),
        _at("/merge_requests", [_gitlab(1), _gitlab(2, "merged")], headers=_NEXT),
        _at("/merge_requests", [_gitlab(3, "closed")]),
        _at("/merge_requests/1", _gitlab(1)),
        _at("/merge", _gitlab(1, "merged")),
        _at("/users", [_USER]),
        _at("/user", _USER),
        _at("/notes", [{"id": 5, "body": "b", "author": _USER, "system": False}]),
        _at("/statuses", [{"name": "ci", "status": "success"}]),
        _at("/issues", [{"iid": 4, "title": "Dashboard", "description": "b", "state": "opened", **_TIMES}]),
        _at("/merge_trains", [{"merge_request": {"iid": 1}}]),
        _at("acme/edge", {"merge_requests_access_level": "enabled", "merge_trains_enabled": True}),
        _at("", {"iid": 1, "id": 5, "body": "b"}),
    )


def _forge_gitea() -> bytes:
    return answers(
        _at("POST /pulls", _github(5), 201),
        _at("/pulls", [_github(1), _github(2, "closed")], headers=_NEXT),
        _at("/pulls", [_github(3, "closed")]),
        _at("/pulls/1", _github(1)),
        _at("POST /merge", b""),
        _at("POST /comments", {"id": 5, "body": "b"}, 201),
        _at("POST /issues", {"number": 5}, 201),
        _at("/labels", [{"name": "a", "id": 3}]),
        _at("/comments", [{"id": 5, "body": "b", "user": _USER}]),
        _at("/user", _USER),
        _at(f"/statuses/{OID}", [{"id": 1, "context": "ci", "status": "success"}]),
        _at("/issues", [{**_github(4), "title": "Dashboard"}]),
        _at("/acme/edge", {"default_merge_style": "merge", "allow_merge_commits": True, "empty": False}),
        _at("", _github(1)),
    )


def _forge_azure() -> bytes:
    pull = {
        "pullRequestId": 1,
        "title": "Update web",
        "description": _TEXT,
        "status": "active",
        "isDraft": True,
        "sourceRefName": f"refs/heads/{HEAD}",
        "targetRefName": "refs/heads/main",
        "mergeStatus": "succeeded",
        "lastMergeSourceCommit": {"commitId": OID},
        "lastMergeCommit": {"commitId": OID},
        "closedDate": None,
        "labels": [{"name": "a", "active": True}],
        "reviewers": [{"id": "r"}],
        "autoCompleteSetBy": None,
        "creationDate": "2026-01-01T00:00:00.1234567Z",
    }
    member = {"identity": {"displayName": "Alice", "uniqueName": "alice", "id": "r"}}
    comment = {"id": 1, "content": "b", "author": {"id": "me"}, "commentType": "text"}
    status = {"state": "succeeded", "context": {"genre": "ci", "name": "build"}}
    settings = {"allowNoFastForward": True, "allowSquash": False}
    return answers(
        _at("POST /pullrequests", pull, 201),
        _at("POST /threads", {"id": 9, "comments": [comment]}, 201),
        _at("PATCH /pullrequests/1", {**pull, "status": "completed"}),
        _at("/pullrequests", {"value": [pull, {**pull, "pullRequestId": 2, "status": "completed"}]}),
        _at("/pullrequests/1", pull),
        _at("/labels", {"value": [{"name": "a", "active": True}]}),
        _at("/threads", {"value": [{"id": 9, "comments": [comment]}]}),
        _at("/statuses", {"value": [status]}),
        _at("/iterations", {"value": [{"id": 1}, {"id": 2}]}),
        _at("/teams", {"value": [{"id": "t", "name": "team"}]}),
        _at("/members", {"value": [member]}),
        _at("/connectionData", {"authenticatedUser": {"id": "me"}}),
        _at("/configurations", {"value": [{"isEnabled": True, "settings": settings}]}),
        _at("/repositories/edge", {"id": "repository", "defaultBranch": "refs/heads/main"}),
        _at("", pull),
    )


def _forge_bitbucket() -> bytes:
    side = {"branch": {"name": HEAD}, "commit": {"hash": OID[:12]}, "repository": {"uuid": "{1}"}}
    pull = {
        "id": 1,
        "title": "Update web",
        "description": _TEXT,
        "state": "OPEN",
        "draft": True,
        "author": _USER,
        "source": side,
        "destination": {**side, "branch": {"name": "main", "merge_strategies": ["squash"]}},
        "links": {"html": {"href": "https://h.example/1"}},
        "reviewers": [_USER],
        "merge_commit": None,
        "created_on": "2026-01-01T00:00:00+00:00",
        "updated_on": "2026-01-02T00:00:00+00:00",
    }
    return answers(
        _at("POST /pullrequests", pull, 201),
        _at("POST /comments", {"id": 5}, 201),
        _at("/pullrequests", {"values": [pull], "next": "https://h.example/?page=2"}),
        _at(
            "/pullrequests",
            {"values": [{**pull, "id": 2, "state": "MERGED", "merge_commit": {"hash": OID[:12]}}]},
        ),
        _at("/pullrequests/1", pull),
        _at("/merge", {**pull, "state": "MERGED"}),
        _at("/members", {"values": [{"user": {**_USER, "nickname": name}} for name in ("alice", "bob")]}),
        _at("/user", _USER),
        _at("/comments", {"values": [{"id": 5, "content": {"raw": "b"}, "user": _USER, "deleted": False}]}),
        _at("/statuses", {"values": [{"key": "ci", "name": "CI", "state": "SUCCESSFUL"}]}),
        _at("/branches", {"values": [{"target": {"hash": OID}}]}),
        _at(f"/commit/{OID[:12]}", {"hash": OID}),
        _at("/acme/edge", {"mainbranch": {"name": "main"}}),
        _at("", pull),
    )


def _refusals() -> Iterator[bytes]:
    """Yield what any forge may say instead: limits, moves, refusals of GraphQL, pages of people."""
    told = {"errors": [{"type": "FORBIDDEN", "path": ["createPullRequest"], "message": "no"}], "data": None}
    limit = {
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "1767400030",
        "Date": "Sat, 03 Jan 2026 00:26:40 GMT",
    }
    yield answers(
        _at("", {"message": "You have exceeded a secondary rate limit"}, 403, headers={"Retry-After": "5"})
    )
    yield answers(_at("", {"message": "x"}, 429, headers=limit), _at("", [], 200))
    yield answers(
        _at("", {}, 307, headers={"Location": "https://h.example/api/v3/moved"}), _at("", told, 200)
    )
    yield answers(
        _at("", b"<html><body>Sign in</body></html>", 203), _at("", {"errors": [{"field": "a"}]}, 422)
    )


def _registry() -> Iterator[bytes]:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("web/Chart.yaml"))
    layer = gzip.compress(packed.getvalue(), mtime=0)
    kind = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    blob = {"digest": f"sha256:{hashlib.sha256(layer).hexdigest()}", "size": len(layer), "mediaType": kind}
    manifest = {"config": blob | {"annotations": {"a": "b"}}, "layers": [blob], "manifests": None}
    realm = 'Bearer realm="https://h.example/token",service="s",scope="repository:c/web:pull"'
    link = {"Link": '</v2/c/web/tags/list?n=1&last=1.0.0>; rel="next"', "ETag": '"a"'}
    body = json.dumps(manifest).encode()
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    shared = (
        _at("/tags/list", {"name": "c/web", "tags": ["1.0.0", "1.1.0_b", "latest"]}, headers=link),
        _at("/tags/list", {"tags": ["2.0.0", "v2.1.0"]}),
        _at("/manifests/1.0.0", body, 200, "", headers={"Docker-Content-Digest": digest}),
        _at("/manifests/2.0.0", body),
        _at("/manifests/v2.1.0", body),
        _at(f"/blobs/{blob['digest']}", b"", 307, headers={"Location": "https://storage.example/blob?sig=1"}),
        _at("/blob", layer),
        _at("/index.yaml", b"entries:\n  web:\n  - {version: 1.0.0, urls: [web.tgz]}\n"),
        _at("/web.tgz", layer),
    )
    yield answers(*shared)
    yield answers(
        *(
            _at(path, {}, 401, headers={"WWW-Authenticate": realm})
            for path in ("/tags/list", "/manifests/1.0.0")
        ),
        _at("/token", {"token": "abc", "access_token": None}),
        *shared,
    )
    yield answers(_at("", {"errors": [{"code": "DENIED", "message": "no"}]}, 403), _at("", {}, 404))
    index = {"manifests": [{"digest": DIGEST, "size": 7, "mediaType": "m"}]}
    limited = {"Retry-After": "3", "RateLimit-Remaining": "0;w=21600", "Date": "x"}
    yield answers(
        _at("", {}, 429, headers=limited), _at(f"/manifests/{DIGEST}", index), _at("", {"tags": None})
    )


_METADATA = {"name": "a", "namespace": "b", "labels": {"c": "d"}, "annotations": {"e": "f"}}
_OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _METADATA, "data": {"g": "h"}}
_HEALTH = {"sync": {"status": "Synced"}, "health": {"status": "Healthy"}, "conditions": [{"type": "a"}]}
_KINDS: tuple[dict[str, Any], ...] = (
    {"kind": "Secret", "status": {}},
    {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "status": _HEALTH},
)
SEEDS: dict[str, list[bytes]] = {
    "manifest": _files("worlds/*/config/manifests/*.yaml", "worlds/*/config/*.yaml"),
    "dialect": _files("worlds/*/config/index/*/*/*.yaml", "worlds/*/config/manifests/*.yaml"),
    "snapshot": [
        *_files("worlds/*/cluster/*.yaml"),
        json.dumps(
            {"apiVersion": "v1", "kind": "List", "metadata": {"continue": ""}, "items": [_OBJECT]}
        ).encode(),
        b"\n".join(json.dumps({**_OBJECT, **more}).encode() for more in _KINDS),
    ],
    "kptfile-header": _files("worlds/**/Kptfile"),
    "package": [
        SEPARATOR.join(
            [kptfile, b"apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n# x\na: b\n", kptfile, b"x*\n"]
        )
        for kptfile in _files("worlds/**/Kptfile")[:8]
    ],
    "state": [
        SEPARATOR.join(files[at : at + 4])
        for files in (
            _files("state/*/*/reconciler/*/*/**/*.json"),
            _files("state/*/*/reconciler/*/*/**/*.jsonl"),
        )
        for at in range(0, len(files), 4)
    ],
    "lock": [*_locks()],
    "registry": [*_registry()],
    "forge-github": [_forge_github(), *_refusals()],
    "forge-gitlab": [_forge_gitlab(), *_refusals()],
    "forge-gitea": [_forge_gitea(), *_refusals()],
    "forge-azure": [_forge_azure(), *_refusals()],
    "forge-bitbucket": [_forge_bitbucket(), *_refusals()],
}
