"""The server of the tests that also run on a real one."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.conformance import require_file
from tests.support.forges.bench import DIALECTS
from tests.support.forges.description import load
from tests.support.forges.gitea_administration import GiteaAdministration, RealClock
from tests.support.forges.gitea_api import TOKEN, URL, GiteaServer, gitea_server
from tests.support.forges.server import serving
from tests.support.forges.world import ForgeWorld, Make, Serve, forge_world


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serve a world until the test ends: the kind of forge is given, and what else `forge_world` takes."""
    with ExitStack() as stack:
        yield lambda kind, **fields: stack.enter_context(
            forge_world(kind, tmp_path / "world", monkeypatch, **fields)
        )


@pytest.fixture(params=DIALECTS)
def world(request: pytest.FixtureRequest, serve: Serve) -> ForgeWorld:
    """Two repositories on a forge."""
    return serve(request.param)


@pytest.fixture(params=DIALECTS)
def make(request: pytest.FixtureRequest, serve: Serve) -> Make:
    """Return what serves a world of one repository, or of what is told otherwise, with more configuration."""

    def make_world(more: str = "", **fields: Any) -> ForgeWorld:
        return serve(request.param, more=more, **{"edges": ["edge-1"], **fields})

    return make_world


@pytest.fixture(scope="module")
def gitea(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GiteaServer]:
    """Return the server that RECONCILER_GITEA_URL names; without it, that of a simulated one."""
    with ExitStack() as stack:
        if not os.environ.get(URL):
            stack.enter_context(simulated_server(tmp_path_factory))
        yield stack.enter_context(gitea_server(tmp_path_factory.mktemp("people")))


@contextmanager
def simulated_server(paths: pytest.TempPathFactory) -> Iterator[None]:
    """Let the environment name a simulated server, which races, rechecks and links as real ones do."""
    simulator = GiteaAdministration(
        paths.mktemp("server"), "/api/v1", load(require_file("gitea-swagger.json")), RealClock()
    )
    simulator.race_s, simulator.rechecks_s = 0.5, 1.0
    simulator.public_address = "https://git.example.com"
    simulator.per_minute, simulator.per_hour = 6000, 60_000
    with serving(simulator), pytest.MonkeyPatch.context() as environment:
        environment.setenv(URL, simulator.address)
        environment.setenv(TOKEN, simulator.token)
        yield
    assert not simulator.violations, simulator.violations
    assert not simulator.repositories
    assert not simulator.passwords
