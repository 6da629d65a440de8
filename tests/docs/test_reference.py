"""The reference lists everything that users may rely on, and nothing that does not exist."""

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from reconciler.api.annotations import KEYS, PREFIX, check_keys
from reconciler.api.porch import SET_LABEL, PackageVariant, PackageVariantSet, Repository
from reconciler.api.snapshot import SnapshotHeader
from reconciler.api.validation import parse_model
from reconciler.base.errors import Exit
from reconciler.base.reasons import Reason
from reconciler.cel import Environment
from reconciler.cli.schema import NAMES, OUTPUTS
from reconciler.expand.checks import check_set, check_variant, validate_set, validate_variant
from reconciler.expand.findings import Finding
from reconciler.functions.builtin import BUILTINS
from reconciler.functions.catalog import CLAIMS, UNSTUDIED
from reconciler.names.trailers import CONFLICT, KEEP
from reconciler.policy import Limits, Policy
from reconciler.read.configuration import parse_configuration, setting_paths, variable_name, variable_paths
from tests.support.reference import (
    DOCS,
    ROOT,
    first_arguments,
    listed,
    names,
    page,
    ref_forms,
    rows,
    section,
    unknown,
    words,
)
from tools.docs.field_tables import examples, lacking
from tools.docs.generated_docs import GENERATED, regenerated
from tools.docs.generated_docs import pages as generated_pages

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
"""Pages that may name annotations and generators."""
MERGE_REASONS = "BothChanged|BothAdded|DeletedLocally|DeletedUpstream|LocalChanges|AddedOnBothSides"
MODELS = {
    "PackageVariant": PackageVariant,
    "PackageVariantSet": PackageVariantSet,
    "Repository": Repository,
    "Snapshot": SnapshotHeader,
}
LONGEST_CELL = 25
"""Words of a cell: a table is for looking up."""
MERGE = "Why a package update conflicts or is refused"
TEST_VARIABLES = {"RECONCILER_FAILPOINT", "RECONCILER_FAILPOINT_LOG"}
"""Variables by which tests interrupt a run."""
OTHERS = (
    r"(?:config\.porch\.kpt\.dev|(?:internal\.)?kpt\.dev|config\.kubernetes\.io)"
    r"/(?!v\d|packagevariants$)[a-z-]+"
)


def reason_rows() -> list[list[str]]:
    text = page("reference/reasons.md")
    titles = ("Why a package changes, or does not", "What is wrong with a manifest")
    return [row for title in titles for row in rows(section(text, title))]


def test_every_reason_has_one_row_and_every_row_a_reason() -> None:
    documented = Counter(name for row in reason_rows() for name in names(row[0]))

    assert unknown(Reason, documented) == []
    assert unknown(documented, Reason) == []
    assert [name for name, count in documented.items() if count > 1] == []


def test_every_reason_has_a_next_step() -> None:
    every = [*reason_rows(), *rows(section(page("reference/reasons.md"), MERGE))]

    assert every
    assert [row[0] for row in every if not re.search(r"\w.*\.$", row[-1]) or len(row) not in {3, 4}] == []


def test_a_cell_of_the_reasons_is_short() -> None:
    lines = [line for line in page("reference/reasons.md").splitlines() if line.startswith("|")]

    assert [cell[:60] for line in lines for cell in line.split("|") if len(cell.split()) > LONGEST_CELL] == []


def test_every_reason_of_a_merge_has_a_row() -> None:
    documented = listed(section(page("reference/reasons.md"), MERGE))
    of_files = {"DuplicateResource", "InvalidKptfile", "InvalidYAML"}

    assert sorted(documented) == sorted(words(MERGE_REASONS) | of_files)


def test_every_condition_has_a_row() -> None:
    documented = section(page("reference/reasons.md"), "Conditions")
    conditions = first_arguments("_condition") | first_arguments("Condition")

    assert set(re.findall(r"\*\*(\w+)\*\*", documented)) == conditions


def test_exit_codes_are_those_of_the_table() -> None:
    documented = {int(row[0]): row[1] for row in rows(page("exit-codes.md")) if row[0].isdigit()}

    assert documented == {int(code): code.name.lower().replace("_", " ") for code in Exit}


def test_settings_are_those_of_the_table_with_their_variables() -> None:
    cells = [(names(row[0])[0], row[1]) for row in rows(section(page("configuration.md"), "Settings"))]
    documented = sorted(pair for pair in cells if not pair[0].startswith("RECONCILER_"))

    assert documented == sorted(
        (".".join(path), f"`{variable_name(path)}`" if path in variable_paths() else "Git only")
        for path in setting_paths(Policy)
        if path != ("instance",)
    )


def test_every_environment_variable_is_documented() -> None:
    read = words(r"RECONCILER_[A-Z_]+") | {variable_name(path) for path in variable_paths()}
    table = section(page("configuration.md"), "Settings")
    documented = {
        name for row in rows(table) for name in names("".join(row[:2])) if name.startswith("RECONCILER_")
    }

    assert unknown(read - TEST_VARIABLES, documented) == []
    assert unknown(documented, read) == []


def test_annotations_and_labels_are_those_of_the_table() -> None:
    documented = listed(section(page("reference/annotations.md"), "Annotations and labels"))

    assert sorted(documented) == sorted(KEYS)


def test_every_value_of_an_annotation_is_in_its_row() -> None:
    table = {names(row[0])[0]: row[2] for row in rows(page("reference/annotations.md"))}
    limited = {name: key.words for name, key in KEYS.items() if key.words}

    assert limited
    assert [(name, word) for name, key in limited.items() for word in key if word not in table[name]] == []


def test_annotations_of_other_projects_are_those_of_the_table() -> None:
    documented = listed(section(page("refs.md"), "Annotations and labels of other projects"))

    assert sorted(documented) == sorted(words(OTHERS) | {SET_LABEL})


def test_every_name_with_our_prefix_in_the_documentation_exists() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in PAGES}
    named = {
        (path.name, name)
        for path, text in texts.items()
        for name in re.findall(rf"{re.escape(PREFIX)}[a-z-]*[a-z](?![\w/]|\.\w)", text)
    }

    assert named
    assert [(path, name) for path, name in sorted(named) if name not in KEYS] == []


def documented_refs() -> set[str]:
    forms = set()
    for name in listed(page("refs.md").partition("## Lines")[0]):
        form = re.sub(r"[A-Z]{2,}", "*", name)
        tag = name.startswith("PACKAGE/")
        forms.add(form if form.startswith("refs/") else f"refs/{'tags' if tag else 'heads'}/{form}")
    return forms


def stands_for(form: str, name: str) -> bool:
    """Tell whether a form of the code is a documented name, or the beginning of one."""
    return form in {name, name.replace("/v*", "/*")} or (form.endswith("/") and name.startswith(form))


def is_generic(form: str) -> bool:
    """Tell whether a form is that of any branch, tag or ref, or a pattern and no name."""
    return form.count("/") < 3 or bool(re.search(r"[\[(]|\.lock$", form)) or form == "refs/tags/*/*"


def test_refs_are_those_of_the_table() -> None:
    built, documented = ref_forms(), documented_refs()
    named = [form for form in built if not is_generic(form)]
    assert named
    undocumented = [form for form in named if not any(stands_for(form, name) for name in documented)]
    assert undocumented == []
    parsed = {"refs/heads/proposed/*/*"}
    assert [d for d in documented - parsed if not any(stands_for(form, d) for form in named)] == []


def test_lines_of_commit_messages_are_those_of_the_table() -> None:
    documented = listed(section(page("refs.md"), "Lines of commit messages"))

    assert [line for line in documented if line.endswith((":", "}"))] == [
        "kpt:{…}",
        f"{CONFLICT}:",
        f"{KEEP}:",
        "Signed-off-by:",
    ]


def test_every_kind_of_manifest_has_a_row() -> None:
    assert sorted(listed(section(page("reference/json.md"), "What people write"))) == sorted(NAMES)


def test_functions_that_run_in_the_process_are_those_of_the_table() -> None:
    table = rows(section(page("reference/functions.md"), "Functions that run here"))
    versions: dict[str, str] = {}
    every: list[str] = []
    for first, claimed, _ in table:
        every = names(first) or every
        versions |= {name: f"{versions.get(name, '')} {claimed}" for name in every}

    assert sorted(versions) == sorted({*BUILTINS, *CLAIMS})
    ends = {
        name: {
            f"v{major}.{minor}.{patch}"
            for claim in claims
            for major, minor, patch in (claim.low, claim.newest)
            if claim.profile != UNSTUDIED
        }
        for name, claims in CLAIMS.items()
    }
    assert [name for name in ends if any(end not in versions[name] for end in ends[name])] == []


def test_every_schema_is_linked() -> None:
    linked = set(re.findall(r"\]\(\.\./schemas/([\w.]+)\)", page("reference/json.md")))

    assert linked == {path.name for path in (DOCS / "schemas").glob("*.json")}
    assert linked == {f"{kind.lower()}.schema.json" for kind in (*OUTPUTS, *NAMES)}


@pytest.mark.parametrize("path", generated_pages(), ids=lambda path: path.name)
def test_generated_parts_of_a_page_are_what_the_code_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert text == regenerated(text), "run `make docs`"


def test_every_generator_has_its_part() -> None:
    named = [
        name
        for path in PAGES
        for name in re.findall(r"^<!-- generated: ([\w-]+) -->$", path.read_text(), re.MULTILINE)
    ]

    assert sorted(named) == sorted(GENERATED)


def test_every_field_has_a_description_and_an_example_or_a_default() -> None:
    assert lacking() == []


EXAMPLES = examples(page("reference/fields.md"))


def findings(manifest: object) -> list[Finding]:
    """Return what Porch and we find wrong with a manifest."""
    match manifest:
        case PackageVariant():
            return [*validate_variant(manifest.spec), *check_variant(manifest.metadata.name, manifest.spec)]
        case PackageVariantSet():
            return [*validate_set(manifest.spec), *check_set(manifest.spec, Environment(Limits()))]
    return []


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_fields_is_valid(number: int) -> None:
    example = EXAMPLES[number]

    if example["kind"] == "Reconciler":
        assert parse_configuration(yaml.safe_dump(example).encode(), "page", {}).instance == "fleet"
        return
    parsed = parse_model(MODELS[example["kind"]], example)
    assert isinstance(parsed, MODELS[example["kind"]]), parsed
    assert check_keys(example["kind"], example) == ()
    assert findings(parsed) == []


def test_every_kind_of_manifest_has_an_example() -> None:
    assert {example["kind"] for example in EXAMPLES} == set(NAMES)
