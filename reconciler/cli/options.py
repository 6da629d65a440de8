"""Options that most commands share, and what they become."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from reconciler.run import Settings

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
        from reconciler.run import Settings

        return command(*args, settings=Settings(control, cache_dir), **options)

    return with_settings


def with_consent(settings: "Settings", allow_deletes: int) -> "Settings":
    """Return `settings` with a person's consent to this many deletions."""
    from dataclasses import replace

    return replace(settings, allow_deletes=allow_deletes)
