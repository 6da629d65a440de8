"""`expand`: print the PackageVariants that the sets expand to."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from reconciler.base.errors import Exit, UsageError, worst
from reconciler.base.suggestions import suggest
from reconciler.base.text import terminal
from reconciler.cli.output import (
    Output,
    Printer,
    control_options,
    make_printer,
    output_options,
    show_standing,
    show_unread,
)
from reconciler.expand import Desired, DesiredVariant
from reconciler.expand.expansion import empty_selections
from reconciler.expand.variants import to_manifest
from reconciler.inventory.inventory import Inventory
from reconciler.krm.yaml import emit
from reconciler.plan.build import find_unread
from reconciler.report.json import wire
from reconciler.report.machine import document
from reconciler.run.options import RunOptions
from reconciler.run.plan import read_inputs, resolve_inputs


@click.command()
@click.argument("sets", nargs=-1, metavar="[NAMESPACE/SET]...")
@control_options
@output_options(Output.YAML, Output.JSON)
@click.option("--trace", is_flag=True, help="Say which literal or expression gave each field.")
@click.option("--authored", is_flag=True, help="Print the PackageVariants that people wrote too.")
def expand(
    settings: RunOptions, sets: tuple[str, ...], printer: Printer, *, trace: bool, authored: bool
) -> Exit:
    r"""Print the PackageVariants that the PackageVariantSets expand to. Writes nothing.

    Without a name also those that others need and no manifest declares, each with the annotation
    `reconciler.dev/requested-by`. A set with anything wrong in it expands to nothing; what is wrong
    is printed with file and line, and the exit code is 3.

    \b
    Examples:
      reconciler expand                        every set of the repository around the current directory
      reconciler expand default/edge --trace   one set, and where each field comes from
      reconciler expand -o json | jq '.variants | length'
    """
    world = read_inputs(settings)
    inventory = world.inventory
    keys = {tuple(pvs.key) for pvs in inventory.sets}
    default = inventory.policy.default_namespace
    selected = {
        (namespace or default, name) for namespace, _, name in (text.rpartition("/") for text in sets)
    }
    for namespace, name in sorted(selected - keys):
        text, declared = f"{namespace}/{name}", ["/".join(key) for key in keys]
        hint = suggest(text, declared) or "Declare one: docs/package-variant-sets.md has examples."
        raise UsageError(f"There is no PackageVariantSet {text}", hint=hint)
    desired = resolve_inputs(world, trace=trace).desired
    variants = [
        variant
        for variant in desired.variants
        if (variant.set_key is not None and (not selected or variant.set_key in selected))
        or (variant.requested_by and not selected)
        or (variant.set_key is None and not variant.requested_by and authored)
    ]
    show_standing(printer, inventory.control.standing)
    printer.notes(map(terminal, empty_selections(desired, inventory)))
    exits = show_unread(printer, find_unread(inventory))
    if not variants and not desired.problems and not inventory.problems:
        printer.notes([f"There is nothing to expand in {inventory.policy.manifest_places}"])
    _show(make_printer(printer.form, wraps=False), variants, desired, inventory, trace=trace)
    return worst(exits | ({Exit.INVALID_INPUT} if desired.problems or inventory.problems else set()))


def _show(
    printer: Printer,
    variants: Sequence[DesiredVariant],
    desired: Desired,
    inventory: Inventory,
    *,
    trace: bool,
) -> None:
    problems = (*inventory.problems, *desired.problems)
    if printer.form is Output.JSON:
        value: dict[str, Any] = {
            "variants": [to_manifest(variant, inventory) for variant in variants],
            "problems": wire(problems),
        }
        if trace:
            value["trace"] = {str(variant.key): dict(variant.trace) for variant in variants}
        printer.value(document("Expansion", value))
        return
    for variant in variants:
        printer.lines(_document(variant, inventory, trace=trace))
    for problem in problems:
        hint = [f"  hint: {terminal(problem.hint)}"] if problem.hint else []
        printer.lines([terminal(str(problem)), *hint], err=True)


def _document(variant: DesiredVariant, inventory: Inventory, *, trace: bool) -> Iterator[str]:
    yield "---"
    if trace:
        yield f"# {variant.source.location}"
        for field, origin in variant.trace.items():
            yield from (f"# spec.{field} <- {line}" for line in origin.splitlines())
    yield emit(to_manifest(variant, inventory))
