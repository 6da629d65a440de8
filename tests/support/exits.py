"""Every command of the command line, and one line of each that reads the control repository."""

from collections.abc import Iterator

import click

from reconciler.cli.main import main

LINES = {
    name: tuple(line.split())
    for name, line in {
        "plan": "plan",
        "apply": "apply",
        "check": "check",
        "lock": "lock",
        "lock hold": "lock hold web",
        "lock follow": "lock follow web",
        "answer": "answer edge-1/web --keep",
        "approve": "approve edge-1/web",
        "pr list": "pr list",
        "pr show": "pr show edge-1/web",
        "pr merge": "pr merge edge-1/web",
        "pr close": "pr close edge-1/web",
        "pr reopen": "pr reopen edge-1/web",
        "status": "status",
        "explain": "explain edge-1/web",
        "graph": "graph",
        "expand": "expand",
        "snapshot kinds": "snapshot kinds",
        "repo list": "repo list",
        "index missing": "index missing",
    }.items()
}
"""Commands that read the control repository."""
LOCAL = frozenset(
    {
        *(f"index {name}" for name in ("list", "show", "add", "import", "sync", "remove", "set-default")),
        *(f"package {name}" for name in ("from-chart", "update", "render")),
        *(f"functions {name}" for name in ("list", "pull")),
        *(
            "snapshot import",
            "init",
            "schema",
            "action",
            "demo",
            "doctor",
            "completion",
            "validate",
            "repo add",
        ),
    }
)
"""Commands that work on directories, that run others, or whose result is what is wrong (`doctor`)."""


def leaf_commands() -> Iterator[str]:
    """Yield every command that does something by itself."""
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield name
        if isinstance(command, click.Group):
            yield from (f"{name} {each}" for each in command.list_commands(context))
