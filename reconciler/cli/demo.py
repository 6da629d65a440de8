"""The `demo` command: a small world as real Git repositories, and what to try on it."""

from pathlib import Path

import click

_LEAST, _MOST = 3, 2000


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default="demo")
@click.option("--clusters", type=click.IntRange(_LEAST, _MOST), default=6, show_default=True,
              help="How many clusters the fleet has.")  # fmt: skip
@click.option("--layout", type=click.Choice(["separate", "monorepo"]), default="separate", show_default=True,
              help="One repository per role, or one for all of them.")  # fmt: skip
def demo(directory: Path, *, clusters: int, layout: str) -> None:
    r"""Write a small world as real Git repositories into DIRECTORY.

    It holds a control repository, two blueprint packages with two revisions each, a snapshot with
    clusters of two regions, and their repositories. The commands to try next are printed, and
    written to walkthrough.sh.

    \b
    Examples:
      reconciler demo
      reconciler demo /tmp/fleet --clusters 50
      reconciler demo --layout monorepo
    """
    from reconciler.workdir.demo import MONOREPO, SEPARATE, WALKTHROUGH, walkthrough, write_demo

    world = MONOREPO if layout == "monorepo" else SEPARATE
    write_demo(directory, world, clusters)
    from reconciler.wording import plural

    click.echo(f"Wrote a fleet of {plural(clusters, 'cluster')} to {directory}. Try, in this order:\n")
    click.echo(f"  cd {directory}")
    for title, commands in walkthrough(world, clusters):
        click.echo(f"\n  # {title}")
        for command in commands:
            click.echo(f"  {command}")
    click.echo(f"\nOr all at once: sh {directory / WALKTHROUGH}")
