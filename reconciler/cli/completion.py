"""`completion`: the script that completes commands and options in a shell."""

import click
from click.shell_completion import ShellComplete, get_completion_class

from reconciler.base.errors import Exit
from reconciler.cli.main import COMPLETING, main
from reconciler.cli.output import make_printer

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> Exit:
    r"""Print the script that completes commands and options in bash, zsh or fish.

    \b
    Examples:
      reconciler completion bash > ~/.local/share/bash-completion/completions/reconciler
      reconciler completion zsh > ~/.zfunc/_reconciler            with fpath+=~/.zfunc before compinit
      reconciler completion fish > ~/.config/fish/completions/reconciler.fish
    """
    complete = get_completion_class(shell)
    if complete is not None:
        # The class of bash would start a bash to learn its version.
        text = ShellComplete.source(complete(main, {}, "reconciler", COMPLETING))
        make_printer(color=False).text(f"{text.rstrip()}\n")
    return Exit.DONE
