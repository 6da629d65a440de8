"""Locks in reports: notes of a lock, and what would happen if something were published or gone."""

from reconciler.base.errors import Location
from reconciler.dependencies.lock.format import LockUpdate
from reconciler.dependencies.solve.problem import Explanation, Rejection
from reconciler.dependencies.update.changes import MoveOp, VersionChange
from reconciler.dependencies.what_if import Hypothesis, WhatIfOutcome, WhatIfResult
from reconciler.report.locks import lock_lines, what_if_lines, what_if_values
from tests.support.values import replace


def test_a_note_reaches_the_terminal_with_its_escapes_spelled_out() -> None:
    decision = LockUpdate(warnings=("\x1b[2J cleared",))

    assert [line for line in lock_lines(decision) if "\x1b" in line] == []
    assert any(line.startswith("note: ") and "cleared" in line for line in lock_lines(decision))


CONFLICT = Explanation(
    "E-CONFLICT",
    ("web needs db >=2", "api needs db <2"),
    (Location("a.yaml", 3), Location("b.yaml")),
    rejected=(
        ("db", (Rejection("1.0.0", ("web needs >=2", "too old")), Rejection("2.0.0", ("api needs <2",)))),
    ),
    hints=("Raise api", "Lower web"),
    minimal=False,
    stalled=("PackageVariant default/web", "PackageVariant default/api"),
)
RESULTS = (
    WhatIfResult(
        WhatIfOutcome.MOVES,
        ("dev", "test"),
        (VersionChange(MoveOp.CHANGE, "carvel:db", "1.0.0", "2.0.0", "api asks", ("dev",)),),
    ),
    WhatIfResult(WhatIfOutcome.STAYS, ("stage",), preferred=("1.5.0", "1.6.0")),
    WhatIfResult(WhatIfOutcome.BLOCKED, ("prod",), explanations=(CONFLICT,)),
    WhatIfResult(WhatIfOutcome.CURRENT, ("new",)),
    WhatIfResult(WhatIfOutcome.UNAFFECTED, ("other",)),
)


def test_what_if_tells_each_group_of_clusters_what_would_happen() -> None:
    taken = Hypothesis("carvel:db 2.0.0 were published", lambda *_: None, lambda *_: True)
    removed = replace(taken, text="db were gone", forgets=True)

    assert list(what_if_lines(taken, RESULTS)) == [
        "If carvel:db 2.0.0 were published:",
        "  could move: dev, test",
        "    change carvel:db 1.0.0 -> 2.0.0: api asks",
        "  could take it, but another version fits better (1.5.0, 1.6.0): stage",
        "  cannot move: prod",
        "    1. web needs db >=2",
        "    2. api needs db <2",
        "    Versions of db:",
        "      1.0.0: web needs >=2; too old",
        "      2.0.0: api needs <2",
        "    Hint: Raise api",
        "    Hint: Lower web",
        "  has it already: new",
        "  not affected: other",
    ]
    lines = list(what_if_lines(removed, (RESULTS[0], RESULTS[2], RESULTS[4])))
    assert [lines[at] for at in (0, 1, 3, -1)] == [
        "If db were gone:",
        "  could do without it: dev, test",
        "  cannot do without it: prod",
        "  not affected: other",
    ]


def test_what_if_has_the_same_as_values() -> None:
    values = what_if_values(RESULTS)

    assert [value["verdict"] for value in values] == [str(result.verdict) for result in RESULTS]
    assert values[0]["changes"] == [
        {"op": "change", "instance": "carvel:db", "before": "1.0.0", "after": "2.0.0", "why": "api asks"}
    ]
    assert (values[1]["clusters"], values[1]["preferred"]) == (["stage"], ["1.5.0", "1.6.0"])
    assert values[2]["explanations"] == [
        {
            "code": "E-CONFLICT",
            "sentences": ["web needs db >=2", "api needs db <2"],
            "rejected": [
                {
                    "package": "db",
                    "versions": [
                        {"version": "1.0.0", "reasons": ("web needs >=2", "too old")},
                        {"version": "2.0.0", "reasons": ("api needs <2",)},
                    ],
                }
            ],
            "places": ["a.yaml:3", "b.yaml"],
            "hints": ["Raise api", "Lower web"],
            "minimal": False,
            "givesWay": "PackageVariant default/web, PackageVariant default/api",
        }
    ]
