"""The digest before what is kept in the cache: damaged bytes are not used."""

import hashlib

_DIGEST_BYTES = 32


def with_digest(data: bytes) -> bytes:
    """Return bytes behind their SHA-256 digest."""
    return hashlib.sha256(data).digest() + data


def checked(stored: bytes) -> bytes | None:
    """Return the bytes behind a digest, None if they are not those that it was made of."""
    data = stored[_DIGEST_BYTES:]
    return data if hashlib.sha256(data).digest() == stored[:_DIGEST_BYTES] else None
