"""Choose among several installs of one instance: one counts, the others are problems."""

from collections.abc import Container

from msgspec.structs import replace

from reconciler.base.errors import Problem
from reconciler.base.reasons import Reason
from reconciler.dependencies.model.cluster import ClusterInputs, Instance
from reconciler.dependencies.model.packages import Install


def without_duplicates(
    inputs: ClusterInputs, running: Container[str] = ()
) -> tuple[ClusterInputs, tuple[Problem, ...]]:
    """Return the inputs with one install of each instance, and a problem for each other one. Order-free.

    The install that runs already stays, else the one with the lowest namespace and name.

    Args:
        inputs: The inputs of the cluster.
        running: The objects that are in the cluster: `Provider/aws`.
    """
    kept: dict[Instance, Install] = {}
    external: list[Install] = []
    problems: list[Problem] = []
    for install in sorted(
        inputs.installs, key=lambda i: (not _runs(i, running), i.namespace, i.name, i.kind, i.location)
    ):
        instance = inputs.instance_of(install)
        if install.external:
            external.append(install)
        elif kept.setdefault(instance, install) is not install:
            problems.append(_duplicate(instance, kept[instance], install, running))
    installs = (*sorted(kept.values(), key=lambda i: (i.namespace, i.name, i.kind, i.location)), *external)
    return replace(inputs, installs=installs), tuple(problems)


def _runs(install: Install, running: Container[str]) -> bool:
    return f"{install.kind}/{install.name}" in running


def _duplicate(instance: Instance, first: Install, second: Install, running: Container[str]) -> Problem:
    name = instance.package.name
    why = f"only one may; {first.name} runs already" if _runs(first, running) else "only one may"
    return Problem(
        second.location,
        Reason.DUPLICATE_PACKAGE,
        f"{second} and {first} ({first.location}) both install {name}, and {why}",
        hint="Remove one of the two manifests",
        subject=str(second),
    )
