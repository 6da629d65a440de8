"""Read registries of OCI, and files of web servers: tags, manifests and blobs by digest, and tokens.

Ours, not the library oras: it has no timeouts, verifies no digest that it reads, follows the next page to any
host with the credential, and keeps one token for all repositories (docs/adr/0023).
"""

import base64
import hashlib
import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.redact import learn_token
from reconciler.base.text import plural
from reconciler.git.urls import Credential, is_local_host
from reconciler.http.client import (
    SENDABLE,
    SYSTEM_CLOCK,
    CachedReply,
    Client,
    Clock,
    Reply,
    ReplyCache,
    ReplyKind,
    Request,
    SilentError,
    StaticToken,
    TimeLimits,
    find_server,
    resolve,
    shown,
)
from reconciler.names.ids import is_prefix
from reconciler.policy import RegistryPolicy
from reconciler.sources.credentials import TOKEN_USER, Find

T = TypeVar("T")
_HUB = "registry-1.docker.io"
_WAITS, _FIRST_WAIT_S = 4, 2.0
_NAME = regex(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
_HOST = regex(r"(\[[0-9a-f:]+\]|[A-Za-z0-9.-]+)(:[0-9]+)?")
_DIGEST = regex(r"(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})")
_REFERENCE = regex(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}|{_DIGEST.pattern}")
_CHALLENGE = regex(r'\b(\w+)="([^"]*)"')
_MANIFEST_BYTES, _PAGE_BYTES = 4 << 20, 8 << 20
_NO_HEADERS: Mapping[str, str] = {}
_KINDS = ("oci.image.manifest.v1", "oci.image.index.v1", "docker.distribution.manifest.v2")
_LIST = "docker.distribution.manifest.list.v2"
_ACCEPT = {"Accept": ", ".join(f"application/vnd.{kind}+json" for kind in (*_KINDS, _LIST))}


class Blob(msgspec.Struct, frozen=True, rename="camel"):
    """A descriptor in a manifest: of a layer, a configuration or a further manifest."""

    digest: Annotated[str, msgspec.Meta(pattern=f"^{_DIGEST.pattern}$")]
    size: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
    media_type: str = ""
    annotations: dict[str, str] | None = None

    def annotation(self, name: str) -> str:
        """Return an annotation, "" without it."""
        return (self.annotations or {}).get(name, "")


class _Manifest(msgspec.Struct):
    """A manifest as registries send it; what is written in Go has null for an empty list."""

    config: Blob | None = None
    layers: tuple[Blob, ...] | None = None
    manifests: tuple[Blob, ...] | None = None


class _Tags(msgspec.Struct):
    tags: tuple[str, ...] | None = None


class _Token(msgspec.Struct):
    """The answer of a token service, which may call its token in one way or the other."""

    token: str | None = None
    access_token: str | None = None


class ImageManifest(NamedTuple):
    """A manifest as it was sent: what it names, and its own digest. An index has `manifests` only."""

    digest: str
    config: Blob | None = None
    layers: tuple[Blob, ...] = ()
    manifests: tuple[Blob, ...] = ()


class DigestError(RefusedError):
    """Content is another one than its digest."""


class _Endpoint(NamedTuple):
    """Where a name is read: the server's address, and the name there; `is_web` if it is no registry."""

    base: str
    name: str
    is_web: bool = False


def split_name(name: str) -> tuple[str, str]:
    """Return the host and the path of a package's name; without a host it is on Docker Hub.

    Raises:
        RefusedError: It is no name of a registry.
    """
    host, slash, path = name.partition("/")
    if not slash or not ({".", ":"} & {*host} or host == "localhost"):
        host, path = "docker.io", name if slash else f"library/{name}"
    if not _HOST.fullmatch(host) or not _NAME.fullmatch(path):
        raise RefusedError(f"{name} is no name in a registry", hint="Write HOST/NAME without tag and digest.")
    return host, path


class RegistryClient:
    """Reads registries and web servers; thread-safe. Everything that has a digest is verified.

    Whatever leads somewhere, a name, a link, a redirect or a challenge, is checked in one way:
    `spec.addresses` has to list it. Without that list it has to be https and not on this machine, unless a
    mirror names its server, or a person did (`named`).
    """

    def __init__(
        self,
        policy: RegistryPolicy,
        find: Find,
        replies: ReplyCache | None = None,
        *,
        addresses: tuple[str, ...] = (),
        named: tuple[str, ...] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._policy, self._replies, self._addresses = policy, replies, addresses
        self.find = find
        self._named = set()
        mirrors = {_based(mirror)[0] for mirror in policy.mirrors.values()}
        for address in (*mirrors, *named):
            with suppress(ValueError):
                # Only the settings allow what is not encrypted.
                if address in mirrors or find_server(address).is_private:
                    self._named.add(find_server(address))
        self._authorizations: dict[_Endpoint, _Authorization] = {}
        self._silent: dict[str, str] = {}
        times = TimeLimits(policy.silence_s, policy.answer_s, policy.wait_s, _WAITS, _FIRST_WAIT_S)
        self._http = Client(
            times, self.refusal, clock=clock, headers={"Accept-Encoding": "identity"}, replies=replies
        )

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return self._http.requests

    def tags(self, name: str) -> tuple[str, ...]:
        """Return the tags of a name, sorted. An unchanged page is asked for by its ETag.

        Raises:
            MissingError: The registry has no such name.
            UnavailableError: It does not answer, has more tags than the limit, or pages without an end.
        """
        tags: set[str] = set()
        path, begun = "tags/list?n=1000", time.monotonic()
        while path:
            reply = self._get(name, path, limit=_PAGE_BYTES, conditional=True)
            listed = {*(_decoded(reply.body, _Tags, f"The tags of {name}").tags or ())}
            self._http.keep(reply)
            path = f"tags/list?{query}" if (query := reply.next_query) else ""
            if path and listed <= tags:
                raise UnavailableError(f"The pages of the tags of {name} go in a circle")
            tags |= listed
            if path and len(tags) > self._policy.tags:
                message = f"{name} has more tags than registries.tags allows ({self._policy.tags})"
                hint = "Raise spec.registries.tags, or name versions in manifests alone."
                raise UnavailableError(message, hint=hint)
            if path and time.monotonic() - begun > self._policy.answer_s:
                message = f"The tags of {name} take longer than registries.answer allows"
                raise UnavailableError(message, hint="Raise spec.registries.answer.")
        return tuple(sorted(filter(_REFERENCE.fullmatch, tags)))

    def digest(self, name: str, tag: str) -> str:
        """Return the digest that a tag has now; without the manifest where the registry tells it."""
        reply = self._get(name, f"manifests/{tag}", method="HEAD", limit=0, headers=_ACCEPT)
        stated = reply.headers.get("docker-content-digest", "")
        return stated if _DIGEST.fullmatch(stated) else self.manifest(name, tag).digest

    def manifest(self, name: str, reference: str) -> ImageManifest:
        """Return the manifest of a tag or digest.

        Raises:
            MissingError: There is none.
            DigestError: It is another one than its digest.
        """
        if not _REFERENCE.fullmatch(reference):
            raise RefusedError(f"{reference} is neither a tag nor a digest")
        reply = self._get(name, f"manifests/{reference}", limit=_MANIFEST_BYTES, headers=_ACCEPT)
        stated = reference if ":" in reference else reply.headers.get("docker-content-digest", "")
        digest = stated if _DIGEST.fullmatch(stated) else f"sha256:{hashlib.sha256(reply.body).hexdigest()}"
        what = f"The manifest {name}:{reference}"
        _verify(reply.body, digest, what)
        value = _decoded(reply.body, _Manifest, what)
        return ImageManifest(digest, value.config, value.layers or (), value.manifests or ())

    def blob(self, name: str, blob: Blob) -> bytes:
        """Return a layer or a configuration, verified. One that the cache has is not asked for.

        Raises:
            RefusedError: It is larger than the limit.
            DigestError: It is another one than its digest.
        """
        if blob.size > self._policy.layer_bytes:
            most = self._policy.layer_bytes
            message = f"{name}: {blob.digest[:19]} has {plural(blob.size, 'byte')}, and the limit is {most}"
            raise RefusedError(message, hint="Raise spec.registries.layerBytes.")
        reply = self._get(name, f"blobs/{blob.digest}", limit=max(blob.size, 1))
        _verify(reply.body, blob.digest, f"The blob {blob.digest[:19]} of {name}")
        return reply.body

    def file(self, url: str) -> bytes:
        """Return a file of a web server; its directory is to the settings what a name in a registry is.

        Raises:
            MissingError: There is none.
            RefusedError: Its server may not be asked.
            UnavailableError: It is larger than the limit, or does not come.
        """
        try:
            scheme, _, rest = resolve("", url).partition("://")
        except ValueError as error:
            raise RefusedError(f"{shown(url)} cannot be asked: {error}") from error
        directory, _, file = rest.rpartition("/")
        host, _, path = directory.partition("/")
        endpoint = self._mirror(directory, _Endpoint(f"{scheme}://{host}", path, is_web=True))
        address = "/".join(part for part in (endpoint.base, endpoint.name, file) if part)
        return self._call(endpoint, directory, Request("GET", address, limit=self._policy.layer_bytes)).body

    def cached_blob(self, name: str, blob: Blob) -> bytes:
        """Return a blob, of the cache where it was read before."""
        key = f"blob {blob.digest}"
        cached = self._replies.find(key) if self._replies else None
        if cached is not None and _computed(cached.body, blob.digest) == blob.digest:
            return cached.body
        data = self.blob(name, blob)
        if self._replies:
            self._replies.store(key, CachedReply(blob.digest, "", data))
        return data

    # Addresses

    def refusal(self, source: str, target: str) -> str:
        """Tell why an address may not be asked to which another one leads, "" if it may.

        Raises:
            ValueError: It is no address.
        """
        server = find_server(target)
        if source and find_server(source) == server:
            return ""
        if self._addresses:
            is_listed = any(is_prefix(prefix, target) for prefix in self._addresses)
            return "" if is_listed else "is below no prefix of spec.addresses"
        if server in self._named:
            return ""
        if server.scheme != "https":
            return "is not encrypted"
        return "is on this machine, and no setting names it" if is_local_host(server.host) else ""

    def _mirror(self, name: str, endpoint: _Endpoint) -> _Endpoint:
        """Return where a name is read: at its mirror, else at its own place.

        Raises:
            RefusedError: That may not be asked.
        """
        prefixes = [p for p in self._policy.mirrors if name == p or name.startswith(f"{p.rstrip('/')}/")]
        if prefixes:
            prefix = max(prefixes, key=len)
            mirror = self._policy.mirrors[prefix].rstrip("/") + name.removeprefix(prefix.rstrip("/"))
            endpoint = _Endpoint(*_based(mirror), endpoint.is_web)
        address, host = f"{endpoint.base}/{endpoint.name}", endpoint.base.partition("://")[2]
        try:
            why = self.refusal("", address)
        except ValueError as error:
            raise RefusedError(f"{shown(address)} cannot be asked: {error}") from error
        if why:
            hint = f"Write https, or name it in spec.registries.mirrors: {{{host}: {endpoint.base}}}."
            if self._addresses:
                hint = "Add its prefix to spec.addresses of reconciler.yaml, if that is meant."
            raise RefusedError(f"{shown(address)} {why}", hint=hint)
        return endpoint

    # Requests

    def _get(
        self,
        name: str,
        path: str,
        *,
        limit: int,
        method: str = "GET",
        headers: Mapping[str, str] = _NO_HEADERS,
        conditional: bool = False,
    ) -> Reply:
        host, path_of_name = split_name(name)
        host = _HUB if host == "docker.io" else host
        endpoint = self._mirror(name, _Endpoint(f"https://{host}", path_of_name))
        url = f"{endpoint.base}/v2/{endpoint.name}/{path}"
        request = Request(method, url, headers=headers, limit=limit, conditional=conditional)
        return self._call(endpoint, name, request)

    def _call(self, endpoint: _Endpoint, name: str, request: Request) -> Reply:
        """Send a request with the authorization at its place, unless its server never answered yet."""
        if endpoint.base in self._silent:
            raise SilentError(self._silent[endpoint.base])
        authorization = self._authorizations.setdefault(endpoint, _Authorization(endpoint, self))
        host = endpoint.base.partition("://")[2]
        silent = "Check the address and the network."
        if endpoint.base.startswith("https://"):
            mirror = f"{{{host}: http://{host}}} in reconciler.yaml (`--config` of `package from-chart`)"
            silent = f"{silent} Without TLS: spec.registries.mirrors: {mirror}."
        hints = {
            **_hints(host),
            ReplyKind.MISSING: f"Check the name {name}, and whether the credential may see it.",
            ReplyKind.LOST: silent,
        }
        try:
            return self._http.call(request._replace(auth=authorization, hints=hints))
        except SilentError as error:
            if find_server(endpoint.base) not in self._http.answered:
                self._silent[endpoint.base] = str(error)
            raise

    def fetch_token(self, endpoint: _Endpoint, challenge: str, credential: Credential | None) -> str:
        """Return a token for a name of the service that its registry demands it from.

        Raises:
            UnavailableError: That service may not be asked, or issues none.
        """
        fields = dict(_CHALLENGE.findall(challenge))
        try:
            realm = resolve("", fields.get("realm", ""))
            why = self.refusal(endpoint.base, realm)
        except ValueError as error:
            realm, why = fields.get("realm", "")[:200], f"cannot be asked: {error}"
        hints = _hints(endpoint.base.partition("://")[2])
        if why:
            message = f"{endpoint.base} demands a token of {shown(realm)}, which {why}"
            raise UnavailableError(message, hint=hints[ReplyKind.MOVED])
        # Asked for is what is needed, whatever the registry says the scope is.
        asking = {"service": fields.get("service", ""), "scope": f"repository:{endpoint.name}:pull"}
        if credential is not None and not find_server(realm).is_private:
            credential = None
        if credential is not None and credential.username == TOKEN_USER:
            refresh = {"grant_type": "refresh_token", "refresh_token": credential.password}
            form = urlencode({**asking, **refresh, "client_id": "reconciler"}).encode()
            request = Request("POST", realm, form, "application/x-www-form-urlencoded")
        else:
            query = urlencode({k: v for k, v in asking.items() if v}, quote_via=quote, safe=":/")
            request = Request("GET", f"{realm}{'&' if '?' in realm else '?'}{query}", auth=_basic(credential))
        reply = self._http.call(request._replace(hints=hints))
        issued = _decoded(reply.body, _Token, f"The answer of the token service {shown(realm)}")
        token = issued.token or issued.access_token or ""
        if not re.fullmatch(SENDABLE, token):
            raise UnavailableError(f"The token service {shown(realm)} issues no token")
        return token


class _Authorization:
    """The authorization at one place, as its own challenges demand it; thread-safe.

    A password or a refresh token leaves only for a place by https or on this machine, and for the token
    service that such a place names. Web servers have no token service.
    """

    def __init__(self, endpoint: _Endpoint, client: RegistryClient) -> None:
        self._place, self._client = endpoint, client
        self._value = ""
        self._lock = threading.Lock()

    def value(self) -> str:
        """Return the header's value, empty for none."""
        return self._value

    def renew(self, refused: str, challenge: str) -> bool:
        """Get what the place demands; tell whether there is something new to send."""
        with self._lock:
            if self._value != refused:
                return True  # another thread did already
            is_private = find_server(self._place.base).is_private
            credential = self._client.find(f"{self._place.base}/{self._place.name}") if is_private else None
            scheme, _, fields = challenge.partition(" ")
            if scheme.lower() == "basic" and credential is not None:
                self._value = _basic(credential).value()
            elif scheme.lower() == "bearer" and not self._place.is_web:
                self._value = f"Bearer {self._client.fetch_token(self._place, fields, credential)}"
            learn_token(self._value.rpartition(" ")[2])
            return self._value != refused


def _basic(credential: Credential | None) -> StaticToken:
    if credential is None or credential.username == TOKEN_USER:
        return StaticToken("")
    pair = f"{credential.username or 'oauth2'}:{credential.password}"
    return StaticToken(base64.b64encode(pair.encode()).decode(), "Basic")


def _hints(host: str) -> dict[ReplyKind, str]:
    login = f"`docker login {host}` stores a credential, and spec.credentials may name one."
    both = "If that is meant, list the prefixes of both in spec.addresses of reconciler.yaml."
    return {ReplyKind.UNAUTHORIZED: login, ReplyKind.FORBIDDEN: login, ReplyKind.MOVED: both}


def _based(mirror: str) -> tuple[str, str]:
    scheme, _, rest = mirror.rpartition("://")
    host, _, path = rest.partition("/")
    return f"{scheme or 'https'}://{host}", path


def _decoded(data: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise UnavailableError(f"{what} cannot be read: {error}") from error


def _computed(data: bytes, digest: str) -> str:
    algorithm = digest.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def _verify(data: bytes, digest: str, what: str) -> None:
    if (computed := _computed(data, digest)) != digest:
        message = f"{what} should be {digest[:19]}, and is {computed[:19]}"
        raise DigestError(message, hint="Nothing of it was used. Ask who runs the registry or its mirror.")
