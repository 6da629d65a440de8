"""Every command, option, file, field, variable and target that a text for people names is there."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.mentions import (
    texts_of_code,
    wrong_commands,
    wrong_fields,
    wrong_files,
    wrong_names,
    wrong_options,
    wrong_targets,
)
from tests.support.reference import ROOT

Check = Callable[[str], list[str]]

PAGES = [
    *(page for page in sorted(ROOT.glob("*.md")) if page.name != "CHANGELOG.md"),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts),
    *sorted((ROOT / "fixtures").glob("*.md")),
    *sorted(ROOT.glob("t*s/*/README.md")),
]
FILES = [
    *sorted((ROOT / "templates").rglob("*.*")),
    *(file for file in sorted((ROOT / "deploy").rglob("*")) if file.is_file()),
    *sorted((ROOT / ".github").rglob("*.*")),
    *(ROOT / name for name in ("action.yml", "Dockerfile", ".ci/run", ".pre-commit-hooks.yaml")),
]
OF_PEOPLE = {"RECONCILER_APP_KEY", ".github/CODEOWNERS"}
"""Names that people give to secrets and files of their own."""
OF_TESTS = {
    *("RECONCILER_CONFORMANCE", "RECONCILER_FAULTS_SEED", "RECONCILER_GITEA_URL", "RECONCILER_GITEA_TOKEN"),
    *("RECONCILER_CONTAINERS", "RECONCILER_GRAPHQL_SCHEMA", "RECONCILER_DOCS_REPOSITORY"),
    *("RECONCILER_ECOSYSTEM", "RECONCILER_TEST_ORDER", "RECONCILER_SAMPLE"),
    "RECONCILER_ADMISSION_SUITES",
}
"""Variables that tests, make and the site read."""
MISSPELT = {"spec.upstream.pacakge", "spec.upstream.revison"}
"""Pages show the hint for these."""
OF_OTHERS = {
    *("spec.replicas", "spec.template", "spec.package", "spec.refName", "spec.groups", "binaryData"),
    *("spec.dependencies.deletePolicy", "spec.dependencies.packages"),
    *("--context", "--predicate-type", "--build-arg", "--atomic", "--git", "--allow-empty", "venv.py"),
}
"""Fields of kinds of Kubernetes, Carvel, Crossplane and Prometheus, options and files of other programs."""
EXCEPT = OF_PEOPLE | OF_TESTS | MISSPELT | OF_OTHERS | {"dashboard-I-of-N.md"}
NOT_FOR_PEOPLE = (
    "reconciler/functions/builtin/",
    "reconciler/forge/api/github.py",
    "reconciler/admission/",
    "reconciler/report/json.py",
)
"""Words of other programs: messages of functions, GraphQL, fields of Kubernetes, and of our JSON."""
CHECKS: tuple[Check, ...] = (wrong_commands, wrong_options, wrong_names, wrong_fields, wrong_files)


def wrong(text: str, *checks: Check) -> list[str]:
    return [each for check in checks for each in check(text) if each.partition(": no such ")[0] not in EXCEPT]


@pytest.mark.slow
def test_a_text_of_the_code_names_only_what_is_there() -> None:
    texts = [each for each in texts_of_code() if not each.place.startswith(NOT_FOR_PEOPLE)]

    assert len(texts) > 2000
    assert [f"{each.place}: {why}" for each in texts for why in wrong(each.text, *CHECKS)] == []


def test_pages_name_only_what_is_there() -> None:
    def text_of(page: Path) -> str:
        text = page.read_text(encoding="utf-8")
        if page.name in {"CONTRIBUTING.md", "recipes.md"}:
            return re.split(r"(?m)^##+ Add an? ", text)[0]  # recipes name what they add
        return text

    faults = [(page, why) for page in PAGES for why in wrong(text_of(page), *CHECKS, wrong_targets)]
    assert [f"{page.relative_to(ROOT)}: {why}" for page, why in faults] == []


def test_templates_and_workflows_name_only_what_is_there() -> None:
    checks = (wrong_commands, wrong_names, wrong_targets)

    faults = [(file, why) for file in FILES for why in wrong(file.read_text(encoding="utf-8"), *checks)]

    assert [f"{file.relative_to(ROOT)}: {why}" for file, why in faults] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Run `reconciler aply`.", "`reconciler aply`: there is no command aply"),
        ("Run `reconciler pr opens {}`.", "`reconciler pr opens {}`: there is no command pr opens"),
        ("Run `reconciler plan --diffs`.", "`reconciler plan --diffs`: there is no option --diffs"),
        ("Add it with `index add --digests x`.", "`index add --digests x`: there is no option --digests"),
        (
            "`reconciler status --sort size` shows it.",
            "`reconciler status --sort size`: size is no value of --sort",
        ),
        ("Write reconciler repos add NAME URL.", "reconciler repos: there is no such command"),
        (
            "Examples:\n  reconciler plan --diffs   what",
            "`reconciler plan --diffs`: there is no option --diffs",
        ),
        ("```console\n$ x | reconciler snapshot imports\n```", "there is no command snapshot imports"),
        ("```yaml\n- run: reconciler plan --diffs\n```", "there is no option --diffs"),
        ("Run `reconciler doctor east`.", "east is too much"),
        ("Leave out --outputs.", "--outputs: no such option"),
        ("Set reconciler.dev/pause.", "reconciler.dev/pause: no such annotation"),
        ("Set `RECONCILER_CACHE`.", "RECONCILER_CACHE: no such variable"),
        ("Limits are in spec.pullRequest.", "spec.pullRequest: no such field"),
        ("Set `pullRequests.maxOpened: 3`.", "spec.pullRequests.maxOpened: no such field"),
        ("Set draftPrefixes of the rule in spec.forges.", "draftPrefixes: no such field"),
        ("See `docs/gone.md`.", "docs/gone.md: no such file"),
        (
            "See `tests/unit/test_wording.py::test_gone`.",
            "tests/unit/test_wording.py::test_gone: no such file",
        ),
        ("`test_gone.py` has it.", "test_gone.py: no such file"),
        ("It is told (`::test_somewhere`).", "::test_somewhere: of which file?"),
        ("Run `make lints`.", "make lints: no such target"),
    ],
)
def test_a_name_of_nothing_is_found(text: str, found: str) -> None:
    assert found in "\n".join(wrong(text, *CHECKS, wrong_targets))


@pytest.mark.parametrize(
    "text",
    [
        "Run `reconciler approve {}`, `reconciler plan -o json --out plan.json` or `apply --checksum`.",
        "Write reconciler repo add NAME URL; `reconciler lock --upgrade {}`.",
        "Examples:\n  reconciler graph --why db.io    why?\n  reconciler snapshot import - --cluster a",
        "Set `spec.upstream.revision` or `RECONCILER_CACHE_DIR`; see `docs/install.md`.",
    ],
)
def test_a_name_of_something_is_accepted(text: str) -> None:
    assert wrong(text, *CHECKS, wrong_targets) == []
