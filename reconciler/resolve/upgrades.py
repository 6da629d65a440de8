"""The names that a run upgrades: packages that clusters need, or may need."""

from collections.abc import Iterable

from reconciler.base.errors import UsageError
from reconciler.base.suggestions import suggest
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.expand import DesiredVariant

_OTHERWISE = "Names are those that `reconciler lock` and `reconciler index list` print."


def check_upgrades(upgrade: Iterable[str], clusters: FleetInputs, variants: Iterable[DesiredVariant]) -> None:
    """Refuse to upgrade what is no package that a cluster could have.

    Args:
        upgrade: Names of packages, with or without ecosystem. Variants that follow their upstream are none
            of them any more.
        clusters: Everything that clusters need, and can have.
        variants: The variants that the manifests declare.

    Raises:
        UsageError: A name is no package's.
    """
    catalogues = {id(world.catalogue): world.catalogue for world in clusters.worlds}.values()
    packages = {id_ for catalogue in catalogues for id_ in (*catalogue.packages, *catalogue.names)}
    names = {name for id_ in packages for name in (id_.name, str(id_))}
    by_name = {name: variant for variant in variants for name in (variant.key.name, str(variant.key))}
    for name in sorted(upgrade):
        if name in names:
            continue
        if (variant := by_name.get(name)) is not None:
            hint = "Write another revision there: only packages that clusters need are upgraded by name."
            message = f"PackageVariant {variant.key} has the upstream revision that its manifest names"
            raise UsageError(message, hint=hint)
        hint = suggest(name, names | by_name.keys(), otherwise=_OTHERWISE)
        raise UsageError(f"No package or PackageVariant is called {name}", hint=hint)
