"""A forge for tests: a real HTTP server on the loopback with real bare repositories behind it.

Pushes are git's own, over git smart HTTP; pull requests live in memory and take their heads from the
repositories, so the two cannot disagree. Every request and reply is judged by the forge's description
and written to a journal. Faults are planned, the time is virtual.
"""

import base64
import json
import re
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from reconciler.git.urls import Credential
from tests.support.forges.description import Description
from tests.support.git import Repo
from tests.support.http_git import answer_git
from tests.support.http_server import read_body

START = 1_767_400_000.0
TOKEN = "s3cret-token-of-the-bot"
MINUTE, HOUR = 60.0, 3600.0


class VirtualClock:
    """A clock that only waits advance."""

    def __init__(self, start: float = START) -> None:
        self.time = start
        self.slept: list[float] = []
        self._lock = threading.Lock()

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.time += seconds
            self.slept.append(seconds)


class Entry(NamedTuple):
    """A request in the journal of the server."""

    time: float
    method: str
    path: str
    status: int
    writes: bool
    fault: str
    authorization: str


@dataclass
class Fault:
    """A planned fault of matching requests: `times` times, after `skip` of them succeeded."""

    kind: str
    method: str = ""
    path: str = ""
    times: int = 1
    skip: int = 0

    def takes(self, method: str, path: str) -> bool:
        if (self.method and self.method != method) or not re.search(self.path, path):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return self.times >= 0


class Answer(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str] = MappingProxyType({})


@dataclass
class Pull:
    """A pull request, or an issue where `head` is empty."""

    number: int
    title: str
    body: str
    created: float
    head: str = ""
    base: str = ""
    draft: bool = False
    state: str = "open"
    head_oid: str = ""
    merge_oid: str = ""
    merged: float | None = None
    closed: float | None = None
    updated: float = 0.0
    labels: list[str] = field(default_factory=list)
    comments: dict[int, tuple[str, str]] = field(default_factory=dict)
    queued: bool = False
    """Whether the merge queue, or the train, of its branch has it."""
    auto: str = ""
    """How the forge merges it by itself once every required check passed, "" if it does not."""
    completing: str = ""
    """How Azure DevOps merges it once it comes to that, "" if nobody asked for it."""
    reviewers: list[str] = field(default_factory=list)
    assignees: list[str] = field(default_factory=list)
    fork: bool = False
    author: str = ""


@dataclass(eq=False)
class Hosted:
    """A repository that the simulator serves."""

    name: str
    repo: Repo
    number: int
    pulls: dict[int, Pull] = field(default_factory=dict)
    label_ids: dict[str, int] = field(default_factory=dict)
    doubled: dict[int, str] = field(default_factory=dict)
    """Labels of Gitea whose name another one has, by id: it takes both from two clients at once."""
    checks: dict[str, dict[str, bool | None]] = field(default_factory=dict)
    """Checks by commit and name: passed, failed, or None while they run."""
    texts: dict[tuple[str, str], str] = field(default_factory=dict)
    """Descriptions of the statuses that were set, by commit and name."""
    style: str = "merge"
    """The only way in which the repository lets pull requests be merged."""
    preferred: str = ""
    """The way that Gitea says it prefers, "" for the only one: its settings do not keep the two together."""
    empty_until: float = 0.0
    """Until when Gitea takes the repository for empty, although something was pushed."""
    checked_until: float = 0.0
    required: tuple[str, ...] = ()
    """Checks that branch protection requires."""
    auto_merge: bool = True
    """Whether the repository allows auto-merge."""
    refuses_merge: str = ""
    """Why branch protection refuses every merge: review (an approval is missing), person (the account may not
    merge), queue (GitHub: only the merge queue merges; GitLab: the project has merge trains)."""
    archived: bool = False
    has_pulls: bool = True
    """Whether pull requests are switched on."""

    def ref(self, branch: str) -> str | None:
        return self.repo.find(f"refs/heads/{branch}")

    def set_status(self, commit: str, name: str, state: str, text: str) -> None:
        """Set a status of a commit, as CI does with a token."""
        assert self.repo.git.get(commit), f"{commit} is not here"
        self.checks.setdefault(commit, {})[name] = {"success": True, "pending": None}.get(state, False)
        self.texts[commit, name] = text


@dataclass(eq=False)
class Simulator(ABC):
    """One forge; `answer` returns the reply to a request of its API under `prefix`."""

    root: Path
    prefix: str
    description: Description | None
    clock: Any = field(default_factory=VirtualClock)
    per_minute: int = 80
    per_hour: int = 500
    requests_per_hour: int = 0
    """The primary limit of each hour of the clock, 0 for none."""
    address: str = ""
    token: str = TOKEN
    job_token: str = ""
    """The token of a workflow's job, which stays when an App gets another one."""
    bot: str = "reconciler-bot"
    users: tuple[str, ...] = ("alice", "bob", "carol")
    """People who may review and be assigned; so may the team `platform` of every owner."""
    person: str = "kim"
    repositories: dict[str, Hosted] = field(default_factory=dict)
    journal: list[Entry] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    elsewhere: str = "http://localhost:1"
    lag_until: float = 0.0
    hidden: set[int] = field(default_factory=set)
    lets_in: bool = False
    """Whether another pull request of a branch is let in although one is open."""
    on_push: Callable[[], None] | None = None
    tamper: Callable[[str, Any], Any] | None = None
    """Makes another answer to a request that reads: its path and its right answer are given."""
    most_in_a_page: int = 1000
    page_slip: int = 0
    """By how many items later pages are off: below 0 some come twice, above 0 some are left out."""
    public_address: str = ""
    """The address in links of replies, where it differs from the one that clients use."""
    rechecks_s: float = 0.0
    """How long after a merge the forge still checks the other open pull requests of its repository."""
    may_write: bool = True
    """Whether the token has the permission to write."""
    closes_with_base: bool = True
    """Whether the forge closes pull requests when their base is deleted."""
    follows_closed: bool = False
    """Whether the head of a closed pull request follows its branch, as on Gitea and Forgejo."""
    skew: float = 0.0
    """By how many seconds the forge's clock is ahead of everybody else's."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    # What tests do

    def host(self, name: str, repo: Repo) -> Hosted:
        """Serve the bare repository at `root/<name>.git`."""
        self.repositories[name] = Hosted(name, repo, 100 + len(self.repositories))
        return self.repositories[name]

    @property
    def api(self) -> str:
        return f"{self.address}{self.prefix}"

    def url(self, name: str) -> str:
        return f"{self.address}/{name}.git"

    def called(self, name: str) -> str:
        """Return how a dialect calls a repository: by the path of its address."""
        return name

    def credential(self) -> Credential:
        return Credential("x-access-token", self.token)

    def git_path(self, path: str) -> str:
        """Return where git finds what a request is about, below the root; "" for a request of the API."""
        return "" if path.startswith((self.prefix, "/api/")) else path

    def hosted_at(self, path: str) -> Hosted | None:
        """Return the repository that a request of the API is about."""
        names = (name for name in self.repositories if f"/{name}/" in f"{path}/")
        return self.repositories.get(next(names, ""))

    def plan(self, kind: str, method: str = "", path: str = "", *, times: int = 1, skip: int = 0) -> None:
        self.faults.append(Fault(kind, method, path, times, skip))

    def writes(self) -> list[Entry]:
        return [e for e in self.journal if e.writes]

    def pulls(self, name: str) -> list[Pull]:
        hosted = self.repositories[name]
        return [self.refreshed(hosted, p) for _, p in sorted(hosted.pulls.items()) if p.head]

    def open_pulls(self, name: str) -> list[Pull]:
        return [p for p in self.pulls(name) if p.state == "open"]

    def merge(self, name: str, number: int, how: str = "merge") -> str:
        """Merge as a person does with the button."""
        hosted = self.repositories[name]
        pull = self.refreshed(hosted, hosted.pulls[number])
        oid = hosted.repo.merge(pull.head, into=pull.base, how=how, time=int(self.clock.now()))
        pull.state, pull.merged, pull.merge_oid, pull.draft = "closed", self.clock.now(), oid, False
        pull.closed = pull.updated = self.clock.now()
        hosted.checked_until = self.clock.now() + self.rechecks_s
        return oid

    def is_checking(self, hosted: Hosted) -> bool:
        """Whether the forge has not yet found out what can be merged after the last merge."""
        return self.clock.now() < hosted.checked_until

    def check(self, name: str, commit: str, check: str, *, passed: bool | None = True) -> None:
        """Report on a commit as CI does; None while a check runs."""
        hosted = self.repositories[name]
        hosted.checks.setdefault(commit, {})[check] = passed
        for pull in self.open_pulls(name):
            if pull.auto and not pull.draft and not self.missing_checks(hosted, pull):
                self.merge(name, pull.number, pull.auto)

    def run_queue(self, name: str, *, passed: bool = True) -> None:
        """Merge what is in the merge queue of a repository, or drop it as after a failed check."""
        for pull in self.open_pulls(name):
            if pull.queued:
                pull.queued = False
                if passed:
                    self.merge(name, pull.number, "merge")

    def missing_checks(self, hosted: Hosted, pull: Pull) -> list[str]:
        """Return the required checks that the head of a pull request has not passed yet."""
        passed = hosted.checks.get(pull.head_oid, {})
        return [check for check in hosted.required if not passed.get(check)]

    def close(self, name: str, number: int) -> None:
        """Close as a person does."""
        pull = self.repositories[name].pulls[number]
        pull.state, pull.closed, pull.updated = "closed", self.clock.now(), self.clock.now()

    def reopen(self, name: str, number: int) -> None:
        """Open again as a person does."""
        pull = self.repositories[name].pulls[number]
        pull.state, pull.closed, pull.updated = "open", None, self.clock.now()

    # What dialects need

    @abstractmethod
    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        """Answer a request of the API."""

    @abstractmethod
    def limited(self, kind: str) -> Answer:
        """Refuse a request as this forge does when a limit of this kind is reached."""

    @abstractmethod
    def forbidden(self, kind: str, hosted: Hosted) -> Answer:
        """Refuse a write as this forge does; the kind is archived or permission."""

    def forbids(self, hosted: Hosted) -> str:
        """Return why nobody may write to a repository, "" if they may."""
        return "archived" if hosted.archived else "" if self.may_write else "permission"

    def refreshed(self, hosted: Hosted, pull: Pull) -> Pull:
        """Update an open pull request from the repository: closed, merged by a push, or moved."""
        if pull.state == "closed" and self.follows_closed and pull.head and not (pull.merged or pull.fork):
            pull.head_oid = hosted.ref(pull.head) or pull.head_oid
        if pull.state != "open" or not pull.head or pull.fork:
            return pull
        head, base = hosted.ref(pull.head), hosted.ref(pull.base)
        if head is None or (base is None and self.closes_with_base):
            pull.state, pull.closed, pull.updated = "closed", self.clock.now(), self.clock.now()
            return pull
        pull.head_oid = head
        if base and (base == head or hosted.repo.git.descendant_of(base, head)):
            pull.state, pull.merged, pull.merge_oid, pull.draft = "closed", self.clock.now(), base, False
            pull.closed = pull.updated = self.clock.now()
        return pull

    def new_pull(self, hosted: Hosted, **fields: Any) -> Pull:
        number = 1 + max(hosted.pulls, default=0)
        now = self.clock.now()
        pull = Pull(number=number, created=now, updated=now, **fields)
        hosted.pulls[number] = pull
        if now < self.lag_until:
            self.hidden.add(id(pull))
        return self.refreshed(hosted, pull)

    def visible(self, pull: Pull) -> bool:
        """Whether lists show a pull request yet."""
        return self.clock.now() >= self.lag_until or id(pull) not in self.hidden

    def stamp(self, when: float | None) -> str | None:
        """Return a time as the forge's own clock gives it."""
        if when is None:
            return None
        return datetime.fromtimestamp(when + self.skew, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def paged(self, items: list[Any], query: Mapping[str, str], path: str, size: int) -> Answer:
        """Return one page of a list, with the link to the next."""
        size, page = min(size, self.most_in_a_page), int(query.get("page", 1))
        headers = {}
        if page * size < len(items):
            rest = "&".join(f"{k}={v}" for k, v in {**query, "page": page + 1}.items())
            address = self.public_address or self.address
            headers["Link"] = f'<{address}{self.prefix}{path}?{rest}>; rel="next"'
        start = max(0, (page - 1) * size + (self.page_slip if page > 1 else 0))
        return Answer(200, items[start : page * size], headers)

    def is_over(self) -> bool:
        """Whether one more write now would be over a limit, by the journal alone."""
        now = self.clock.now()
        recent = takewhile(lambda e: e.time > now - HOUR, reversed(self.journal))
        times = [e.time for e in recent if e.writes and e.status < 400]
        return sum(t > now - MINUTE for t in times) >= self.per_minute or len(times) >= self.per_hour

    def is_quota_spent(self) -> bool:
        """Whether this hour's primary limit is reached."""
        hour = self.clock.now() // HOUR
        recent = takewhile(lambda e: e.time // HOUR == hour, reversed(self.journal))
        return 0 < self.requests_per_hour <= sum(1 for _ in recent)

    def is_write(self, method: str, path: str, body: Any) -> bool:
        return method != "GET" and not path.endswith("/access_tokens")

    # One request

    def respond(self, handler: "_Handler", raw: bytes) -> None:
        parts = urlsplit(handler.path)
        method, path = handler.command, parts.path
        authorization = handler.headers.get("Authorization", "")
        if below := self.git_path(path):
            if self.on_push and path.endswith("/git-receive-pack") and method == "POST":
                act, self.on_push = self.on_push, None
                act()
            if _password(authorization) not in self.tokens_in_use():
                return handler.say(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
            hosted = self.repositories.get(below.lstrip("/").partition(".git/")[0])
            if hosted and "git-receive-pack" in handler.path and (why := self.forbids(hosted)):
                refusal = self.forbidden(why, hosted).body
                return handler.say(403, {"Content-Type": "text/plain"}, json.dumps(refusal).encode())
            handler.path = handler.path.replace(path, below, 1)
            return handler.say(*answer_git(self.root, handler, raw))
        with self.lock:
            body = json.loads(raw) if raw else None
            inside = path.removeprefix(self.prefix)
            fault = next((f for f in self.faults if f.takes(method, path)), None)
            writes = self.is_write(method, path, body)
            entry = (self.clock.now(), method, path)
            answer = self._answer(method, inside, parts.query, body, authorization, fault, writes=writes)
            if self.tamper is not None and not writes and answer.status < 300:
                answer = answer._replace(body=self.tamper(inside, answer.body))
            kind = fault.kind if fault else ""
            self.journal.append(Entry(*entry, answer.status, writes, kind, authorization))
        return self._send(handler, answer, kind)

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
        if fault and (early := self._early(fault.kind)):
            return early
        if not self.authorized(authorization, path):
            return Answer(401, {"message": "Bad credentials", "documentation_url": "d"})
        if self.is_quota_spent():
            self.violations.append(f"quota spent: {method} {path}")
            return self.limited("primary")
        if writes and self.is_over():
            self.violations.append(f"too fast: {method} {path}")
            return self.limited("secondary")
        if writes and (refusal := self._refusal(method, unquote(path))):
            return refusal
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        for old, new in self.moved.items():
            if path.startswith(f"/repos/{old}"):
                location = f"{self.api}{path.replace(old, new, 1)}" + (f"?{query}" if query else "")
                return Answer(
                    301 if method == "GET" else 307,
                    {"message": "Moved", "url": location, "documentation_url": "d"},
                    {"Location": location},
                )
        if self.description and path != "/graphql" and "graphql" not in path:
            self.violations += self.description.check_request(method, path, parameters, body)
        if fault and fault.kind == "raced":
            # Forges look for an open pull request and then insert without a lock: both writers get a 201.
            self.answer(method, unquote(path), parameters, body)
            self.lets_in = True
        answer = self.answer(method, unquote(path), parameters, body)
        self.lets_in = False
        if self.description and "graphql" not in path:
            self.violations += self.description.check_reply(method, path, answer.status, answer.body)
        return answer

    def _refusal(self, method: str, path: str) -> Answer | None:
        """Return the refusal of a write to a repository, None if it is permitted or concerns none."""
        hosted = self.hosted_at(path)
        why = self.forbids(hosted) if hosted else ""
        return self.forbidden(why, hosted) if hosted and why and self.obeys(why, method, path) else None

    def obeys(self, _why: str, _method: str, _path: str) -> bool:
        """Whether the forge refuses this write, too, where it refuses others for this reason."""
        return True

    def authorized(self, authorization: str, path: str) -> bool:
        return authorization.rpartition(" ")[2] in self.tokens_in_use()

    def tokens_in_use(self) -> set[str]:
        return {self.token, self.job_token or self.token}

    def _early(self, kind: str) -> Answer | None:
        if kind in {"reset_after", "truncated", "slow", "raced"}:
            return None
        if kind == "reset_before":
            return Answer(0, None)
        if kind == "html":
            return Answer(502, "<html><body><h1>Bad gateway</h1></body></html>")
        if kind == "html200":
            return Answer(200, "<html>Sign in to the proxy</html>")
        if kind.isdecimal():
            return Answer(int(kind), {"message": f"planned {kind}", "documentation_url": "d"})
        if kind == "elsewhere":
            return Answer(302, {}, {"Location": f"{self.elsewhere}/steal"})
        return self.limited(kind)

    def _date(self) -> str:
        return format_datetime(datetime.fromtimestamp(self.clock.now() + self.skew, UTC), usegmt=True)

    def _send(self, handler: "_Handler", answer: Answer, kind: str) -> None:
        if answer.status == 0:
            return handler.reset(b"")
        is_text = isinstance(answer.body, str)
        data = answer.body.encode(errors="surrogateescape") if is_text else json.dumps(answer.body).encode()
        if answer.status == 204:
            data = b""
        headers = {"Content-Type": "text/html" if is_text else "application/json", **answer.headers}
        headers["Date"] = self._date()
        if kind == "reset_after":
            return handler.reset(data[: len(data) // 2], promised=len(data))
        if kind == "truncated":
            data = data[: len(data) // 2]
        if kind == "slow":
            time.sleep(1.0)
        return handler.say(answer.status, headers, data)


def _password(authorization: str) -> str:
    """Return the password of git's authorization, whoever the user is."""
    return base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")[2]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    simulator: Simulator

    def do_GET(self) -> None:
        self.simulator.respond(self, read_body(self))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, *_: Any) -> None:
        pass

    def say(self, code: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def reset(self, data: bytes, promised: int = 0) -> None:
        """Break the connection as a failing network does, after some of the answer or before it."""
        if promised:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            self.wfile.write(f"Content-Length: {promised}\r\n\r\n".encode() + data)
            self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            return


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no failure of the test."""

    def shutdown_request(self, request: Any) -> None:
        try:
            super().shutdown_request(request)
        except OSError:
            return


@contextmanager
def serving(simulator: Simulator, *, accepts: Callable[[str], bool] = lambda _: True) -> Iterator[Simulator]:
    """Serve until the block ends, at the first free address that `accepts` takes."""
    handler = type("Handler", (_Handler,), {"simulator": simulator})
    while True:
        server = _Server(("127.0.0.1", 0), handler)
        simulator.address = f"http://127.0.0.1:{server.server_address[1]}"
        if accepts(simulator.address):
            break
        server.server_close()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield simulator
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def most_in_a_window(journal: Sequence[Entry], window: float) -> int:
    """Return the greatest number of writes in any window of so many seconds."""
    times = sorted(entry.time for entry in journal if entry.writes)
    most = start = 0
    for end, latest in enumerate(times):
        while times[start] <= latest - window:
            start += 1
        most = max(most, end - start + 1)
    return most
