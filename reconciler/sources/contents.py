"""Pull of an image only what describes the package: a layer of Crossplane's, of imgpkg's, or bundle.json."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from reconciler.base.errors import RefusedError
from reconciler.base.wording import plural
from reconciler.sources.registry import RegistryClient

_BASE = ("io.crossplane.xpkg", "base")
_CONFIG = ("io.cnab.manifest.type", "config")
_REFERENCE = "vnd.docker.reference.type"
_PACKAGES = "packages/"
_SUFFIXES = (".yaml", ".yml", ".json")
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class PulledFiles(NamedTuple):
    """The files of one image that describe packages, by path, and the digest that its tag has."""

    digest: str
    files: tuple[tuple[str, bytes], ...]


def pull_xpkg(client: RegistryClient, name: str, tag: str, limit: int) -> PulledFiles:
    """Return the package.yaml of a Crossplane package: of the layer that is annotated as its base.

    Source: crossplane, internal/xpkg, the layer that is annotated io.crossplane.xpkg: base.

    Raises:
        RefusedError: It has no such layer, or no package.yaml there.
        UnavailableError: The registry does not answer.
    """
    top = client.manifest(name, tag)
    # Of several platforms each has the same package.yaml.
    platforms = [each for each in top.manifests if _REFERENCE not in each.annotations]
    manifest = client.manifest(name, platforms[0].digest) if platforms else top
    base = [each for each in manifest.layers if each.annotations.get(_BASE[0]) == _BASE[1]]
    if not base:
        message = (
            f"No layer of {name}:{tag} is annotated {_BASE[0]}: {_BASE[1]}, so it is no package of Crossplane"
        )
        raise RefusedError(message, hint="Build it with `crossplane xpkg build`.")
    for path, data in unpack(client.blob(name, base[0]), limit, f"{name}:{tag}"):
        if path == "package.yaml":
            return PulledFiles(top.digest, ((path, data),))
    raise RefusedError(f"The base layer of {name}:{tag} has no package.yaml")


def pull_bundle(client: RegistryClient, name: str, tag: str) -> PulledFiles:
    """Return the bundle.json of a bundle of Porter: the configuration of the manifest that an index names.

    Source: CNAB, cnab-to-oci: the manifest annotated io.cnab.manifest.type: config.

    Raises:
        RefusedError: It is no bundle.
        UnavailableError: The registry does not answer.
    """
    top = client.manifest(name, tag)
    named = next((m for m in top.manifests if m.annotations.get(_CONFIG[0]) == _CONFIG[1]), None)
    config = client.manifest(name, named.digest).config if named is not None else None
    if config is None:
        message = (
            f"{name}:{tag} has no manifest that is annotated {_CONFIG[0]}: {_CONFIG[1]}, so it is no bundle"
        )
        raise RefusedError(message, hint="Publish it with `porter publish`.")
    return PulledFiles(top.digest, (("bundle.json", client.blob(name, config)),))


def pull_packages(client: RegistryClient, name: str, reference: str, limit: int) -> PulledFiles:
    """Return the files below packages/ of a repository of Carvel packages, an image or a bundle of imgpkg.

    Its layers hold nothing else, and are read from the cache where they did not change.

    Raises:
        RefusedError: A layer is larger than the limit, or is no archive.
        UnavailableError: The registry does not answer.
    """
    manifest = client.manifest(name, reference)
    files: dict[str, bytes] = {}
    for layer in manifest.layers:
        unpacked = unpack(client.cached_blob(name, layer), limit, f"{name}:{reference}")
        files |= {p: data for p, data in unpacked if p.startswith(_PACKAGES) and p.endswith(_SUFFIXES)}
    return PulledFiles(manifest.digest, tuple(sorted(files.items())))


def unpack(data: bytes, limit: int, what: str) -> Iterator[tuple[str, bytes]]:
    """Yield the plain files of a layer, in their order; nothing is written to disk.

    Raises:
        RefusedError: It is no archive that is understood, or larger than the limit when it is unpacked.
    """
    if data.startswith(_ZSTD):
        raise RefusedError(f"A layer of {what} is packed with zstd", hint="Push it with gzip.")
    try:
        plain = _inflate(data, limit, what) if data.startswith(_GZIP) else data
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() else None
                if file is not None:
                    yield member.name.removeprefix("./"), file.read()
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise RefusedError(f"A layer of {what} is no whole archive: {error}") from error


def _inflate(data: bytes, limit: int, what: str) -> bytes:
    with gzip.open(io.BytesIO(data)) as file:
        plain = file.read(limit + 1)
    if len(plain) > limit:
        hint = "Raise spec.registries.unpackedBytes."
        raise RefusedError(
            f"A layer of {what} is larger than {plural(limit, 'byte')} when it is unpacked", hint=hint
        )
    return plain
