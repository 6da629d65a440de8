"""The whole command tree: one type and one meaning for each option name, an example in every help."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from reconciler.base.errors import Exit
from reconciler.cli.main import invoke, main
from reconciler.cli.schema import NAMES, OUTPUTS
from tools.docs.cli_reference import walk

EVERYWHERE = {"--quiet", "-q"}
WITHOUT_JSON = {
    "action": "runs another command, whose outputs a workflow gets",
    "completion": "prints a script for a shell",
    "graph": "prints a tree for people; `plan -o json` has the lock",
}
"""Commands that print no JSON, and why."""
ONE_MEANING = {
    "--all": "leave nothing out",
    "--api-resources": "what kubectl api-resources prints",
    "--cluster": "the name of a cluster",
    "--control": "the control repository",
    "--interface": "an interface that packages implement",
    "--keyword": "a keyword of packages",
    "--label": "a label",
    "--namespace": "a namespace of Kubernetes",
    "-n": "a namespace of Kubernetes",
    "--out-dir": "a directory that gets the result",
}
"""The meaning of each option whose help differs between commands. Add one only after a look at all of them:
another meaning takes another name."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its whole name, groups too."""
    for command, context in walk(main, click.Context(main, info_name="reconciler")):
        yield context.command_path.removeprefix("reconciler").strip(), command


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Yield the commands that do something by themselves."""
    for name, command in commands():
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield name, command


def options(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from ((name, parameter) for name in (*parameter.opts, *parameter.secondary_opts))


LEAVES = dict(leaves())
EVERY = dict(commands())


def test_every_command_has_the_common_options() -> None:
    names = {name: set(dict(options(command))) for name, command in LEAVES.items()}

    assert [name for name, own in names.items() if not own >= EVERYWHERE] == []
    silent = [name for name, own in names.items() if ("--verbose" in own) != ("--cache-dir" in own)]
    assert silent == [], "what reads repositories tells about it"


def test_an_option_has_one_type_in_all_commands() -> None:
    types = defaultdict(set)
    for command in LEAVES.values():
        for name, option in options(command):
            types[name].add(_type(option))

    assert {name: kinds for name, kinds in types.items() if len(kinds) > 1} == {}


def _type(option: click.Option) -> tuple[object, ...]:
    """Return what a value of an option is; which words a choice has is the command's."""
    kind = option.type
    look: tuple[object, ...] = (type(kind).__name__, option.is_flag, option.metavar)
    return (*look, kind.file_okay, kind.dir_okay) if isinstance(kind, click.Path) else look


def test_an_option_has_one_meaning_in_all_commands() -> None:
    texts = defaultdict(set)
    for command in LEAVES.values():
        for name, option in options(command):
            texts[name].add(option.help)

    assert {name for name, own in texts.items() if len(own) > 1} == ONE_MEANING.keys()


def test_no_option_is_hidden_or_without_help() -> None:
    bare = [
        f"{command} {name}"
        for command, each in LEAVES.items()
        for name, option in options(each)
        if option.hidden or not option.help
    ]

    assert bare == []


def test_the_help_of_every_command_has_an_example_of_it() -> None:
    def has_example(name: str) -> bool:
        help_text = EVERY[name].help or ""
        _, *examples = re.split(r"^ *(?:Examples?|Try it|Example, .*):$", help_text, flags=re.MULTILINE)
        return any(f"reconciler {name}" in text for text in examples)

    assert [name for name in EVERY if not has_example(name)] == []


def test_every_command_prints_json_with_a_schema() -> None:
    names = sorted(LEAVES.keys() - WITHOUT_JSON.keys())
    assert names
    for name in names:
        form = dict(options(LEAVES[name]))["-o"]

        assert isinstance(form.type, click.Choice), name
        assert "json" in form.type.choices, name
        assert form.default in form.type.choices, name
        kinds = [kind for kind, printing in OUTPUTS.items() if name in printing]
        assert len(kinds) == (name != "schema"), name  # the schema of a schema is JSON Schema's own


def test_no_output_has_the_name_of_a_manifest() -> None:
    assert {*NAMES}.isdisjoint(OUTPUTS)


def test_commands_without_json_have_no_output_option() -> None:
    assert [name for name in WITHOUT_JSON if "-o" in dict(options(LEAVES[name]))] == []


@pytest.mark.parametrize(
    ("line", "near"),
    [
        (("status", "--state", "in revew"), "in review"),
        (("plan", "-o", "jsn"), "json"),
        (("schema", "Staus"), "Status"),
        (("demo", "--layout", "mono"), "monorepo"),
    ],
)
def test_a_misspelt_value_gets_the_closest_choice(
    line: tuple[str, ...], near: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert invoke(line) == 2

    assert f"Did you mean '{near}'?" in capfd.readouterr().err


def test_a_value_like_no_choice_gets_none(capfd: pytest.CaptureFixture[str]) -> None:
    assert invoke(["plan", "-o", "zzzz"]) == 2

    assert "Did you mean" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "name", [name for name, command in EVERY.items() if isinstance(command, click.Group)]
)
def test_each_command_of_a_group_has_a_whole_line(name: str) -> None:
    context = click.Context(EVERY[name], terminal_width=80)

    lines = EVERY[name].get_help(context).partition("Commands:")[2].splitlines()

    assert [line for line in lines if line.endswith("...") or line.startswith("      ")] == []


def test_help_lists_every_exit_code() -> None:
    assert [int(code) for code in re.findall(r"(\d+) [a-z]", main.epilog or "")] == sorted(Exit)


@pytest.fixture
def deleted_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()


@pytest.mark.usefixtures("deleted_directory")
def test_deleted_directory_is_bad_usage(capfd: pytest.CaptureFixture[str]) -> None:
    for name, command in LEAVES.items():
        required = ["x" for each in command.params if isinstance(each, click.Argument) and each.required]

        assert invoke([*name.split(), *required]) == Exit.USAGE, name

        errors = capfd.readouterr().err
        if errors.startswith("error: "):  # click's own errors about arguments start with the usage
            assert errors == (
                "error: The current directory was deleted\n"
                "hint: Go to a directory that exists, then run again.\n"
            ), name


@pytest.mark.usefixtures("deleted_directory")
@pytest.mark.parametrize("line", ["--version", "--help", "plan --help", "pr list --help"])
def test_deleted_directory_has_version_and_help(line: str) -> None:
    assert invoke(line.split()) == Exit.DONE
