"""Where `doctor` looks whether this run may write, and whether a directory is there."""

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.names.ids import ObjectName
from reconciler.run import doctor
from tests.support.sets import COMMIT, a_package, repository, variant, world
from tests.support.values import replace

EDGE = repository("edge", url="host/x", head=COMMIT)
VIEWS = (
    repository("apps", url="host/x", head=COMMIT),
    EDGE,
    replace(EDGE, key=ObjectName("team", "edge"), branch="team"),
)


@pytest.mark.parametrize("why", ["", "it is read-only"])
@pytest.mark.parametrize(
    ("namespaces", "checked"), [([], []), (["default"], ["main"]), (["team"], ["team"]), (["other"], [])]
)
def test_right_to_write_is_looked_for_where_a_variant_of_that_namespace_writes(
    monkeypatch: pytest.MonkeyPatch, namespaces: list[str], checked: list[str], why: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(doctor, "check_push", lambda _, ref, __: asked.append(ref) or why)
    variants = [replace(variant(), key=ObjectName(namespace, "mine")) for namespace in namespaces]
    mirrors = SimpleNamespace(open=lambda remote: remote)
    inputs: Any = SimpleNamespace(inventory=world(*variants, views=VIEWS), mirrors=mirrors)

    found = list(doctor._rights(VIEWS, inputs))

    assert asked == [f"refs/heads/{branch}" for branch in checked]
    severity, message = ("error", f"It cannot be written: {why}") if why else ("ok", "")
    rows = [(finding.check, finding.severity, finding.message) for finding in found]
    assert rows == [("rights", severity, message)] * len(checked)
    assert all(("the right to write" in finding.hint) is bool(why) for finding in found)


@pytest.mark.parametrize(
    ("fields", "is_missing"),
    [
        ({}, True),
        ({"deployment": True}, False),
        ({"directory": ""}, False),
        ({"packages": {"nope/web": a_package("nope/web")}}, False),
        ({"directories": {"nope"}}, False),
    ],
)
def test_directory_is_missing_where_upstreams_have_nothing_in_it(fields: dict[str, Any], is_missing) -> None:
    view = repository("blueprints", **{"directory": "nope", **fields})

    message = "Branch main of https://host/blueprints has no directory nope"
    hint = "Correct spec.git.directory, or publish a package there."
    warning = doctor.Diagnosis("directory", f"Repository {view.key}", doctor.Severity.WARNING, message, hint)
    assert [*doctor._directory(view)] == [warning] * is_missing
