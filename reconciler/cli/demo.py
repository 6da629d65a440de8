"""The `demo` command: a small world as real Git repositories, and what to try on it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from reconciler.base.errors import Exit, UsageError
from reconciler.base.text import plural
from reconciler.cli.init import editor_schemas
from reconciler.cli.output import Printer, output_options
from reconciler.workdir.starter import (
    FILES,
    MONOREPO,
    SEPARATE,
    TUTORIAL,
    TUTORIAL_STEPS,
    WALKTHROUGH,
    walkthrough,
    write_demo,
    write_tutorial,
)

_LEAST, _MOST = 3, 2000
_CLUSTERS = 6
_LAYOUTS = (SEPARATE, MONOREPO, TUTORIAL)


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default="demo")
@click.option("--clusters", type=click.IntRange(_LEAST, _MOST), default=_CLUSTERS, show_default=True,
              help="How many clusters the fleet has.")  # fmt: skip
@click.option("--layout", type=click.Choice(_LAYOUTS), default=_LAYOUTS[0], show_default=True,
              help="One repository per role, one for all of them, or the tutorial's fleet.")  # fmt: skip
@output_options(color=False, whole_lines=True)
def demo(directory: Path, *, clusters: int, layout: str, printer: Printer) -> Exit:
    r"""Write a small world as real Git repositories into DIRECTORY.

    It holds a control repository, two blueprint packages with two revisions each, a snapshot with
    clusters of two regions, and their repositories. The commands to try next are printed, and
    written to walkthrough.sh. The layout `tutorial` is what the guides of the documentation begin with:
    one package, and the clusters east and west.

    \b
    Examples:
      reconciler demo
      reconciler demo /tmp/fleet --clusters 50
      reconciler demo --layout monorepo
    """
    if layout == TUTORIAL:
        if clusters != _CLUSTERS:
            raise UsageError("The tutorial has two clusters", hint="Leave out --clusters, or --layout.")
        kinds = ("Repository", "PackageVariantSet")
        write_tutorial(directory, editor_schemas([f"manifests/{FILES[kind]}" for kind in kinds]))
        first = f"Wrote the fleet of the tutorial to {directory}. Begin with:"
        lines = [first, "", *_steps(directory, TUTORIAL_STEPS)]
    else:
        write_demo(directory, layout, clusters)
        first = f"Wrote a fleet of {plural(clusters, 'cluster')} to {directory}. Try, in this order:"
        script = f"Or all at once: sh {directory / WALKTHROUGH}"
        lines = [first, "", *_steps(directory, walkthrough(layout, clusters)), "", script]
    printer.files(lines, written=[directory])
    return Exit.DONE


def _steps(directory: Path, steps: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    yield f"  cd {directory}"
    for title, commands in steps:
        yield from ("", f"  # {title}", *(f"  {command}" for command in commands))
