"""Words of peers that people type, and the command that each of them leads to."""

from collections.abc import Mapping, Sequence

import click

from reconciler.base.suggestions import close_names

_WORDS: Mapping[str, str] = {
    "plan": "preview, refresh, what-if, dry-run, drift",
    "plan --diff": "diff, pr diff, package diff",
    "plan --html": "report, ui, web, serve, open, dashboard",
    "apply": "deploy, up, start, push, reconcile, sync, run, create, install, pr create",
    "status": "output, state, get, list, ls, app, fleet, rpkg, package list",
    "init --from-porch": "import, migrate",
    "expand": "export, template",
    "init": "bootstrap, new",
    "status --watch": "watch",
    "explain": "info, describe, show, why, events, logs, package show",
    "explain --history": "history, log",
    "graph": "tree",
    "graph --why": "trace",
    "apply --prune": "prune, gc, clean, cleanup, autoremove",
    "lock follow": "unpin, unhold, unlock",
    "repo list": "clusters, repo show",
    "doctor": "auth, login, config",
    "repo add": "register, add, cluster, repo register, repo create",
    "validate": "lint, fmt, format, verify",
    "check": "test",
    "package update": "pkg, package get, package upgrade",
    "package render": "fn, render, eval",
    "approve --propose-only": "propose",
    "approve": "publish, merge, pr approve",
    "pr close": "reject, close",
    "answer": "resolve, conflict, conflicts",
    "answer --keep": "keep, ours",
    "answer --take": "take, theirs",
    "--version": "version",
    "--help": "help",
    "pr show": "pr view",
    "lock --upgrade": "lock update, lock upgrade",
    "lock --check": "lock check",
    "package from-chart": "package create, package init",
    "index sync": "index update",
    "snapshot import": "snapshot create",
}
OF_COMMANDS: Mapping[str, str] = {word: name for name, words in _WORDS.items() for word in words.split(", ")}
"""The command that does what a word means elsewhere; a word of a group begins with its name."""
_REMOVED = "Remove its manifest or its label and commit that: `reconciler plan` proposes the deletion."
_PAUSED = (
    'Annotate the PackageVariant, the set or the Repository with reconciler.dev/paused: "true", and commit.'
)
_BACK = (
    "Name the earlier revision in the manifest and commit that; in a rollout, "
    "annotate its set with reconciler.dev/rollout-rollback."
)
_NEWER = (
    "Name the newer revision in the manifest and commit that: `reconciler plan` shows the updates. "
    "`reconciler package update` merges directories."
)
_ROLLOUT = (
    "Annotate its set with reconciler.dev/rollout-go, -start or -skip, and commit: "
    "`reconciler status` names the wave."
)
OF_COMMITS: Mapping[str, str] = {
    **dict.fromkeys(("delete", "destroy", "down", "remove", "uninstall", "rm"), _REMOVED),
    **dict.fromkeys(("repo delete", "repo remove", "repo rm"), _REMOVED),
    **dict.fromkeys(("bump", "pull", "update", "upgrade"), _NEWER),
    "adopt": "Set adoptionPolicy: adoptExisting on the PackageVariant or in its set, and commit.",
    **dict.fromkeys(("pause", "suspend", "stop", "freeze"), _PAUSED),
    **dict.fromkeys(
        ("resume", "unpause", "unfreeze"), "Remove the annotation reconciler.dev/paused, and commit."
    ),
    **dict.fromkeys(("rollback", "undo", "revert", "downgrade"), _BACK),
    **dict.fromkeys(("promote", "rollout", "wave", "go", "skip"), _ROLLOUT),
    "retry": "Annotate what was rejected with another value of reconciler.dev/retry, and commit.",
    **dict.fromkeys(
        ("pin", "hold"), "Name a revision in the manifest, or `reconciler lock hold` a floating one."
    ),
}
"""The change to commit, for words that are commands elsewhere and a change of a manifest here."""
OF_OPTIONS: Mapping[str, str] = {
    "apply dry-run": "`reconciler plan` shows it and writes nothing.",
    "apply diff": "`reconciler plan --diff` shows it and writes nothing.",
    "apply plan-only": "`reconciler plan` shows it and writes nothing.",
    "apply yes": "It asks nothing: it opens pull requests, and `reconciler approve` merges them.",
    "apply auto-approve": "It opens pull requests; `reconciler approve` or a policy merges them.",
    "apply force": "Nothing of people is overwritten: `reconciler answer` answers their conflicts.",
    "apply target": "Name what it works on with --shard, or hold the others back with waves.",
    **dict.fromkeys(
        ("apply filename", "apply f"),
        "It reads the manifests that are committed: write the file there, and commit it.",
    ),
    "apply wait": "It waits for nobody: `reconciler status` shows what is in review.",
    "plan dry-run": "It writes nothing anyway.",
    "plan checksum": "`reconciler apply --checksum` takes it.",
    "plan f": "It reads the manifests that are committed; `reconciler validate FILE` reads one that is not.",
    "check dry-run": "It writes nothing anyway.",
    **dict.fromkeys(("check against", "check target"), "`--base` names the branch to merge into."),
    **dict.fromkeys(("check branch", "check pr"), "`--head` names the branch with the change."),
    **dict.fromkeys(("status all", "status A"), "It has every package of the fleet anyway."),
    "answer ours": "`--keep` keeps the local value.",
    "answer theirs": "`--take` takes upstream's value.",
    "answer local": "`--keep` keeps the local value.",
    "answer upstream": "`--take` takes upstream's value.",
}
"""The hint for an option of peers that a command lacks, by both names."""
OF_ARGUMENTS: Mapping[str, str] = {
    "apply": "A run is of the whole fleet. FILE is a plan that `reconciler plan -o json --out` wrote.",
    "check": "`--base` and `--head` name branches.",
    "pr list": "`--set` and `--label` choose some; `reconciler pr show` shows one.",
}
"""The hint for an argument that a command does not take."""
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
    words = f"{path} {name}".strip()
    if words in OF_COMMITS:
        return f" {OF_COMMITS[words]}"
    if words in OF_COMMANDS:
        return f" Did you mean `reconciler {OF_COMMANDS[words]}`?"
    if close := close_names(name, names, most=1):
        return f" Did you mean {close[0]!r}?"
    root = ctx.find_root().command
    if path and isinstance(root, click.Group) and name in root.list_commands(ctx):
        return f" Did you mean `reconciler {name}`?"
    return f" It has {', '.join(names)}." if path else ""


def led_on(error: click.ClickException) -> click.ClickException:
    """Return an error; that of an option or an argument of peers with what to do instead of it.

    No option is suggested that only looks alike: `--prune` is no `--dry-run`.
    """
    if isinstance(error, click.UsageError) and error.ctx and not isinstance(error, click.NoSuchOption):
        is_argument = (
            isinstance(getattr(error, "param", None), click.Argument) or "extra arg" in error.message
        )
        hint = OF_ARGUMENTS.get(_path(error.ctx), "") if is_argument else ""
        return click.UsageError(f"{error.format_message()} {hint}", error.ctx) if hint else error
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
