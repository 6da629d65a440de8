"""Every command that takes a control repository, with arguments that make it read all it can."""

from collections.abc import Iterator

import click

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


def commands_of_control(command: click.Command, name: str = "") -> Iterator[str]:
    """Yield every command that takes a control repository."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            yield from commands_of_control(found, f"{name} {sub}".strip())
    if any(parameter.name == "control" for parameter in command.params):
        yield name
