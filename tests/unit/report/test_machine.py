"""JSON, SARIF and Markdown of one plan."""

import json

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reconciler.base.errors import Exit, Location
from reconciler.base.escape import block
from reconciler.base.redact import Redactor
from reconciler.names.problems import Problem
from reconciler.plan.changes import Outcome, Plan, exit_of, exits_of
from reconciler.report.diff import FileChange
from reconciler.report.json import dump, outcome_value, plan_value
from reconciler.report.markdown import plan_markdown, pull_body
from reconciler.report.sarif import plan_sarif
from tests.support.values import replace
from tests.unit.report.plans import CREATED, NAMES, OUTCOME, PLAN, REFUSED


def test_json_lists_every_package_and_every_class_of_exit() -> None:
    value = json.loads(dump(plan_value(PLAN, NAMES), Redactor()))

    assert [(c["op"], c["name"]) for c in value["changes"]] == [
        ("create", "edge-east/nginx"),
        ("update", "edge-west/nginx"),
        ("keep", "edge-west/a"),
        ("keep", "edge-west/b"),
    ]
    assert value["summary"] == {"create": 1, "update": 1, "keep": 2}
    assert (value["exitCode"], value["exits"]) == (3, ["invalid_input"])
    assert value["checksum"] == PLAN.checksum


def test_json_is_canonical_and_free_of_order() -> None:
    shuffled = replace(PLAN, changes=PLAN.changes[::-1])

    text = dump(plan_value(PLAN, NAMES), Redactor())

    assert dump(plan_value(shuffled, NAMES), Redactor()) == text
    assert text.endswith("}\n")


def test_json_never_shows_a_value_of_a_secret() -> None:
    text = dump(plan_value(PLAN, NAMES), Redactor())

    assert "aHVudGVyMg==" not in text
    assert '"upstream": "3"' in text


def test_an_outcome_carries_its_plan_and_its_effects() -> None:
    value = outcome_value(PLAN, OUTCOME, NAMES)

    assert value["kind"] == "Outcome"
    assert [e["error"] for e in value["effects"]] == ["", "stale info"]
    assert (value["exitCode"], value["exits"]) == (5, ["invalid_input", "unavailable"])


def test_sarif_points_at_the_manifest() -> None:
    run = plan_sarif(PLAN, NAMES)["runs"][0]

    places = [
        (r["level"], r["ruleId"], r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
        for r in run["results"]
    ]
    assert places == [
        ("error", "InvalidExpression", "config/bad.yaml"),
        ("warning", "New", "config/set.yaml"),
    ]
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"] == {
        "startLine": 12,
        "startColumn": 5,
    }
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["InvalidExpression", "New"]


def test_sarif_joins_the_lines_of_a_message() -> None:
    problem = Problem(Location("a.yaml"), "Invalid", "Two things:\n- one\n- two", "Change\nboth.")

    (result, *_) = plan_sarif(replace(PLAN, problems=(problem,)), NAMES)["runs"][0]["results"]

    assert result["message"]["text"] == "Two things: - one - two. Change both."


def test_sarif_gives_every_result_a_place() -> None:
    (result,) = plan_sarif(REFUSED, NAMES)["runs"][0]["results"]

    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "reconciler.yaml"


def test_markdown_shows_what_changes_and_counts_the_rest() -> None:
    text = plan_markdown(PLAN, NAMES)

    assert "| create | `edge-east/nginx` | New | `nginx/v1; waits for a person` |" in text
    assert "edge-west/b" not in text
    assert "\\x1b[2Je" in text
    assert "stalls `PackageVariantSet default/bad`" in text


def test_markdown_gives_each_cause_once_with_its_places_and_hints() -> None:
    def problem(name: str) -> Problem:
        return Problem(
            Location(f"{name}.yaml", 1), "DependencyConflict", "No way", "Do a\nor b", name, "No way"
        )

    text = plan_markdown(Plan((), problems=(problem("web"), problem("db"))), NAMES)

    assert text.count("No way") == 1
    assert (
        "- **DependencyConflict**: `2, all for one cause: No way`\n"
        "  - `web.yaml:1: web`\n  - `db.yaml:1: db`\n  - `Do a`\n  - `or b`\n"
    ) in text


def test_markdown_links_to_the_published_report() -> None:
    names = replace(NAMES, report_url="https://acme.example/fleet/")

    assert "[HTML report](https://acme.example/fleet/)" in plan_markdown(PLAN, names)
    assert "HTML report" not in plan_markdown(PLAN, NAMES)


def test_markdown_of_a_refused_plan_says_why() -> None:
    assert "### Refused\n\n- **DeletionGuard** `Deletes 1 of 1`" in plan_markdown(REFUSED, NAMES)


def test_a_pull_request_shows_conflicts_but_no_secret() -> None:
    body = pull_body(CREATED, NAMES)

    assert "| `deployment.yaml` |  | `spec.replicas` |  | `3` | `5` |" in body
    assert "| `secret.yaml` |  | `data.p` |  | `***` | `***` |" in body
    tokens = MarkdownIt("commonmark").enable("table").parse(body)
    assert sum(t.type == "table_open" for t in tokens) == 3


def test_exit_codes_follow_the_order_of_severity() -> None:
    assert exit_of(PLAN) is Exit.INVALID_INPUT
    assert exit_of(PLAN, outcome=OUTCOME) is Exit.UNAVAILABLE
    assert exit_of(REFUSED) is Exit.REFUSED
    clean = replace(PLAN, problems=(), exits=frozenset())
    assert exit_of(clean) is Exit.DONE
    assert exit_of(clean, detailed=True) is Exit.PENDING
    assert exit_of(clean, detailed=True, outcome=Outcome()) is Exit.DONE
    assert exits_of(PLAN, detailed=True) == {Exit.INVALID_INPUT, Exit.PENDING}


@given(st.text("a`|\\\0 01\n<é", min_size=1, max_size=6))
def test_differences_in_a_body_are_blocks_that_nothing_in_them_ends(text: str) -> None:
    shown = [FileChange("app.yaml", 1, 1, "-a\n+b"), FileChange("Kptfile", 1, 0, text)]

    assert block(text, "diff") in pull_body(CREATED, NAMES, shown, difference="https://x")
