"""An API whose answers a test writes down."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.forge.http import Budget, Transport
from reconciler.http.client import Clock, StaticToken
from reconciler.policy import WriteLimits
from tests.support.forges.server import Answer, Hosted, Simulator, serving


@dataclass(eq=False)
class ScriptedApi(Simulator):
    """Answers with what `answers` has for a method and path, else with an empty object."""

    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)

    def authorized(self, authorization: str, path: str) -> bool:
        return True

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        return self.answers.get((method, path), Answer(200, {}))

    def forbidden(self, kind: str, hosted: Hosted) -> Answer:
        raise AssertionError(kind)

    def limited(self, kind: str) -> Answer:
        raise AssertionError(kind)

    def transport(self, token: str = "token", *, max_wait_s: int = 300) -> Transport:
        """Return a transport to this API, on its clock."""
        clock = Clock(self.clock.now, self.clock.sleep)
        budget = Budget(WriteLimits(max_wait_s=max_wait_s), clock)
        return Transport(self.api, StaticToken(token), budget, clock=clock)

    def requests(self) -> list[tuple[str, str]]:
        """Return method and path of every request so far."""
        return [(entry.method, entry.path.removeprefix(self.prefix)) for entry in self.journal]


@contextmanager
def scripted_api() -> Iterator[ScriptedApi]:
    """Serve an API until the block ends."""
    api = ScriptedApi(Path(), "/api", None)
    with serving(api):
        yield api
