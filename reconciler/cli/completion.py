"""`completion`: the script that completes commands, options and names in a shell."""

import click

from reconciler.base.errors import Exit
from reconciler.cli.output import make_printer

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> Exit:
    r"""Print the script that completes commands, options and names in bash, zsh or fish.

    Names of packages, sets, repositories, clusters and variants are those that the last run on this
    machine saw: nothing is read or fetched for a completion.

    \b
    Examples:
      reconciler completion bash > ~/.local/share/bash-completion/completions/reconciler
      reconciler completion zsh > ~/.zfunc/_reconciler            with fpath+=~/.zfunc before compinit
      reconciler completion fish > ~/.config/fish/completions/reconciler.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from reconciler.cli.main import COMPLETING, main

    complete = get_completion_class(shell)
    if complete is not None:
        # The class of bash would start a bash to learn its version.
        text = ShellComplete.source(complete(main, {}, "reconciler", COMPLETING))
        make_printer(color=False).text(f"{text.rstrip()}\n")
    return Exit.DONE
