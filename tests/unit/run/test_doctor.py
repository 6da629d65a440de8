"""Where `doctor` looks whether this run may write."""

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.names.ids import ObjectName
from reconciler.run import doctor
from tests.support.sets import COMMIT, repository, variant, world
from tests.support.values import replace

EDGE = repository("edge", url="host/x", head=COMMIT)
VIEWS = (
    repository("apps", url="host/x", head=COMMIT),
    EDGE,
    replace(EDGE, key=ObjectName("team", "edge"), branch="team"),
)


@pytest.mark.parametrize(
    ("namespaces", "checked"), [([], []), (["default"], ["main"]), (["team"], ["team"]), (["other"], [])]
)
def test_right_to_write_is_looked_for_where_a_variant_of_that_namespace_writes(
    monkeypatch: pytest.MonkeyPatch, namespaces: list[str], checked: list[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(doctor, "check_push", lambda _, ref, __: asked.append(ref) or "")
    variants = [replace(variant(), key=ObjectName(namespace, "mine")) for namespace in namespaces]
    mirrors = SimpleNamespace(open=lambda remote: remote)
    inputs: Any = SimpleNamespace(inventory=world(*variants, views=VIEWS), mirrors=mirrors)

    found = list(doctor._rights(VIEWS, inputs))

    assert asked == [f"refs/heads/{branch}" for branch in checked]
    assert [(finding.check, finding.severity) for finding in found] == [("rights", "ok")] * len(checked)
