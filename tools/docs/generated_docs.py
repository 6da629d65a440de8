"""Parts of documentation pages that are generated from the code (`make docs`).

A page holds each between ``<!-- generated: NAME -->`` and ``<!-- end -->``.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import yaml

from reconciler.cli.metrics import METRICS, PREFIX
from reconciler.cli.schema import NAMES, OUTPUTS
from reconciler.plan.compose import Join, Kept, Veto
from reconciler.policy import Policy
from reconciler.read.configuration import setting_paths, variable_name, variable_paths
from tools.docs import field_tables

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_PART = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = (" | ".join(cell.replace("|", r"\|") for cell in row) for row in rows)
    return "".join(f"| {line} |\n" for line in (" | ".join(heads), " | ".join(["---"] * len(heads)), *lines))


def action_inputs() -> str:
    """Return the inputs of the GitHub action."""
    inputs = _action()["inputs"]
    rows = [
        (f"`{name}`", f"`{each['default']}`" if each["default"] else "", _sentence(each["description"]))
        for name, each in inputs.items()
    ]
    return table(("input", "default", "what"), rows)


def action_outputs() -> str:
    """Return the outputs of the GitHub action."""
    outputs = _action()["outputs"]
    rows = [(f"`{name}`", _sentence(each["description"])) for name, each in outputs.items()]
    return table(("output", "what"), rows)


def json_outputs() -> str:
    """Return the kinds of JSON output with the commands that print them."""
    rows = [
        (
            f"`{kind}`",
            ", ".join(f"`reconciler {command}`" for command in commands),
            f"[{kind.lower()}.schema.json](../schemas/{kind.lower()}.schema.json)",
        )
        for kind, commands in OUTPUTS.items()
    ]
    return table(("kind", "printed by", "schema"), rows)


def fields(sections: Iterable[tuple[str, Iterable[Sequence[str]]]], *, whole: bool = True) -> str:
    """Return a table for each type; the first one has no title if it is the kind itself."""
    parts = [
        f"### {name}\n\n{shown}" if number or not whole else shown
        for number, (name, rows) in enumerate(sections)
        for shown in [table(field_tables.HEADS, [row[: len(field_tables.HEADS)] for row in rows])]
    ]
    return "\n".join(parts)


def _action() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    loaded: Mapping[str, Mapping[str, Mapping[str, str]]] = yaml.safe_load((ROOT / "action.yml").read_text())
    return loaded


def _sentence(text: str) -> str:
    return " ".join(text.split())


def _fields_of(kind: str) -> str:
    return fields(field_tables.sections(kind))


def _shared_fields() -> str:
    return fields(field_tables.shared_sections(), whole=False)


def settings() -> str:
    """Return the settings with one value, with the variable that overrides each and its default."""
    variables = set(variable_paths())
    as_written = {("manifests",): "`.`", ("snapshot", "maxAge"): "`7d`"}
    rows = [
        (
            f"`{'.'.join(path)}`",
            f"`{variable_name(path)}`" if path in variables else "Git only",
            as_written.get(path) or field_tables.default_of("Reconciler", path),
        )
        for path in setting_paths(Policy)
        if path != ("instance",)
    ]
    return table(("setting", "variable", "default"), rows)


def metrics() -> str:
    """Return the metrics of a run."""
    rows = [
        (f"`{PREFIX}{name}`", each.unit, ", ".join(f"`{label}`" for label in each.labels), each.about)
        for name, each in METRICS.items()
    ]
    return table(("metric", "unit", "labels", "is"), rows)


def alerts() -> str:
    """Return the alert rules, with a word for each value that Prometheus writes into them."""
    (group,) = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text("utf-8"))["groups"]

    def text(annotation: str) -> str:
        text = re.sub(r"{{ \$labels\.(\w+) }}", lambda label: label[1].upper(), annotation)
        return re.sub(r"{{ \$value[^}]*}}", "N", text).removeprefix("RECONCILER: ")

    rows = [
        (f"`{rule['alert']}`", rule["labels"]["severity"], *map(text, rule["annotations"].values()))
        for rule in group["rules"]
    ]
    return table(("alert", "severity", "tells you that", "what you do"), rows)


def vetoes() -> str:
    """Return what holds a package back, the strongest first."""
    left = {
        Kept.NOTHING: "nothing",
        Kept.TAGS: "tags of what main has",
        Kept.BRANCHES: "tags, and what is due beside the draft",
    }
    rows = [(f"`{veto.name}`", veto.value, left[veto.effects]) for veto in Veto]
    return table(("veto", "because", "written all the same"), rows)


def joins() -> str:
    """Return what names the change of a package that is otherwise kept, the first that applies."""
    rows = [(f"`{j.name}`", j.value, f"`{j.op}`", f"`{j.reason}`, over {j.over}") for j in Join]
    return table(("join", "what is done", "operation", "reason"), rows)


GENERATED: Mapping[str, Callable[[], str]] = {
    "action-inputs": action_inputs,
    "action-outputs": action_outputs,
    "json-outputs": json_outputs,
    **{f"fields-{kind.lower()}": partial(_fields_of, kind) for kind in NAMES},
    "fields-shared": _shared_fields,
    "settings": settings,
    "metrics": metrics,
    "alerts": alerts,
    "vetoes": vetoes,
    "joins": joins,
}


def regenerated(text: str) -> str:
    """Return a page with its generated parts as they should be.

    Raises:
        KeyError: A part has a name that there is not.
    """
    return _PART.sub(lambda part: f"{part[1]}\n{GENERATED[part['name']]()}\n{part[3]}", text)


def pages() -> list[Path]:
    """Return the pages with generated parts."""
    return [page for page in sorted(DOCS.rglob("*.md")) if _PART.search(page.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(regenerated(page.read_text(encoding="utf-8")), encoding="utf-8")
