"""Names of generated PackageVariants, byte for byte as Porch makes them, and stable UIDs."""

import hashlib
import re
import uuid

MAX_NAME = 63
# 54 bytes of the identifier, a dash and 8 digits of its SHA-1 are 63.
_PREFIX = 54
_DIGITS = 8

_UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "reconciler.dev")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def variant_identifier(set_name: str, repo: str, package: str) -> str:
    """Join the three parts with dashes; nothing is escaped, so two triples may give one identifier.

    Source: porch packagevariantset_controller.go, packageVariantIdentifier.
    Differs: it is never a key here; identity is the triple.
    """
    return f"{set_name}-{repo}-{package}"


def variant_name(identifier: str) -> str:
    """Return the object name for an identifier: itself up to 63 bytes, else 54 bytes and a hash.

    A multi-byte character that the cut would split is replaced, and the name is then refused
    as invalid anyway.

    Source: porch packagevariantset_controller.go, packageVariantName.
    """
    data = identifier.encode()
    if len(data) <= MAX_NAME:
        return identifier
    digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    return f"{data[:_PREFIX].decode(errors='replace')}-{digest[:_DIGITS]}"


def stable_uid(instance: str, namespace: str, name: str) -> str:
    """Return the UID of a manifest without one: a UUIDv5 of (instance, namespace, name) (D18)."""
    # As uuid.uuid5, which spends most of its time on creating an object.
    name = f"{instance}\0{namespace}\0{name}"
    digest = bytearray(
        hashlib.sha1(_UUID_NAMESPACE.bytes + name.encode(), usedforsecurity=False).digest()[:16]
    )
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_object_name(name: str) -> bool:
    """Tell whether Kubernetes would accept `name` for an object: a DNS-1123 subdomain."""
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None  # noqa: PLR2004 - the DNS limit
