"""Charts in registries: the newest version in a range, and its archive with its digest."""

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from reconciler.base.errors import UnavailableError, UsageError
from reconciler.base.suggestions import close_names
from reconciler.dependencies.versions import Grammar, VersionError, parse_constraint, parse_strict, precedence
from reconciler.sources.registry import RegistryClient

OCI = "oci://"
_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


class FetchedChart(NamedTuple):
    """The archive of a chart, verified, and where it came from."""

    archive: bytes
    address: str


def fetch_chart(address: str, version: str, client: RegistryClient) -> FetchedChart:
    """Return the newest chart of a registry in a range of versions.

    Args:
        address: `oci://HOST/NAME`.
        version: A version or a range as Helm writes it; empty for the newest that is no prerelease.
        client: The registries.

    Raises:
        UsageError: The range is none.
        UnavailableError: The registry has no such version, or it is no chart.
    """
    name = address.removeprefix(OCI)
    # A tag has no `+`: Helm writes `_` for it.
    tags = {tag.replace("_", "+"): tag for tag in client.tags(name)}
    chosen = choose_version(tags, version)
    if not chosen:
        near = ", ".join(close_names(version, tags)) or ", ".join(sorted(tags)[-3:])
        raise UnavailableError(f"{address} has no version {version or 'at all'}", hint=f"It has {near}.")
    manifest = client.manifest(name, tags[chosen])
    layer = next((each for each in manifest.layers if each.media_type == _CONTENT), None)
    if layer is None:
        raise UnavailableError(
            f"{address}:{tags[chosen]} is no chart", hint="Its manifest has no layer of Helm."
        )
    return FetchedChart(client.blob(name, layer), f"{address}:{tags[chosen]}@{manifest.digest}")


def choose_version(versions: Iterable[str], constraint_text: str) -> str:
    """Return the newest of some versions that a range allows, "" if none does.

    Raises:
        UsageError: The range is none.
    """
    try:
        constraint = parse_constraint(constraint_text or "*", Grammar.MASTERMINDS)
    except VersionError as error:
        raise UsageError(f"--version {constraint_text}: {error}") from error
    parsed = []
    for text in versions:
        with suppress(VersionError):
            parsed.append((parse_strict(text.removeprefix("v")), text))
    fitting = [(precedence(version), text) for version, text in parsed if constraint.allows(version)]
    return max(fitting)[1] if fitting else ""
