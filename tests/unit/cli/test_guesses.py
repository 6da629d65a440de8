"""Who types the word of a peer is led to the command here that does it, never to one that removes."""

import re

import click
import pytest

from reconciler.api.annotations import KEYS
from reconciler.base.errors import Exit
from reconciler.cli.guesses import OF_COMMANDS, OF_COMMITS, OF_OPTIONS
from reconciler.cli.main import invoke, main
from tools.docs.cli_reference import walk

COMMANDS = {
    context.command_path.removeprefix("reconciler").strip(): command
    for command, context in walk(main, click.Context(main, info_name="reconciler"))
}


def said(line: str, capfd: pytest.CaptureFixture[str]) -> str:
    assert invoke(line.split()) == Exit.USAGE
    return capfd.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("word", OF_COMMANDS)
def test_the_word_of_a_peer_leads_to_a_command_that_is_there(
    word: str, capfd: pytest.CaptureFixture[str]
) -> None:
    leads_to = OF_COMMANDS[word].split()
    name = " ".join(part for part in leads_to if not part.startswith("-"))
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}

    assert word not in COMMANDS
    assert {part for part in leads_to if part.startswith("-")} <= options | {"--help"}
    assert said(word, capfd) == (
        f"Error: No such command {word.rpartition(' ')[2]!r}. Did you mean `reconciler {OF_COMMANDS[word]}`?"
    )


@pytest.mark.parametrize("line", OF_OPTIONS)
def test_the_option_of_a_peer_gets_what_to_do_instead(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    command, option = line.split()
    dashes = "-" if len(option) == 1 else "--"

    assert said(f"{command} {dashes}{option}", capfd).endswith(OF_OPTIONS[line])


@pytest.mark.parametrize(
    ("line", "leads_on"),
    [
        ("apply --dry-run", "`reconciler plan` shows it and writes nothing."),
        ("plan --kubeconfig x", "No cluster is read: a snapshot of its objects in Git is."),
        ("apply --chekcsum 1", "Did you mean '--checksum'?"),
        ("pr status", "Did you mean `reconciler status`?"),
        ("plant", "Did you mean 'plan'?"),
        ("repo lst", "Did you mean 'list'?"),
        ("repo zzz", "It has add, list."),
        ("delete web", "`reconciler plan` proposes the deletion."),
        ("repo rm east", "`reconciler plan` proposes the deletion."),
        ("update web", "`reconciler package update` merges directories."),
        ("apply east/web", "FILE is a plan that `reconciler plan -o json --out` wrote."),
        ("check main", "`--base` and `--head` name branches."),
        ("pr list east", "`reconciler pr show` shows one."),
    ],
)
def test_a_wrong_guess_leads_on(line: str, leads_on: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert said(line, capfd).endswith(leads_on)


@pytest.mark.parametrize("line", ["apply --zzzz", "apply --dryrun"])
def test_no_option_is_suggested_that_only_has_letters_in_common(
    line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "--prune" not in said(line, capfd)


@pytest.mark.parametrize("word", OF_COMMITS)
def test_a_word_for_a_change_of_a_manifest_gets_what_to_commit(
    word: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert word not in COMMANDS
    assert said(word, capfd) == f"Error: No such command {word.rpartition(' ')[2]!r}. {OF_COMMITS[word]}"
    assert set(re.findall(r"reconciler\.dev/[a-z-]+", OF_COMMITS[word])) <= set(KEYS)


def test_an_argument_is_suggested_as_no_option(capfd: pytest.CaptureFixture[str]) -> None:
    text = said("repo add east --url https://git.example/east.git", capfd)

    assert text == "Error: No such option '--url'. Write the value alone, in its place."
