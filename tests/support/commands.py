"""Every command, and arguments that make those that take a control repository read all they can."""

from collections.abc import Iterator

import click

from tests.support.reference import commands

COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": (),
    "apply": (),
    "check": ("--level", "fleet"),
    "lock": (),
    "lock hold": ("web-edge-1",),
    "lock follow": ("web-edge-1",),
    "index list": (),
    "index show": ("web",),
    "index add": ("blueprints/web",),
    "index import": ("manifests",),
    "index sync": (),
    "index missing": (),
    "index remove": ("web",),
    "index set-default": ("web", "web"),
    "answer": ("edge-1/web", "--keep"),
    "approve": ("--all",),
    "pr list": (),
    "pr show": ("1",),
    "pr merge": ("1",),
    "pr close": ("1",),
    "pr reopen": ("1",),
    "status": (),
    "explain": ("edge-1/web", "--why-not", "newest", "--history"),
    "doctor": (),
    "graph": (),
    "expand": (),
    "snapshot kinds": (),
    "repo add": ("extra", "../extra.git"),
    "repo list": (),
    "functions pull": ("registry.example/canary:v1",),
}


LOCAL = frozenset(
    {
        *(f"index {name}" for name in ("list", "show", "add", "import", "sync", "remove", "set-default")),
        *(f"package {name}" for name in ("from-chart", "update", "render")),
        *(
            "functions list",
            "functions pull",
            "snapshot import",
            "init",
            "schema",
            "action",
            "demo",
            "doctor",
        ),
        *("completion", "validate", "repo add"),
    }
)
"""Commands that work on directories, that run others, or whose result is what is wrong (`doctor`)."""
READING = {name: (*name.split(), *line) for name, line in COMMANDS.items() if name not in LOCAL}
"""A line of each command that reads the control repository."""


def leaf_commands() -> Iterator[str]:
    """Yield every command that does something by itself."""
    for words, command in commands().items():
        if words and (not isinstance(command, click.Group) or command.invoke_without_command):
            yield " ".join(words)


def commands_with(parameter: str) -> dict[str, click.Parameter]:
    """Return a parameter of each command that has it."""
    return {
        " ".join(words): own
        for words, command in commands().items()
        for own in command.params
        if own.name == parameter
    }
