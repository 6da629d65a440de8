"""`init` writes files that are right as they are, and a configuration right with every comment removed."""

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pygit2
import pytest
from click.testing import CliRunner

from reconciler.api.porch import PackageVariantSet, Repository
from reconciler.api.validation import parse_model
from reconciler.cli.init import init
from reconciler.krm.yaml import load_documents
from reconciler.policy import CredentialRule, ForgeKind, ForgeRule, Policy
from reconciler.read.configuration import parse_configuration

ADDRESSES = (
    "--upstream-url",
    "https://github.com/acme/blueprints.git",
    "--downstream-url",
    "https://github.com/acme/edge",
)
WRITE_MANIFESTS = "write your repositories and a package into manifests/: the files show how"
COMMIT = 'git add . && git commit -m "Describe the fleet"'
FOLDERS = {
    "reconciler.yaml": "",
    "manifests/repositories.yaml": "../",
    "manifests/package-variant-sets.yaml": "../",
}


def run(*arguments: str, answers: str = "") -> str:
    return (
        CliRunner()
        .invoke(init, arguments, input=answers, catch_exceptions=False, standalone_mode=False)
        .output
    )


class Terminal(io.StringIO):
    """A stream that a person types into, or looks at."""

    def isatty(self) -> bool:
        return True


def asked(monkeypatch: pytest.MonkeyPatch, *arguments: str, answers: str, typed: bool = True) -> str:
    """Run `init` at a terminal, or where only its output goes to one, and return what it shows."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stdin", (Terminal if typed else io.StringIO)(answers))
    monkeypatch.setattr(sys, "stdout", shown)
    init(list(arguments), standalone_mode=False)
    return shown.getvalue()


def uncommented(text: str) -> str:
    return re.sub(r"^( *)# ((?:- |  )*[a-zA-Z]+:(?: .*)?)$", r"\1\2", text, flags=re.MULTILINE)


def without_places(data: bytes) -> Policy:
    return replace(parse_configuration(data, "reconciler.yaml", {}), manifest_locations={})


def policy(path: Path) -> Policy:
    return without_places(path.read_bytes())


def test_the_first_configuration_is_valid_and_chooses_the_defaults(tmp_path: Path) -> None:
    run(str(tmp_path / "My Fleet"))

    assert policy(tmp_path / "My Fleet/reconciler.yaml") == Policy(
        instance="my-fleet", manifests=("manifests",)
    )
    assert (tmp_path / "My Fleet/manifests").is_dir()
    assert not (tmp_path / "My Fleet/snapshot").exists(), "an empty one is a warning for ever"


def test_what_the_comments_show_is_the_default(tmp_path: Path) -> None:
    run(str(tmp_path), "--instance", "fleet")
    text = (tmp_path / "reconciler.yaml").read_text()
    shown = uncommented(text.partition("\n")[2])

    assert shown.count("#") < text.count("#")
    assert without_places(shown.encode()) == Policy(
        instance="fleet",
        manifests=("manifests",),
        credentials=(CredentialRule("https://git.example.com/", token_env="GIT_TOKEN"),),
    )


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ((), [WRITE_MANIFESTS, "cd {there}", "git init -b main", COMMIT]),
        (ADDRESSES, ["cd {there}", "git init -b main", COMMIT]),
    ],
    ids=["nothing", "addresses"],
)
def test_next_steps_are_those_that_are_left(
    tmp_path: Path, arguments: tuple[str, ...], steps: list[str]
) -> None:
    told = run(str(tmp_path / "fleet"), *arguments).partition("Next:\n")[2].splitlines()

    assert [step.strip() for step in told] == [
        *(step.format(there=tmp_path / "fleet") for step in steps),
        "reconciler plan",
    ]


def test_next_steps_begin_where_the_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pygit2.init_repository(tmp_path)
    monkeypatch.chdir(tmp_path)

    told = run(".", *ADDRESSES).partition("Next:\n")[2].splitlines()

    assert [step.strip() for step in told] == [COMMIT, "reconciler plan"]


@pytest.mark.parametrize(
    ("forge", "downstream", "prefix", "rule"),
    [
        ("github", "https://github.com/acme/edge", "https://github.com/acme/",
         {"app_id": "1", "installation_id": "2", "app_key_env": "RECONCILER_APP_KEY"}),
        ("gitlab", "", "https://gitlab.com/", {"token_env": "RECONCILER_CONTROL_TOKEN"}),
        pytest.param("gitlab", "https://git.corp/acme/teams/edge", "https://git.corp/acme/",
                     {"token_env": "RECONCILER_CONTROL_TOKEN"}, id="the outer group owns all"),
        ("gitea", "", "https://codeberg.org/", {"token_env": "GIT_TOKEN"}),
        ("bitbucket", "", "https://bitbucket.org/",
         {"username": "x-token-auth", "token_env": "GIT_TOKEN"}),
    ],
)  # fmt: skip
def test_forge_and_credentials_are_set_up(
    tmp_path: Path, forge: str, downstream: str, prefix: str, rule: dict[str, str]
) -> None:
    run(str(tmp_path), "--forge", forge, *(("--downstream-url", downstream) if downstream else ()))
    text = (tmp_path / "reconciler.yaml").read_text().partition("# Where pull requests are.")
    shown = parse_configuration((text[0] + uncommented(text[2])).encode(), "reconciler.yaml", {})

    assert policy(tmp_path / "reconciler.yaml").forges == (ForgeRule(prefix, ForgeKind(forge)),)
    assert shown.credentials == (CredentialRule(prefix, **rule),)


@pytest.mark.parametrize(
    ("forge", "workflows"),
    [
        ("none", set()),
        ("gitea", {".gitea/workflows/reconciler.yml"}),
        ("azure", {"azure-pipelines.yml"}),
        ("bitbucket", {"bitbucket-pipelines.yml"}),
        ("github", {".github/workflows/reconciler-check.yml", ".github/workflows/reconciler-apply.yml"}),
        ("gitlab", {".gitlab-ci.yml"}),
    ],
)
def test_workflow_of_the_forge_is_written(
    tmp_path: Path, project_root: Path, forge: str, workflows: set[str]
) -> None:
    said = run(str(tmp_path), "--forge", forge)

    assert ("write your copy of the reconciler into the workflow" in said) is bool(workflows)
    written = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.suffix == ".yml"}
    assert written == workflows
    shipped = {p.read_text() for p in (project_root / ".github/examples").glob("*")}
    shipped |= {p.read_text() for p in (project_root / "deploy").glob("*/*.yml")}
    assert all(path in said for path in workflows)
    assert ("git remote add origin ADDRESS" in said) is bool(workflows)
    assert {(tmp_path / path).read_text() for path in written} <= shipped


@pytest.mark.parametrize("addresses", [ADDRESSES, (), ADDRESSES[:2], ADDRESSES[2:]])
def test_first_manifests_are_valid(tmp_path: Path, addresses: tuple[str, ...]) -> None:
    complete = addresses == ADDRESSES
    run(str(tmp_path), *addresses, "--package", "db", "--revision", "3")
    texts = [
        (tmp_path / f"manifests/{name}").read_text()
        for name in ("repositories.yaml", "package-variant-sets.yaml")
    ]
    if not complete:
        assert all(load_documents(text.encode()) == () for text in texts), "comments only"
        texts = [re.sub(r"(?m)^# (?![A-Z])", "", text.partition("\n")[2]) for text in texts]

    upstream, downstream = (document.value for document in load_documents(texts[0].encode()))
    (variants,) = (document.value for document in load_documents(texts[1].encode()))

    assert isinstance(parse_model(Repository, upstream), Repository)
    assert isinstance(parse_model(Repository, downstream), Repository)
    assert isinstance(parse_model(PackageVariantSet, variants), PackageVariantSet)
    assert variants["spec"]["upstream"] == {
        "repo": upstream["metadata"]["name"],
        "package": "db",
        "revision": 3,
    }
    labels = downstream["metadata"]["labels"]
    assert variants["spec"]["targets"] == [{"repositorySelector": {"matchLabels": labels}}]
    assert "labels" not in upstream["metadata"]


def test_each_cluster_gets_a_repository_of_its_own_name(tmp_path: Path) -> None:
    addresses = ("x/east", "y/east", "x/west", "z/east", "x/blueprints", "x/west")

    run(str(tmp_path), "--upstream-url", "blueprints", *(f"--downstream-url={path}" for path in addresses))

    _, *clusters = load_documents((tmp_path / "manifests/repositories.yaml").read_bytes())
    assert [(one.value["metadata"]["name"], one.value["spec"]["git"]["repo"]) for one in clusters] == [
        ("east", "x/east"),
        ("east-2", "y/east"),
        ("west", "x/west"),
        ("east-3", "z/east"),
        ("blueprints-packages", "x/blueprints"),
    ]


@pytest.mark.parametrize(("made", "branch"), [("trunk", "trunk"), ("", "main")])
def test_branch_of_an_upstream_on_this_machine_is_found(tmp_path: Path, made: str, branch: str) -> None:
    upstream = tmp_path / "blueprints"
    upstream.mkdir()
    if made:
        pygit2.init_repository(str(upstream), initial_head=made)

    run(
        str(tmp_path / "fleet"), "--upstream-url", str(upstream), "--downstream-url", "https://a.example/edge"
    )

    blueprints, edge = load_documents((tmp_path / "fleet/manifests/repositories.yaml").read_bytes())
    assert blueprints.value["spec"]["git"]["branch"] == branch
    assert edge.value["spec"]["git"]["branch"] == "main"


def test_repositories_of_one_name_get_two(tmp_path: Path) -> None:
    run(
        str(tmp_path),
        "--upstream-url",
        "https://a.example/x/Web_1.git",
        "--downstream-url",
        "git@b.example:x/web-1.git",
        "--downstream-url",
        "https://a.example/x/WEB.1/",
        "--downstream-url",
        "https://a.example/_.git",
    )

    text = (tmp_path / "manifests/repositories.yaml").read_text()
    names = re.findall(r"(?m)^  name: (.*)$", text)
    assert names == ["web-1", "web-1-packages", "web-1-packages-2", "repository"]


@pytest.mark.parametrize("path", FOLDERS)
def test_editors_find_the_schema_of_each_file(tmp_path: Path, path: str) -> None:
    run(str(tmp_path), *ADDRESSES)
    first = (tmp_path / path).read_text().partition("\n")[0]
    named = first.removeprefix("# yaml-language-server: $schema=")

    schema = json.loads(((tmp_path / path).parent / named).resolve().read_text())
    assert named.startswith(f"{FOLDERS[path]}.schemas/")
    assert schema["properties"].keys() >= {"apiVersion", "kind", "metadata", "spec"}


def test_on_a_terminal_it_asks_for_what_no_option_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = "east\ngithub\nhttps://github.com/acme/blueprints\nnginx\n2\nhttps://github.com/acme/edge\n"
    answers += "https://github.com/acme/edge-2\n\n"

    said = asked(monkeypatch, str(tmp_path), answers=answers)

    assert policy(tmp_path / "reconciler.yaml").instance == "east"
    assert (tmp_path / ".github/workflows/reconciler-apply.yml").is_file()
    assert (
        "package: nginx\n    revision: 2\n" in (tmp_path / "manifests/package-variant-sets.yaml").read_text()
    )
    assert "  name: edge-2\n" in (tmp_path / "manifests/repositories.yaml").read_text()
    assert "create a GitHub App" in said


def test_empty_answers_are_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(monkeypatch, str(tmp_path / "fleet"), answers="\n\n\n")

    assert policy(tmp_path / "fleet/reconciler.yaml") == Policy(instance="fleet", manifests=("manifests",))


def test_options_are_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = asked(monkeypatch, str(tmp_path / "a"), "--forge", "none", answers="")
    said += asked(monkeypatch, str(tmp_path / "b"), answers="", typed=False)

    assert "Where are pull requests" not in said
