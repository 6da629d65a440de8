"""What a guide of the documentation finds when its reader begins: a fleet, a forge, a cluster.

Comments at the top of a guide name it; no reader sees them:

- ``<!-- given: NAME -->``: the script `tests/docs/given/NAME.sh` has run in the home directory;
- ``<!-- forge: KIND REPOSITORY... -->``: a simulated forge with these empty repositories serves the address
  that guides use for that kind (`FORGES`), and the reader's git is logged in there;
- ``<!-- cluster: NAME -->``: kubectl has a context of that name, a cluster with the objects of
  `tests/docs/given/NAME.yaml`; the first one is the current context;
- ``<!-- registry: NAME -->``: a registry serves `REGISTRY` with the images of `tests/docs/given/NAME.yaml`.
"""

import base64
import json
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import yaml

from tests.support.command_server import write_client
from tests.support.forges.bench import make_simulator
from tests.support.forges.server import Simulator, serving
from tests.support.git import make_repository
from tests.support.http_server import Handler
from tests.support.http_server import serving as serving_http
from tests.support.pages import Mismatch, run_page
from tests.support.registry import publish, serve_registry

_PLURALS = {"Repository": "repositories", "Policy": "policies"}


@contextmanager
def serve_objects(objects: list[dict[str, Any]]) -> Iterator[str]:
    """Serve objects on the loopback until the block ends; yield the address."""
    answers = _answers(objects)

    class Objects(Handler, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"  # what a deletion says is not read

        def do_DELETE(self) -> None:
            path, _, name = self.path.partition("?")[0].rpartition("/")
            items = answers[path]["items"]
            (item,) = (item for item in items if item["metadata"]["name"] == name)
            objects.remove(item)
            answers.clear()
            answers.update(_answers(objects))
            self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

        def do_GET(self) -> None:
            self._answer(answers.get(self.path.partition("?")[0]))

        def _answer(self, answer: Any) -> None:
            body = json.dumps(answer or {"kind": "Status", "apiVersion": "v1", "code": 404}).encode()
            self.say(200 if answer else 404, {"Content-Type": "application/json"}, body)

    with serving_http(Objects) as address:
        yield f"http://{address}"


def _answers(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the reply to each path: versions, groups, resources, and the objects of each of them."""
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for value in objects:
        kinds[value["apiVersion"], value["kind"]].append(value)
    versions = sorted({version for version, _ in kinds})
    answers: dict[str, Any] = {
        "/version": {"major": "1", "minor": "31", "gitVersion": "v1.31.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups(versions)},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
    }
    for (version, kind), items in kinds.items():
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        plural = _PLURALS.get(kind, f"{kind.lower()}s")
        resources = answers.setdefault(
            root, {"kind": "APIResourceList", "groupVersion": version, "resources": []}
        )
        resources["resources"].append(
            {
                "name": plural,
                "singularName": kind.lower(),
                "kind": kind,
                "namespaced": "namespace" in items[0]["metadata"],
                "verbs": ["get", "list"],
            }
        )
        for namespace in {item["metadata"].get("namespace", "") for item in items}:
            inside = [item for item in items if item["metadata"].get("namespace", "") == namespace]
            answers[f"{root}/namespaces/{namespace}/{plural}"] = _list(version, kind, inside)
        answers[f"{root}/{plural}"] = _list(version, kind, items)
    return answers


def _list(version: str, kind: str, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "kind": f"{kind}List",
        "apiVersion": version,
        "metadata": {"resourceVersion": "1"},
        "items": items,
    }


def _groups(versions: Sequence[str]) -> list[dict[str, Any]]:
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for version in versions:
        if "/" in version:
            group, _, name = version.partition("/")
            groups[group].append({"groupVersion": version, "version": name})
    return [
        {"name": name, "versions": served, "preferredVersion": served[0]} for name, served in groups.items()
    ]


PROJECT = Path(__file__).resolve().parents[2]
GIVEN = PROJECT / "tests/docs/given"
FORGES = {
    "github": "https://github.com",
    "gitlab": "https://gitlab.com",
    "gitea": "https://gitea.example.com",
    "azure": "https://dev.azure.com",
    "bitbucket": "https://bitbucket.org",
}
TOKEN_VARIABLE = "FLEET_TOKEN"
"""The variable with a token of the forge, in guides as in their configuration."""
REGISTRY = "https://registry.example.com"
"""The address of the registry of a guide, which packages of other names are mirrored in."""
_HEADER = re.compile(r"^<!-- (given|forge|cluster|registry): (.+) -->$", re.MULTILINE)


class _WallClock:
    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass
class Machine:
    """The machine of a reader: what stands for which address, variables, and programs."""

    home: Path
    path: str
    addresses: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    simulators: list[Simulator] = field(default_factory=list)


def run_guide(page: Path, directory: Path, path: str) -> list[Mismatch]:
    """Run a guide on a machine with what its header names, and return where it is wrong."""
    with prepared(page, directory, path) as machine:
        wrong = run_page(page, directory, machine.path, machine.addresses, machine.variables)
    violations = [why for simulator in machine.simulators for why in simulator.violations]
    assert not violations, violations
    return wrong


@contextmanager
def prepared(page: Path, directory: Path, path: str) -> Iterator[Machine]:
    """Make the machine of a guide."""
    machine = Machine(directory / "ada", f"{_programs(directory / 'bin')}:{path}")
    machine.home.mkdir(parents=True)
    clusters: dict[str, str] = {}
    with ExitStack() as stack:
        for kind, value in _HEADER.findall(page.read_text(encoding="utf-8")):
            if kind == "given":
                _run_given(value, machine)
            elif kind == "forge":
                name, *repositories = value.split()
                _serve_forge(name, repositories, directory / "forge", machine, stack)
            elif kind == "registry":
                registry = stack.enter_context(serve_registry(directory))
                publish(registry, value)
                machine.addresses[REGISTRY] = f"http://{registry.address}"
                machine.variables["REGISTRY_ADDRESS"] = registry.address
            else:
                text = _with_addresses((GIVEN / f"{value}.yaml").read_text(encoding="utf-8"), machine)
                clusters[value] = stack.enter_context(serve_objects(list(yaml.safe_load_all(text))))
        if clusters:
            (machine.home / ".kube").mkdir()
            (machine.home / ".kube/config").write_text(_kubectl(clusters), encoding="utf-8")
        yield machine


def _programs(directory: Path) -> Path:
    """Write the programs of pages: `reconciler`, and what does here what readers do or see elsewhere."""
    write_client(directory)
    tool = directory / "elsewhere"
    tool.write_text(
        f'#!/bin/sh\nPYTHONPATH={PROJECT} exec {sys.executable} -m tests.support.elsewhere "$@"\n',
        encoding="utf-8",
    )
    tool.chmod(0o755)
    return directory


def _kubectl(clusters: Mapping[str, str]) -> str:
    """Return the configuration of kubectl for clusters by name, the first of them the current one."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": next(iter(clusters)),
            "clusters": [{"name": name, "cluster": {"server": url}} for name, url in clusters.items()],
            "users": [{"name": "ada", "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "ada"}} for name in clusters],
        }
    )


def _with_addresses(text: str, machine: Machine) -> str:
    for shown, served in machine.addresses.items():
        text = text.replace(shown, served)
    return text


def _run_given(name: str, machine: Machine) -> None:
    script = _with_addresses((GIVEN / f"{name}.sh").read_text(encoding="utf-8"), machine)
    ran = subprocess.run(
        ["bash", "-euo", "pipefail"],
        input=script,
        cwd=machine.home,
        env={
            "HOME": str(machine.home),
            "PATH": machine.path,
            "PROJECT": str(PROJECT),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.com",
            "GIT_COMMITTER_NAME": "Ada",
            "GIT_COMMITTER_EMAIL": "ada@example.com",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "init.defaultBranch",
            "GIT_CONFIG_VALUE_0": "main",
            "GIT_CONFIG_GLOBAL": str(machine.home / ".gitconfig-more"),
            **machine.variables,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _serve_forge(
    kind: str, repositories: Sequence[str], root: Path, machine: Machine, stack: ExitStack
) -> None:
    root.mkdir()
    simulator = make_simulator(kind, root)
    simulator.clock = _WallClock()
    simulator.job_token = simulator.token
    for name in repositories:
        simulator.host(name, make_repository(root / f"{name}.git"))
    stack.enter_context(serving(simulator))
    machine.simulators.append(simulator)
    machine.addresses[FORGES[kind]] = simulator.address
    pair = base64.b64encode(f"x-access-token:{simulator.token}".encode()).decode()
    (machine.home / ".gitconfig-more").write_text(
        f'[http "{simulator.address}"]\n\textraHeader = Authorization: Basic {pair}\n', encoding="utf-8"
    )
    machine.variables |= {
        TOKEN_VARIABLE: simulator.token,
        "FORGE_ADDRESS": simulator.address,
        "FORGE_API": simulator.api,
    }
