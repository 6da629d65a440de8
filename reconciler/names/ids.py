"""Identities: names of objects, packages and repositories, and their normal forms."""

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, NewType

from reconciler.base.lazy import regex

Oid = NewType("Oid", str)
"""A Git object id: 40 lower-case hexadecimal digits, never abbreviated."""


class Lifecycle(StrEnum):
    """Lifecycle of a package revision, as Porch spells it."""

    DRAFT = "Draft"
    PROPOSED = "Proposed"
    PUBLISHED = "Published"
    DELETION_PROPOSED = "DeletionProposed"


class ObjectName(NamedTuple):
    """A namespaced name, the identity of one object of a known kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class RolloutKey(NamedTuple):
    """Identity of a rollout: its set, and the package that travels where the set has several upstreams."""

    namespace: str
    name: str
    upstream: str = ""

    def __str__(self) -> str:
        return "/".join(self.words)

    @property
    def words(self) -> tuple[str, ...]:
        """Its parts, without an upstream where the set has one alone."""
        return (self.namespace, self.name, self.upstream) if self.upstream else self.owner

    @property
    def owner(self) -> ObjectName:
        """Its set."""
        return ObjectName(self.namespace, self.name)


class GroupKind(NamedTuple):
    """A kind regardless of version; the core group is the empty string."""

    group: str
    kind: str

    @property
    def plural(self) -> str:
        """The resource name that a kind usually has.

        Source: apimachinery pkg/api/meta restmapper.go, UnsafeGuessKindToResource.
        """
        word = self.kind.lower()
        if word == "endpoints" or not word:
            return word
        if word[-1] == "y" and word[-2:-1] not in "aeiou":
            return f"{word[:-1]}ies"
        return f"{word}es" if word[-1] == "s" else f"{word}s"

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


KNOWN_VERSIONS: Mapping[GroupKind, tuple[str, ...]] = {
    GroupKind(group, kind): tuple(f"{group}/{name}".lstrip("/") for name in versions.split())
    for group, kinds, versions in (
        ("", "Namespace", "v1"),
        ("apiextensions.k8s.io", "CustomResourceDefinition", "v1 v1beta1"),
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding MutatingAdmissionPolicy",
            "v1 v1beta1 v1alpha1",
        ),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration MutatingWebhookConfiguration",
            "v1 v1beta1",
        ),
        ("config.porch.kpt.dev", "Repository", "v1alpha1"),
        ("data.packaging.carvel.dev", "Package", "v1alpha1"),
        ("packaging.carvel.dev", "PackageInstall", "v1alpha1"),
        (
            "pkg.crossplane.io",
            "Provider Configuration Function ProviderRevision ConfigurationRevision FunctionRevision Lock",
            "v1 v1beta1 v1alpha1",
        ),
        ("packages.crossplane.io", "Package PackageLock", "v1beta1 v1alpha1"),
        ("getporter.org", "Installation", "v1"),
        ("apps", "DaemonSet Deployment StatefulSet", "v1 v1beta2 v1beta1"),
        ("argoproj.io", "Application", "v1alpha1"),
        ("helm.toolkit.fluxcd.io", "HelmRelease", "v2 v2beta2 v2beta1"),
        ("kustomize.toolkit.fluxcd.io", "Kustomization", "v1 v1beta2 v1beta1"),
    )
    for kind in kinds.split()
}
"""The versions of kinds that rules and checks read, the first one being what an unknown one is read as."""


class ObjectKey(NamedTuple):
    """Identity of one object of any kind; cluster-scoped ones have an empty namespace."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{GroupKind(self.group, self.kind)} {where}"

    @property
    def object_name(self) -> ObjectName:
        """Its namespace and name."""
        return ObjectName(self.namespace, self.name)

    @property
    def subject(self) -> str:
        """The object as the subject of problems: kind, namespace and name."""
        return f"{self.kind} {self.object_name}"


class NamedObject(NamedTuple):
    """An object by kind and name, as texts and records name it: `KIND NAMESPACE/NAME`."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @classmethod
    def parse(cls, text: str) -> "NamedObject | None":
        """Return the object that a record names, None for an empty text; the inverse of `str`."""
        kind, _, name = text.partition(" ")
        namespace, _, short = name.rpartition("/")
        return cls(kind, namespace, short) if text else None


class PackageKey(NamedTuple):
    """Identity of a package: the repository's normalised URL and the full path in it.

    Two Repository objects may view one place (D19), so neither is part of the identity.
    """

    url: str
    path: str

    def __str__(self) -> str:
        return f"{self.url}//{self.path}"


def ask_key(package: PackageKey, tree: Oid | None) -> str:
    """Return the key of exactly this content of a package, which a person may reject (D14)."""
    return hashlib.sha256("\0".join((*package, tree or "")).encode()).hexdigest()[:16]


def group_of(api_version: str) -> str:
    """Return the API group of an apiVersion; the core group is the empty string."""
    group, slash, _ = api_version.rpartition("/")
    return group if slash else ""


_SCHEME = regex(r"^([a-zA-Z][a-zA-Z0-9+.-]*)://(.*)$", re.DOTALL)
_SCP = regex(r"^(?:[^/@:]+@)?([^/:@]{2,}):(?!//|[0-9]+/)(.*)$", re.DOTALL)
_HTTP_USER = regex(r"^(https?://)[^/@]*@", re.IGNORECASE)
DEFAULT_PORTS = {"http": "80", "https": "443", "ssh": "22", "git": "9418"}


@lru_cache(maxsize=4096)
def normalise_url(url: str) -> str:
    """Return what identifies a repository, however its URL is written: `host/path`, or a local path.

    Scheme, credentials, the default port, case of the host, a final `.git` and slashes do not
    distinguish repositories. Idempotent. The result is an identity; git is called with the remote.
    """
    text = url.strip()
    scheme, rest = "", text
    if match := _SCHEME.match(text):
        scheme, rest = match.group(1).lower(), match.group(2)
        if scheme == "file":
            return _trim("/" + rest.partition("/")[2])
    elif match := _SCP.match(text):
        scheme, rest = "ssh", f"{match.group(1)}/{match.group(2).lstrip('/')}"
    else:
        return _trim(text)
    authority, _, path = rest.partition("/")
    host, _, port = authority.rpartition("@")[2].lower().partition(":")
    keep = f":{port}" if port and port != DEFAULT_PORTS.get(scheme) else ""
    return _trim(f"{host}{keep}/{path}")


def is_prefix(prefix: str, remote: str) -> bool:
    """Tell whether an address is a prefix or below it; a prefix with a scheme is for that scheme alone."""
    scheme, separator, _ = prefix.partition("://")
    if separator and scheme.lower() != _scheme(remote):
        return False
    short, url = normalise_url(prefix).rstrip("/"), normalise_url(remote)
    return not short or url == short or url.startswith(f"{short}/")


def _scheme(remote: str) -> str:
    """Return how a remote is reached; `user@host:path` is short for ssh, a path is reached by none."""
    scheme, separator, _ = remote.partition("://")
    if separator:
        return scheme.lower()
    return "ssh" if ":" in remote.partition("/")[0] else ""


def shareable_address(registered: str, remote: str) -> str:
    """Return the address of a repository for shared files: absolute, unless beside them on this machine.

    `registered` is the address of its registration, `remote` the one that git is called with. Where a
    relative registration is a directory of this machine it stays relative: the path of a clone
    is no input, and the same inputs give the same bytes everywhere. Never with a password.
    """
    if _is_remote(registered) or registered.startswith(("/", "file:")) or not _is_remote(remote):
        return registered or remote
    return _HTTP_USER.sub(r"\1", remote)


def recorded_address(registered: str, remote: str) -> str:
    """Return the address of a repository for records: as it was registered, never with a user or password.

    The user of an ssh address is no secret, and stays.
    """
    return remote if _is_remote(registered) else shareable_address(registered, remote)


def _is_remote(address: str) -> bool:
    match = _SCHEME.match(address)
    return match.group(1).lower() != "file" if match else _SCP.match(address) is not None


def _trim(path: str) -> str:
    squeezed = re.sub(r"/{2,}", "/", path)
    while (shorter := squeezed.rstrip("/").removesuffix(".git")) != squeezed:
        squeezed = shorter
    return squeezed
