"""Replies of registries on disk: an unchanged list of tags is asked for by its tag, a blob is read once."""

import hashlib
import zlib
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

import orjson


class CachedReply(NamedTuple):
    """A reply as it was: the tag that its server gave it, the link to the next page, and the body."""

    etag: str
    link: str
    body: bytes


class ReplyCache:
    """One file for each address. What is missing or damaged is requested as if for the first time.

    A reply counts only if the server confirms its tag, with the authorization of the request.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, url: str) -> CachedReply | None:
        """Return the last reply of an address."""
        try:
            head, _, body = zlib.decompress(self._path(url).read_bytes()).partition(b"\n")
            address, etag, link = orjson.loads(head)
        except (OSError, ValueError, zlib.error):
            return None
        return CachedReply(str(etag), str(link), body) if address == url else None

    def store(self, url: str, reply: CachedReply) -> None:
        """Keep a reply, in place of an older one."""
        data = orjson.dumps([url, reply.etag, reply.link]) + b"\n" + reply.body
        with suppress(OSError):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Runs share the cache: a reader sees the old file or the new one, never a part.
            with NamedTemporaryFile(dir=self.directory, delete=False) as file:
                file.write(zlib.compress(data, level=1))
            Path(file.name).replace(self._path(url))

    def _path(self, url: str) -> Path:
        return self.directory / hashlib.sha256(url.encode()).hexdigest()
