"""Words of peers that people type, and the command that each of them leads to."""

from collections.abc import Mapping, Sequence

import click

from reconciler.base.suggestions import close_names

OF_COMMANDS: Mapping[str, str] = {
    # terraform, pulumi
    "preview": "plan",
    "refresh": "plan",
    "diff": "plan --diff",
    "what-if": "plan",
    "deploy": "apply",
    "up": "apply",
    "output": "status",
    "state": "status",
    "import": "init --from-porch",
    "bootstrap": "init",
    "new": "init",
    # kubectl, argocd, flux
    "get": "status",
    "list": "status",
    "ls": "status",
    "app": "status",
    "describe": "explain",
    "show": "explain",
    "why": "explain",
    "events": "explain",
    "logs": "explain",
    "history": "explain --history",
    "log": "explain --history",
    "tree": "graph",
    "trace": "graph --why",
    "reconcile": "apply",
    "sync": "apply",
    "run": "apply",
    "create": "apply",
    "prune": "apply --prune",
    "auth": "doctor",
    "login": "doctor",
    "config": "doctor",
    "register": "repo add",
    "add": "repo add",
    "cluster": "repo add",
    # helm, kpt, porch
    "install": "apply",
    "upgrade": "apply",
    "template": "expand",
    "lint": "validate",
    "test": "check",
    "pkg": "package update",
    "fn": "package render",
    "render": "package render",
    "eval": "package render",
    "update": "package update",
    "pull": "package update",
    "propose": "approve --propose-only",
    "publish": "approve",
    "reject": "pr close",
    "rpkg": "status",
    # git, gh, renovate
    "resolve": "answer",
    "conflict": "answer",
    "conflicts": "answer",
    "keep": "answer --keep",
    "take": "answer --take",
    "ours": "answer --keep",
    "theirs": "answer --take",
    "merge": "approve",
    "close": "pr close",
    "version": "--version",
    "help": "--help",
    "pr approve": "approve",
    "pr view": "pr show",
    "pr diff": "plan --diff",
    "pr create": "apply",
    "repo register": "repo add",
    "repo create": "repo add",
    "lock update": "lock --upgrade",
    "lock upgrade": "lock --upgrade",
    "lock check": "lock --check",
    "package get": "package update",
    "package list": "status",
    "package show": "explain",
    "package create": "package from-chart",
    "package diff": "plan --diff",
    "package upgrade": "package update",
    "package init": "package from-chart",
    "index update": "index sync",
    "snapshot create": "snapshot import",
}
"""The command that does what a word means elsewhere; a word of a group begins with its name."""
_REMOVED = "Remove its manifest or its label and commit that: `reconciler plan` proposes the deletion."
_PAUSED = (
    'Annotate the PackageVariant, the set or the Repository with reconciler.dev/paused: "true", and commit.'
)
_BACK = (
    "Name the earlier revision in the manifest and commit that; in a rollout, "
    "annotate its set with reconciler.dev/rollout-rollback."
)
_ROLLOUT = (
    "Annotate its set with reconciler.dev/rollout-go, -start or -skip, and commit: "
    "`reconciler status` names the wave."
)
OF_COMMITS: Mapping[str, str] = {
    **dict.fromkeys(("delete", "destroy", "remove", "uninstall", "rm"), _REMOVED),
    **dict.fromkeys(("pause", "suspend", "stop", "freeze"), _PAUSED),
    **dict.fromkeys(
        ("resume", "unpause", "unfreeze"), "Remove the annotation reconciler.dev/paused, and commit."
    ),
    **dict.fromkeys(("rollback", "undo", "revert", "downgrade"), _BACK),
    **dict.fromkeys(("promote", "rollout", "go", "skip"), _ROLLOUT),
    "retry": "Annotate what was rejected with another value of reconciler.dev/retry, and commit.",
    **dict.fromkeys(
        ("pin", "hold"), "Name a revision in the manifest, or `reconciler lock hold` a floating one."
    ),
}
"""The change to commit, for words that are commands elsewhere and a change of a manifest here."""
OF_OPTIONS: Mapping[str, str] = {
    "apply dry-run": "`reconciler plan` shows it and writes nothing.",
    "apply diff": "`reconciler plan --diff` shows it and writes nothing.",
    "apply yes": "It asks nothing: it opens pull requests, and `reconciler approve` merges them.",
    "apply auto-approve": "It opens pull requests; `reconciler approve` or a policy merges them.",
    "apply force": "Nothing of people is overwritten: `reconciler answer` answers their conflicts.",
    "apply target": "Name what it works on with --shard, or hold the others back with waves.",
    "apply filename": "It reads the manifests that are committed: write the file there, and commit it.",
    "apply f": "It reads the manifests that are committed: write the file there, and commit it.",
    "apply wait": "It waits for nobody: `reconciler status` shows what is in review.",
    "plan dry-run": "It writes nothing anyway.",
    "plan checksum": "`reconciler apply --checksum` takes it.",
    "plan f": "It reads the manifests that are committed; `reconciler validate FILE` reads one that is not.",
    "check dry-run": "It writes nothing anyway.",
    "answer ours": "`--keep` keeps the local value.",
    "answer theirs": "`--take` takes upstream's value.",
    "answer local": "`--keep` keeps the local value.",
    "answer upstream": "`--take` takes upstream's value.",
}
"""The hint for an option of peers that a command lacks, by both names."""
EVERYWHERE: Mapping[str, str] = {
    "context": "No cluster is read: a snapshot of its objects in Git is.",
    "kubeconfig": "No cluster is read: a snapshot of its objects in Git is.",
    "debug": "`--verbose` names each Git command and request.",
    "format": "`--output` is the form of the report.",
    "json": "`--output json` prints JSON.",
    "watch": "One command is one run; `reconciler status` shows what the last one saw.",
}
"""The same of options that every command of a peer has."""


class CommandGroup(click.Group):
    """A group that answers an unknown command with one that it has, or another group."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called.

        Raises:
            UsageError: No command has this name; the message leads on.
        """
        name, names = args[0], self.list_commands(ctx)
        if name.startswith("-") or name in names:
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"No such command {name!r}.{_command_hint(ctx, name, names)}", ctx)


def _command_hint(ctx: click.Context, name: str, names: Sequence[str]) -> str:
    path = _path(ctx)
    of_peer = OF_COMMANDS.get(f"{path} {name}".strip()) or (OF_COMMANDS.get(name) if not path else None)
    if name in OF_COMMITS and not path:
        return f" {OF_COMMITS[name]}"
    if of_peer:
        return f" Did you mean `reconciler {of_peer}`?"
    if close := close_names(name, names, most=1):
        return f" Did you mean {close[0]!r}?"
    root = ctx.find_root().command
    if path and isinstance(root, click.Group) and name in root.list_commands(ctx):
        return f" Did you mean `reconciler {name}`?"
    return f" It has {', '.join(names)}." if path else ""


def led_on(error: click.ClickException) -> click.ClickException:
    """Return an error; that of an option of peers with what to do instead of it.

    No option is suggested that only looks alike: `--prune` is no `--dry-run`.
    """
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    typed, context = error.option_name, error.ctx
    name = typed.lstrip("-")
    hint = OF_OPTIONS.get(f"{_path(context)} {name}") or EVERYWHERE.get(name, "")
    if not hint:
        params = context.command.get_params(context)
        names = [
            name.lstrip("-") for param in params if isinstance(param, click.Option) for name in param.opts
        ]
        if any(param.name == name for param in params if isinstance(param, click.Argument)):
            return click.UsageError(
                f"No such option {typed!r}. Write the value alone, in its place.", context
            )
        close = close_names(name, names, most=1)
        hint = f"Did you mean '--{close[0]}'?" if close else ""
    return click.UsageError(f"No such option {typed!r}. {hint}".rstrip(), context)


def _path(context: click.Context) -> str:
    return context.command_path.partition(" ")[2]
