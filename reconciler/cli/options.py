"""Options that most commands share, and what they become."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from reconciler.run.inputs import RunOptions

Command = Callable[..., Any]


def control_options(command: Command) -> Command:
    """Give a command `--control` and `--cache-dir`; it receives them as one `settings`."""

    @click.option(
        "--control",
        default=".",
        envvar="RECONCILER_CONTROL",
        show_default=True,
        help="The control repository: a working copy (its HEAD is read), a bare repository, or a URL.",
    )
    @click.option(
        "--cache-dir",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="RECONCILER_CACHE_DIR",
        help="Where mirrors of repositories are kept; safe to delete.  [default: the user's cache]",
    )
    @wraps(command)
    def with_settings(*args: Any, control: str, cache_dir: Path | None, **options: Any) -> Any:
        from reconciler.run.inputs import RunOptions

        return command(*args, settings=RunOptions(control, cache_dir), **options)

    return with_settings


def shard_option(command: Command) -> Command:
    """Give a command `--shard`: the part of the fleet that is this run's."""
    return click.option(
        "--shard",
        default="",
        envvar="RECONCILER_SHARD",
        metavar="I/N",
        help="Only the repositories of part I (from 0) of N; auto/N in a Kubernetes Indexed Job.",
    )(command)


def with_consent(settings: "RunOptions", allow_deletes: int, shard: str = "") -> "RunOptions":
    """Return `settings` with a person's consent to this many deletions, for one part of the fleet.

    Raises:
        UsageError: There is no such part.
    """
    from dataclasses import replace

    from reconciler.plan.shard import parse_shard

    return replace(settings, allow_deletes=allow_deletes, shard=parse_shard(shard, os.environ))
