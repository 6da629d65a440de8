"""Read registries of OCI: tags, manifests and blobs by digest, with tokens, pages, limits and retries.

Ours, not the library oras: it has no timeouts, verifies no digest that it reads, follows the next page to any
host with the credential, and keeps one token for all repositories (docs/adr/0023).
"""

import base64
import hashlib
import re
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

import httpx
import orjson

from reconciler import __version__
from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.base.redact import learn_token, mask_tokens
from reconciler.base.wording import plural
from reconciler.forge.api.budget import SYSTEM_CLOCK, Clock
from reconciler.forge.api.errors import ForbiddenError, LimitedError, MissingError, UnauthorizedError
from reconciler.forge.api.reply_cache import CachedReply, ReplyCache
from reconciler.git.urls import Credential, is_loopback, without_user
from reconciler.names.ids import is_prefix
from reconciler.policy.registries import RegistryPolicy
from reconciler.sources.credentials import TOKEN_USER, Find

_ATTEMPTS, _HOPS = 4, 3
_HUB = "registry-1.docker.io"
_OK, _NOT_MODIFIED, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY = 200, 304, 401, 403, 404, 429
_MOVED = frozenset({301, 302, 303, 307, 308})
_BUSY = frozenset({408, 425, 500, 502, 503, 504})
_NAME = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
_HOST = re.compile(r"(\[[0-9a-f:]+\]|[A-Za-z0-9.-]+)(:[0-9]+)?")
_DIGEST = re.compile(r"(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})")
_REFERENCE = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}|{_DIGEST.pattern}")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_NEXT = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?')
_MANIFEST_BYTES, _PAGE_BYTES = 4 << 20, 32 << 20
_NO_HEADERS: Mapping[str, str] = {}
_KINDS = ("oci.image.manifest.v1", "oci.image.index.v1", "docker.distribution.manifest.v2")
_LIST = "docker.distribution.manifest.list.v2"
_ACCEPT = {"Accept": ", ".join(f"application/vnd.{kind}+json" for kind in (*_KINDS, _LIST))}


class Blob(NamedTuple):
    """A descriptor in a manifest: of a layer, a configuration or a further manifest."""

    digest: str
    size: int
    media_type: str = ""
    annotations: Mapping[str, str] = {}


class ImageManifest(NamedTuple):
    """A manifest as it was sent: what it names, and its own digest. An index has `manifests` only."""

    digest: str
    config: Blob | None = None
    layers: tuple[Blob, ...] = ()
    manifests: tuple[Blob, ...] = ()
    annotations: Mapping[str, str] = {}


class DigestError(RefusedError):
    """Content is another one than its digest."""


class _Place(NamedTuple):
    """Where a name is read: the registry's address, and the name there."""

    base: str
    name: str


class _Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


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
    """Reads registries; thread-safe. `requests` counts what was sent.

    A credential goes to its registry and to the token service that the registry names, over https or on this
    machine, and never follows a redirect to another host. Everything that has a digest is verified.
    """

    def __init__(
        self,
        policy: RegistryPolicy,
        find: Find,
        replies: ReplyCache | None = None,
        *,
        addresses: tuple[str, ...] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.requests = 0
        self._policy, self._find, self._replies, self._clock = policy, find, replies, clock
        self._addresses = addresses
        self._tokens: dict[_Place, str] = {}
        self._not_before: dict[str, float] = {}
        self._lock, self._authorizing = threading.Lock(), threading.Lock()
        self._client = httpx.Client(
            headers={"User-Agent": f"reconciler/{__version__}", "Accept-Encoding": "identity"},
            timeout=policy.silence_s,
            follow_redirects=False,
        )
        weakref.finalize(self, self._client.close)

    def tags(self, name: str) -> tuple[str, ...]:
        """Return the tags of a name, sorted. An unchanged page is asked for by its ETag.

        Raises:
            MissingError: The registry has no such name.
            UnavailableError: It does not answer, or has more tags than the limit.
        """
        tags: set[str] = set()
        path: str | None = "tags/list?n=1000"
        seen = set[str]()
        while path is not None:
            if path in seen or len(tags) > self._policy.tags:
                message = f"{name} has more tags than registries.tags allows ({self._policy.tags})"
                raise UnavailableError(
                    message if path not in seen else f"The pages of the tags of {name} go in a circle",
                    hint="Raise spec.registries.tags, or name versions in manifests alone.",
                )
            seen.add(path)
            reply = self._page(name, path)
            listed = _mapping(reply.body, f"the tags of {name}").get("tags") or []
            tags |= {tag for tag in listed if isinstance(tag, str) and _REFERENCE.fullmatch(tag)}
            # Only the query of the link counts: the next page is of the same list.
            following = _NEXT.search(reply.headers.get("link", ""))
            path = f"tags/list?{urlsplit(following[1]).query}" if following else None
        return tuple(sorted(tags))

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
        _verify(reply.body, digest, f"the manifest {name}:{reference}")
        value = _mapping(reply.body, f"the manifest {name}:{reference}")
        listed = {
            key: tuple(filter(None, map(_blob, value[key] if isinstance(value.get(key), list) else ())))
            for key in ("layers", "manifests")
        }
        config = _blob(value.get("config"))
        return ImageManifest(
            digest, config, listed["layers"], listed["manifests"], _texts(value.get("annotations"))
        )

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
        reply = self._get(name, f"blobs/{blob.digest}", limit=max(blob.size, 1) + 1)
        _verify(reply.body, blob.digest, f"the blob {blob.digest[:19]} of {name}")
        return reply.body

    def file(self, url: str) -> bytes:
        """Return a file of a web server; its directory is to the settings what a name in a registry is.

        Raises:
            MissingError: There is none.
            RefusedError: It is larger than the limit, or would come without encryption.
        """
        scheme, _, rest = url.partition("://")
        directory, _, file = rest.rpartition("/")
        host, _, path = directory.partition("/")
        place = self._mirror(directory, _Place(f"{scheme}://{host}", path))
        if place.base == f"{scheme}://{host}" and not _is_safe(url, url):
            hint = f"Write https, or allow it with spec.registries.mirrors: {{{host}: http://{host}}}."
            raise RefusedError(f"{_shown(url)} is not encrypted", hint=hint)
        url = "/".join(part for part in (*place, file) if part)
        return self._request(place, directory, url, limit=self._policy.layer_bytes).body

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

    # Requests

    def _page(self, name: str, path: str) -> _Reply:
        """Return a page of tags; the cache has the one that did not change."""
        place = self._place(name)
        url = f"{place.base}/v2/{place.name}/{path}"
        cached = self._replies.find(url) if self._replies else None
        headers = {"If-None-Match": cached.etag} if cached else {}
        reply = self._get(name, path, limit=_PAGE_BYTES, headers=headers)
        if reply.status == _NOT_MODIFIED and cached is not None:
            return _Reply(_OK, {"link": cached.link}, cached.body)
        if self._replies and (etag := reply.headers.get("etag", "")):
            self._replies.store(url, CachedReply(etag, reply.headers.get("link", ""), reply.body))
        return reply

    def _place(self, name: str) -> _Place:
        host, path = split_name(name)
        return self._mirror(name, _Place(f"https://{_HUB if host == 'docker.io' else host}", path))

    def _mirror(self, name: str, place: _Place) -> _Place:
        """Return where a name is read: at its mirror, else at its own place.

        Raises:
            RefusedError: spec.addresses does not list that address.
        """
        prefixes = [p for p in self._policy.mirrors if name == p or name.startswith(f"{p.rstrip('/')}/")]
        if prefixes:
            prefix = max(prefixes, key=len)
            mirror = self._policy.mirrors[prefix].rstrip("/") + name.removeprefix(prefix.rstrip("/"))
            scheme, _, rest = mirror.rpartition("://")
            host, _, path = rest.partition("/")
            place = _Place(f"{scheme or 'https'}://{host}", path)
        if self._addresses and not any(is_prefix(p, f"{place.base}/{place.name}") for p in self._addresses):
            hint = "Add its prefix to spec.addresses of reconciler.yaml, if that is meant."
            raise RefusedError(f"{place.base}/{place.name} is below no prefix of spec.addresses", hint=hint)
        return place

    def _get(
        self,
        name: str,
        path: str,
        *,
        limit: int,
        method: str = "GET",
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> _Reply:
        place = self._place(name)
        url = f"{place.base}/v2/{place.name}/{path}"
        return self._request(place, name, url, limit=limit, method=method, headers=headers)

    def _request(
        self,
        place: _Place,
        name: str,
        url: str,
        *,
        limit: int,
        method: str = "GET",
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> _Reply:
        renewed = failures = waits = 0
        while True:
            token = self._tokens.get(place, "")
            sent = {**headers, **({"Authorization": token} if token else {})}
            self._wait_turn(place.base, url)
            try:
                reply = self._follow(method, url, sent, limit)
            except (httpx.HTTPError, httpx.StreamError) as error:
                reply = _Reply(0, {}, f"{type(error).__name__} {error}".strip().encode())
            self._keep_within(place.base, reply.headers)
            if reply.status in (_OK, _NOT_MODIFIED):
                return reply
            waiting = reply.headers.get("retry-after", "")
            if reply.status == _UNAUTHORIZED and renewed < 2:  # noqa: PLR2004 - none yet, then one that ended
                renewed += 1
                with self._authorizing:
                    renews = self._tokens.get(place, "") != token  # another thread did already
                    if renews or self._authorize(
                        place, name, reply.headers.get("www-authenticate", ""), token
                    ):
                        continue
            elif reply.status == _TOO_MANY or (reply.status in _BUSY and waiting):
                waits += 1
                self._hold(place.base, waiting, waits, url)
                continue
            elif (not reply.status or reply.status in _BUSY) and failures < _ATTEMPTS - 1:
                self._clock.sleep(float(2**failures))
                failures += 1
                continue
            raise _error(name, url, reply, is_known=bool(token))

    def _follow(self, method: str, url: str, headers: Mapping[str, str], limit: int) -> _Reply:
        """Send a request, and follow it elsewhere: without the credential on another host."""
        for _ in range(_HOPS + 1):
            reply = self._send(method, url, headers, limit)
            target = reply.headers.get("location", "")
            if reply.status not in _MOVED or not target:
                return reply
            following = urljoin(url, target)
            if not _is_safe(following, url):
                raise UnavailableError(f"{_shown(url)} leads to {_shown(following)}, which is not encrypted")
            if urlsplit(following)[:2] != urlsplit(url)[:2]:
                headers = {key: value for key, value in headers.items() if key != "Authorization"}
            url = following
        raise UnavailableError(f"{_shown(url)} leads from one address to the next without an end")

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        limit: int,
        data: Mapping[str, str] | None = None,
    ) -> _Reply:
        with self._lock:
            self.requests += 1
        until, body = time.monotonic() + self._policy.answer_s, bytearray()
        with self._client.stream(method, url, headers=dict(headers), data=data) as reply:
            # A refusal may say more than what was asked for is allowed to.
            most = limit if reply.status_code == _OK else 1 << 16
            for chunk in reply.iter_bytes():
                body += chunk
                if len(body) > most:
                    break
                # httpx limits the time between two chunks only: one that trickles would hold us for ever.
                if time.monotonic() > until:
                    raise httpx.ReadTimeout(f"no whole answer in {self._policy.answer_s} s")
        if len(body) > most and reply.status_code == _OK and method != "HEAD":
            raise RefusedError(f"{_shown(url)} sends more than the {plural(limit, 'byte')} that it may")
        return _Reply(reply.status_code, {k.lower(): v for k, v in reply.headers.items()}, bytes(body))

    def _authorize(self, place: _Place, name: str, challenge: str, refused: str) -> bool:
        """Get what the registry asks for; tell whether there is something new to send."""
        scheme, _, rest = challenge.partition(" ")
        fields = dict(_CHALLENGE.findall(rest))
        credential = self._find(f"{place.base}/{place.name}")
        basic = ""
        if credential is not None and credential.username != TOKEN_USER:
            pair = f"{credential.username or 'oauth2'}:{credential.password}"
            basic = f"Basic {base64.b64encode(pair.encode()).decode()}"
        value = ""
        if scheme.lower() == "basic" and _is_safe(place.base, place.base):
            value = basic
        elif scheme.lower() == "bearer" and _is_safe(fields.get("realm", ""), place.base):
            value = f"Bearer {self._token(place, fields, credential, basic)}"
        elif scheme.lower() == "bearer":
            raise UnavailableError(
                f"{name}: the token service {_shown(fields.get('realm', ''))} is not https"
            )
        if not value or value == refused:
            return False
        learn_token(value.rpartition(" ")[2])
        self._tokens[place] = value
        return True

    def _token(
        self, place: _Place, fields: Mapping[str, str], credential: Credential | None, basic: str
    ) -> str:
        asking = {"service": fields.get("service", ""), "scope": f"repository:{place.name}:pull"}
        realm, headers = fields["realm"], {"Authorization": basic} if basic else {}
        try:
            if credential is not None and credential.username == TOKEN_USER:
                refresh = {"grant_type": "refresh_token", "refresh_token": credential.password}
                form = {**asking, **refresh, "client_id": "reconciler"}
                reply = self._send("POST", realm, {}, 1 << 20, form)
            else:
                query = "&".join(f"{key}={quote(value, safe=':/')}" for key, value in asking.items() if value)
                separator = "&" if "?" in realm else "?"
                reply = self._send("GET", f"{realm}{separator}{query}", headers, 1 << 20)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise UnavailableError(f"The token service {_shown(realm)} does not answer: {error}") from error
        if reply.status != _OK:
            raise _error(place.name, realm, reply, is_known=bool(credential))
        value = _mapping(reply.body, f"the answer of the token service {_shown(realm)}")
        return str(value.get("token") or value.get("access_token") or "")

    def _wait_turn(self, base: str, url: str) -> None:
        wait = self._not_before.get(base, 0.0) - self._clock.now()
        if wait > self._policy.wait_s:
            raise LimitedError(f"The registry limits requests: {_shown(url)}", wait_s=wait)
        if wait > 0:
            self._clock.sleep(wait)

    def _keep_within(self, base: str, headers: Mapping[str, str]) -> None:
        """Delay the next request until the next window, if the registry has none left in this one.

        Source: Docker Hub (`RateLimit-Remaining: 0;w=21600`), GitLab (RateLimit-Reset, a time), and the
        draft of the IETF (RateLimit-Reset, seconds).
        """
        left, _, window = headers.get("ratelimit-remaining", "").partition(";")
        reset = headers.get("ratelimit-reset", "") or window.strip().removeprefix("w=")
        if left.strip() == "0" and reset.isdecimal():
            now = self._clock.now()
            until = float(reset) if float(reset) > now / 2 else now + float(reset)
            with self._lock:
                self._not_before[base] = max(self._not_before.get(base, 0.0), until)

    def _hold(self, base: str, text: str, waits: int, url: str) -> None:
        """Let every thread wait as long as the registry demands, within the limit."""
        wait = float(2**waits)
        if text.isdecimal():
            wait = float(text)
        elif text:
            with suppress(ValueError):
                wait = parsedate_to_datetime(text).timestamp() - self._clock.now()
        if waits > _ATTEMPTS or wait > self._policy.wait_s:
            raise LimitedError(f"The registry limits requests: {_shown(url)}", wait_s=max(wait, 1.0))
        with self._lock:
            self._not_before[base] = max(self._not_before.get(base, 0.0), self._clock.now() + wait)


def _error(name: str, url: str, reply: _Reply, *, is_known: bool) -> UnavailableError:
    """Return the error of a refusal, in the registry's own words."""
    try:
        (first, *_) = orjson.loads(reply.body)["errors"]
        words = str(first.get("message") or first.get("code") or "")
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        words = "" if reply.status else reply.body.decode(errors="replace")
    answer = f"{reply.status or 'no answer'} {mask_tokens(words)[:200]}".strip()
    message, host = f"{_shown(url)}: {answer}", urlsplit(url).netloc
    hint = f"`docker login {host}` stores a credential, and spec.credentials may name one."
    if not reply.status:
        mirror = f"{{{host}: http://{host}}} in reconciler.yaml (`--config` of `package from-chart`)"
        hint = f"Check the address and the network. Without TLS: spec.registries.mirrors: {mirror}."
    if reply.status == _NOT_FOUND:
        return MissingError(message, hint=f"Check the name {name}, and whether the credential may see it.")
    if reply.status == _UNAUTHORIZED:
        return UnauthorizedError(message, hint=hint if not is_known else f"Renew the credential: {hint}")
    return (ForbiddenError if reply.status == _FORBIDDEN else UnavailableError)(message, hint=hint)


def _blob(value: Any) -> Blob | None:
    """Return a descriptor; None of what is none."""
    if not isinstance(value, Mapping) or not _DIGEST.fullmatch(str(value.get("digest"))):
        return None
    size = value.get("size")
    annotations, media = _texts(value.get("annotations")), str(value.get("mediaType") or "")
    return Blob(value["digest"], size if isinstance(size, int) and size >= 0 else 0, media, annotations)


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, Mapping) else {}


def _mapping(data: bytes, what: str) -> Mapping[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UnavailableError(f"{what[0].upper()}{what[1:]} are no JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise UnavailableError(f"{what[0].upper()}{what[1:]} are no mapping")
    return value


def _computed(data: bytes, digest: str) -> str:
    algorithm = digest.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def _verify(data: bytes, digest: str, what: str) -> None:
    if (computed := _computed(data, digest)) != digest:
        message = f"{what[0].upper()}{what[1:]} should be {digest[:19]}, and is {computed[:19]}"
        raise DigestError(message, hint="Nothing of it was used. Ask who runs the registry or its mirror.")


def _is_safe(url: str, origin: str) -> bool:
    """Tell whether an address may be asked: https, or this machine by a registry that is there too."""
    return url.startswith("https://") or (is_loopback(url) and is_loopback(origin))


def _shown(url: str) -> str:
    """Return an address without its user, and without its query, which may be signed."""
    return without_user(url.partition("?")[0])
