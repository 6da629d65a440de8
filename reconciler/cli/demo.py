"""The `demo` command: a small world as real Git repositories, and what to try on it."""

from pathlib import Path

import click

from reconciler.cli.output import Output, make_printer, output_options, show_files
from reconciler.errors import Exit

_LEAST, _MOST = 3, 2000


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default="demo")
@click.option("--clusters", type=click.IntRange(_LEAST, _MOST), default=6, show_default=True,
              help="How many clusters the fleet has.")  # fmt: skip
@click.option("--layout", type=click.Choice(["separate", "monorepo"]), default="separate", show_default=True,
              help="One repository per role, or one for all of them.")  # fmt: skip
@output_options(Output.TEXT, Output.JSON)
def demo(directory: Path, *, clusters: int, layout: str, output: str) -> Exit:
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

    lines = [f"Wrote a fleet of {plural(clusters, 'cluster')} to {directory}. Try, in this order:", ""]
    lines.append(f"  cd {directory}")
    for title, commands in walkthrough(world, clusters):
        lines += ["", f"  # {title}", *(f"  {command}" for command in commands)]
    lines += ["", f"Or all at once: sh {directory / WALKTHROUGH}"]
    show_files(make_printer(color=False, wraps=False), output, lines, written=[directory])
    return Exit.DONE
