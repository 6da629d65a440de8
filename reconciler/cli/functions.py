"""`functions`: list the functions that run here, and pin the images of the others."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click
from msgspec import Struct

from reconciler.base.errors import Exit, UnavailableError, UsageError
from reconciler.base.progress import track
from reconciler.cli.guesses import CommandGroup
from reconciler.cli.output import Printer, cache_dir_option, config_option, output_options
from reconciler.cli.package import policy_of_file, runtime_option
from reconciler.functions.catalog import CLAIMS, PSEUDO, UNSTUDIED, parse_image
from reconciler.functions.pipeline import declared_steps, find_engine
from reconciler.functions.runtimes.container import ContainerRuntime
from reconciler.functions.runtimes.pipelines import open_runtimes
from reconciler.functions.step import InvalidPipelineError, Unrunnable
from reconciler.git.working_copy import find_working_copy
from reconciler.krm.yaml import SetValue, apply_edits
from reconciler.policy import Engine, Policy
from reconciler.read.control import OpenControl, open_control
from reconciler.read.files import read_directory
from reconciler.read.forges import commit_signing
from reconciler.read.governance import read_options, read_policy
from reconciler.run.options import RunOptions, open_mirrors
from reconciler.run.plan import check_opened


@click.group(cls=CommandGroup)
def functions() -> None:
    r"""List the functions that run here, and pin the images of the others.

    \b
    Examples:
      reconciler functions list --config reconciler.yaml
      reconciler functions pull --config reconciler.yaml --package-dir blueprints/nginx --runtime podman
    """


@functions.command(name="list")
@config_option
@output_options(color=False)
def list_functions(config: Path | None, printer: Printer) -> int:
    r"""List the functions that run here: built in, mapped and pinned.

    \b
    Example:
      reconciler functions list
    """
    policy = policy_of_file(config).functions
    builtins = [
        # A later patch was not studied: it is not run, though a floating tag of its minor is.
        {"name": name, "from": _dotted(claim.low), "below": _dotted((*claim.newest[:2], claim.newest[2] + 1))}
        for name, claims in sorted(CLAIMS.items())
        for claim in claims
        if claim.profile != UNSTUDIED
    ]
    lines = [f"builtin  {b['name']:30} {b['from']} to below {b['below']}" for b in builtins]
    lines += [f"builtin  {name}" for name in sorted(PSEUDO)]
    lines += [f"exec     {name:30} {path}" for name, path in sorted(policy.exec.items())]
    engine = policy.runtime or "containers are off"
    lines += [f"pinned   {image} {digest} ({engine})" for image, digest in sorted(policy.images.items())]
    value = {"builtin": builtins, "pseudo": sorted(PSEUDO), "images": policy.images, "exec": policy.exec}
    printer.show(value, lines)
    return Exit.DONE


@functions.command()
@click.argument("images", nargs=-1)
@click.option(
    "--package-dir",
    "packages",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Take the images that the pipelines of this package name and that are not built in.",
)
@runtime_option
@click.option(
    "--control", help="Pin in the lock of this control repository: a working copy, a bare one, or a URL."
)
@cache_dir_option
@click.option("--offline", is_flag=True, help="Pin what is on this machine; pull nothing.")
@config_option
@output_options(color=False)
def pull(
    images: tuple[str, ...],
    packages: tuple[Path, ...],
    runtime: str | None,
    *,
    offline: bool,
    control: str | None,
    cache_dir: Path | None,
    config: Path | None,
    printer: Printer,
) -> int:
    r"""Pull images and pin the digests that their tags have now.

    With --config the pins are written to spec.functions.images of that file, to be reviewed and
    committed; nothing else in it changes. With --control they go into the lock: to the state branch,
    or where lock.mode is reviewed to locks/functions/images.json of the working copy, to be committed.
    Pins of the configuration take precedence over those of the lock.

    \b
    Exit codes: 0 done, 5 an image could not be pulled.

    \b
    Example:
      reconciler functions pull --config reconciler.yaml --package-dir blueprints/nginx --runtime podman
    """
    if control is not None and config is not None:
        raise UsageError("--control and --config are two places for the pins", hint="Name one of them.")
    lock = _open_lock(control, cache_dir) if control is not None else None
    policy = lock.policy.functions if lock is not None else policy_of_file(config).functions
    engine = runtime or policy.runtime
    if not engine:
        raise UsageError("No engine is named", hint="Pass --runtime, or set spec.functions.runtime.")
    names = sorted({_tagged(image) for image in images} | {i for p in packages for i in _named_by(p, policy)})
    if not names:
        raise UsageError("No image is named", hint="Name images, or a package that needs some.")
    container = ContainerRuntime(replace(policy, runtime=cast("Engine", engine)))
    pulled = track(names, "pulling images")
    results = {image: (container.digest(image) if offline else container.pull(image)) for image in pulled}
    pins = {image: digest for image, (digest, _) in results.items() if digest}
    if config is not None and pins:
        keys = ("spec", "functions", "images")
        edits = [SetValue((*keys, image), digest) for image, digest in pins.items()]
        config.write_bytes(apply_edits(config.read_bytes().decode(), edits).text.encode())
    if lock is not None and pins:
        lock.write(pins)
    value = {image: {"digest": digest, "error": error} for image, (digest, error) in results.items()}
    lines = (f"{image} {digest or f'failed: {error}'}" for image, (digest, error) in results.items())
    printer.show(value, lines)
    if len(pins) < len(names):
        failed = ", ".join(image for image in names if image not in pins)
        raise UnavailableError(f"Not pinned: {failed}", hint="Check the names and the registry.")
    return Exit.DONE


class _Lock(Struct, frozen=True):
    """The lock of a control repository, and its policy."""

    control: str
    opened: OpenControl
    policy: Policy

    def write(self, pins: dict[str, str]) -> None:
        """Put pins where the lock is: on the state branch, or into the working copy where it is reviewed."""
        from reconciler.workdir.control_files import pin_in_copy, pin_on_branch

        if self.policy.lock.is_reviewed:
            copy = find_working_copy(Path(self.control))
            if copy is None:
                hint = "Name a working copy, and commit what is written there."
                raise UsageError(f"{self.control} is no working copy, and its lock is reviewed", hint=hint)
            pin_in_copy(copy.root, pins)
            return
        if pin_on_branch(self.opened.mirror, self.policy, pins, self.opened.commit.time).exits:
            raise UnavailableError("The lock was not written", hint="Try again; nothing was changed.")


def _open_lock(control: str, cache_dir: Path | None) -> _Lock:
    mirrors = open_mirrors(RunOptions(control, cache_dir))
    opened = open_control(control, mirrors)
    policy = read_options(opened, os.environ).govern(read_policy(opened, os.environ))
    if not policy.lock.is_reviewed:  # the state branch is everybody's
        check_opened(opened)
    mirrors.sign_commits(commit_signing(policy.commits, os.environ))
    return _Lock(control, opened, policy)


def _tagged(text: str) -> str:
    image = parse_image(text)
    if image is None:
        raise UsageError(f"{text!r} is no image name", hint="Write it like ghcr.io/acme/set-labels:v1.")
    return image.tagged


def _named_by(directory: Path, policy: Any) -> set[str]:
    """Return the images of a package that nothing here runs, by name and tag."""
    images = set()
    with open_runtimes(replace(policy, images={})) as runtimes:
        try:
            steps = declared_steps(read_directory(directory))
        except InvalidPipelineError as error:
            raise UsageError(f"{directory}: {error}", hint="Correct its Kptfile.") from error
        for step in steps:
            image = parse_image(step.image, step.tag)
            if image is not None and isinstance(find_engine(step, runtimes, policy), Unrunnable):
                images.add(image.tagged)
    return images


def _dotted(version: tuple[int, int, int]) -> str:
    return "v" + ".".join(map(str, version))
