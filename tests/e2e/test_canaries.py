"""Canaries: servers echo every credential that they are sent; no output and no commit may hold one."""

import base64
import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pygit2
import pytest

from tests.support.command_server import run_reconciler
from tests.support.commands import COMMANDS
from tests.support.git import Repo, make_repository
from tests.support.http_git import answer_git
from tests.support.http_server import Handler, read_body, serving
from tests.support.signing import app_pem
from tests.support.small_world import manifest, repository, variant, write_world

CANARIES = {
    "variable": "cn/variable+1a?b=c",
    "file": 'cn"file\\2d\\e',
    "address": "cn-address-3f",
    "minted": "cn-minted-4g",
    "control": "cn-control-5h",
}
RUNS = {
    **COMMANDS,
    "plan": ("--output", "json"),
    "check": ("--json-file", "out.json", "--sarif-file", "out.sarif", "--comment-on", "1"),
    "action": (),
}


def encoded(value: str) -> set[str]:
    """Return the spellings of a value that an output is searched for."""
    forms = {value, quote(value, safe=""), json.dumps(value)[1:-1]}
    for before in ("", "x", "xy", "x-access-token:", "kim:"):
        text = base64.b64encode(before.encode() + value.encode()).decode().rstrip("=")
        skip = -(-len(before.encode()) * 4 // 3)
        forms |= {text[skip + 1 : -2], text[skip + 1 : -2].replace("+", "-").replace("/", "_")}
    return forms


class Fleet(NamedTuple):
    """A fleet whose servers echo, and the private key of its App."""

    root: Path
    key: str
    seen: list[str]

    def run(self, *arguments: str) -> str:
        """Run a command; return everything that it printed and wrote for a runner."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "CI", "RECONCILER_"))}
        own = {
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "ACME": CANARIES["variable"],
            "APP": self.key,
            "RECONCILER_CONTROL_TOKEN": CANARIES["control"],
            "GITHUB_ACTIONS": "true",
            "GITHUB_STEP_SUMMARY": str(self.root / "summary.md"),
            "GITHUB_OUTPUT": str(self.root / "outputs.txt"),
            "INPUT_MODE": "plan",
            "INPUT_CONTROL": "control.git",
            "INPUT_REPORT_DIRECTORY": str(self.root / "reports"),
        }
        ran = run_reconciler(arguments, cwd=self.root, env={**clean, **own})
        left = [self.root / name for name in ("summary.md", "outputs.txt", "out.json", "out.sarif")]
        left += sorted((self.root / "reports").glob("*"))
        return ran.stdout + ran.stderr + "".join(p.read_text() for p in left if p.exists())


class Echo(Handler, BaseHTTPRequestHandler):
    """Answers every request with what it was sent, in every form that servers use."""

    protocol_version = "HTTP/1.1"
    seen: list[str]
    root: Path

    def do_GET(self) -> None:
        sent = self.headers.get("Authorization", "")
        body = read_body(self)
        if self.path.endswith("/access_tokens"):
            given = {"token": CANARIES["minted"], "expires_at": "2099-01-01T00:00:00Z"}
            return self._say(201, "application/json", json.dumps(given))
        if not sent and "info/refs" in self.path:
            return self._say(401, "text/plain", "")
        value = sent.partition(" ")[2]
        clear = value
        if sent.startswith("Basic "):
            clear = base64.b64decode(value).decode()
            clear = clear.partition(":")[2] or clear
        self.seen.append(clear)
        if self.path.startswith(("/file/", "/minted/")):  # these may be read: then their forge is asked
            return self.say(*answer_git(self.root, self, body))
        words = f"denied: {sent} | {clear} | {quote(clear, safe='')} | {json.dumps(clear)} | {value}"
        if "/api/" in self.path:
            return self._say(403, "application/json", json.dumps({"message": words}))
        return self._say(500, "text/plain", words)

    do_POST = do_PATCH = do_GET  # noqa: N815 - names of the standard library

    def _say(self, code: int, kind: str, body: str) -> None:
        self.send_response(code, body.partition("|")[0].strip() or None)
        self.send_header("Content-Type", kind)
        self.send_header("X-Echo", quote(body))
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        data = body.encode()
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    root = tmp_path / "w"
    names = ("edge-1", "edge-2", "edge-3", "edge-4", "edge-5")
    write_world(root, names)
    (root / "token").write_text(CANARIES["file"] + "\n")
    Echo.seen, Echo.root = [], root
    with serving(Echo) as address:
        write_fleet(root, address)
        yield Fleet(root, app_pem(), Echo.seen)


def write_fleet(root: Path, host: str) -> None:
    """Let four of five repositories be reached with a credential each, found in four ways.

    The server of the fifth refuses every push, with credentials in its words.
    """
    for way in ("file", "minted"):
        (root / way).symlink_to(".")
    hook = root / "edge-5.git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    basic = base64.b64encode(f"kim:{CANARIES['control']}".encode()).decode()
    words = f"{CANARIES['variable']} {CANARIES['control']} Basic {basic}"
    hook.write_text(f"#!/bin/sh\necho 'sent: {words}' >&2\nexit 1\n")
    hook.chmod(0o755)
    control = Repo(root / "control.git")
    merged = control.read("main", "reconciler.yaml").decode()
    wanted = f"""\
  credentials:
  - {{prefix: http://{host}/variable, tokenEnv: ACME}}
  - {{prefix: http://{host}/file, tokenFile: {root}/token, username: kim}}
  - {{prefix: http://{host}/minted, appId: "1", installationId: "2", appKeyEnv: APP}}
  forges:
  - {{prefix: http://{host}/file, type: gitea, api: http://{host}/api/v1}}
  - {{prefix: http://{host}/minted, type: github, api: http://{host}/api/v3}}
"""
    addresses = {
        "edge-1": f"http://{host}/variable/edge-1.git",
        "edge-2": f"http://{host}/file/edge-2.git",
        "edge-3": f"http://kim:{CANARIES['address']}@{host}/address/edge-3.git",
        "edge-4": f"http://{host}/minted/edge-4.git",
    }
    files = {
        f"manifests/repositories/{name}.yaml": repository(name).replace(f"../{name}.git", url)
        for name, url in addresses.items()
    }
    control.commit({"reconciler.yaml": merged + wanted, **files})
    control.commit(
        {manifest("edge-5", "web"): variant("edge-5", "web", revision=2)}, branch="feature", start="main"
    )


def written(root: Path) -> str:
    """Return every object of every repository that runs write to, as text."""
    found = []
    for path in sorted(root.glob("*.git")):
        git = pygit2.Repository(str(path))
        found += [git[oid].read_raw().decode("utf-8", "replace") for oid in git.odb]
    return "\n".join(text for text in found if "kind: Repository" not in text)


def leaks(text: str, key: str) -> list[str]:
    lines = [line for line in key.splitlines() if len(line) > 20 and not line.startswith("-----")]
    searched = {form for value in CANARIES.values() for form in encoded(value)} | set(lines)
    return sorted(form for form in searched if form in text)


@pytest.mark.parametrize("name", sorted(RUNS))
def test_no_command_shows_a_credential_that_a_server_echoes(fleet: Fleet, name: str) -> None:
    extra = RUNS[name]
    control = () if name == "action" else ("--control", "control.git")
    if name == "check":
        extra = ("--head", "feature", *extra)

    said = fleet.run(*name.split(), *control, *extra)

    assert leaks(said, fleet.key) == [], said


def test_no_commit_of_state_or_status_and_no_cache_holds_a_credential(fleet: Fleet) -> None:
    said = fleet.run("apply", "--control", "control.git")
    again = fleet.run("status", "--control", "control.git")

    assert {CANARIES[way] for way in ("variable", "file", "address", "minted")} <= set(fleet.seen)
    assert "refs/heads/reconciler/fleet/status" in Repo(fleet.root / "control.git").refs()
    assert leaks(written(fleet.root), fleet.key) == []
    assert leaks(said + again, fleet.key) == []
    kept = sorted(path for path in (fleet.root / "cache").rglob("*") if path.is_file())
    assert len(kept) > 10
    assert [path for path in kept if leaks(path.read_bytes().decode("utf-8", "replace"), fleet.key)] == []
    assert said.count("***") >= 3, said
    assert "***" in written(fleet.root)


def test_echo_is_found_where_nothing_masks(fleet: Fleet) -> None:
    """The search is real: what a server answers holds the canaries in the forms that are searched for."""
    clear = CANARIES["variable"]
    basic = base64.b64encode(f"x-access-token:{clear}".encode()).decode()

    assert len(leaks(f"Basic {basic} {clear} {quote(clear, safe='')}", fleet.key)) >= 3


def test_content_of_packages_is_not_masked(tmp_path: Path) -> None:
    """What a blueprint holds is copied byte for byte, whatever it equals (law 8)."""
    write_world(tmp_path / "w")
    make_repository(tmp_path / "w/other.git", {"README.md": "x\n"})
    blueprints = Repo(tmp_path / "w/blueprints.git")
    blueprints.commit({"web/note.txt": f"{CANARIES['control']}\n"})
    blueprints.tag("web/v3")
    Repo(tmp_path / "w/control.git").commit({manifest("edge-1", "web"): variant("edge-1", "web", revision=3)})

    Fleet(tmp_path / "w", "", []).run("apply", "--control", "control.git")

    edge = Repo(tmp_path / "w/edge-1.git")
    assert edge.read("drafts/web/packagevariant-1", "web/note.txt").decode() == f"{CANARIES['control']}\n"
