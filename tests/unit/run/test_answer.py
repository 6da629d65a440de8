"""The draft that an answer is written to, and what it is compared with."""

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.base.errors import RefusedError
from reconciler.names.ids import PackageKey
from reconciler.plan.changes import After
from reconciler.resolve.resolution import Needs
from reconciler.run import answer
from tests.support.plan_values import PACKAGE, URL, a_change, a_draft, a_pin, a_resolved, oid
from tests.support.sets import a_package, repository, world
from tests.support.values import replace

OTHERS = (a_draft(ref="refs/heads/drafts/web/mine"), a_draft(ref="refs/heads/group/default/edge/1"))
VIEW = repository(
    "edge",
    packages={"web": a_package(drafts=(*OTHERS, a_draft())), "db": a_package("db", drafts=(a_draft(),))},
)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_answer_is_written_to_the_branch_that_the_plan_names(number: int) -> None:
    drafts = VIEW.packages["web"].drafts
    change = a_change(package=PACKAGE, after=After(head=drafts[number].ref.removeprefix("refs/heads/")))
    planned: Any = SimpleNamespace(inputs=SimpleNamespace(inventory=world(views=(VIEW,))))

    assert answer._find_draft(planned, change) is drafts[number]
    for nowhere in ({"after": After(head="")}, {"package": PackageKey(URL, "api")}):
        with pytest.raises(RefusedError, match="Its draft is not written yet"):
            answer._find_draft(planned, replace(change, **nowhere))


def test_each_side_of_an_update_is_read_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = replace(a_pin(), package=PackageKey("host/former", "web"), tree=oid("f1"))
    resolved = a_resolved(downstream=PACKAGE, base=moved)
    read: list[Needs] = []
    monkeypatch.setattr(answer, "fetch_contents", lambda needs, *_: read.append(needs) or {})
    inputs = SimpleNamespace(inventory=world(), mirrors=None)
    planned: Any = SimpleNamespace(inputs=inputs, resolution=SimpleNamespace(variants=(resolved,)))

    answer._read(planned, a_change(package=PACKAGE), a_draft())

    assert read == [
        Needs(
            {
                "host/former": frozenset({oid("f1")}),
                resolved.pin.package.url: frozenset({resolved.pin.tree}),
                URL: frozenset({a_draft().tree}),
            }
        )
    ]
    two = (("a", oid("1")), ("b", oid("2")), ("a", oid("3")), ("a", None))
    assert Needs.of(two) == Needs({"a": frozenset({oid("1"), oid("3")}), "b": frozenset({oid("2")})})
