"""Parse references to packages (images of a registry, and Git sources) and names of interfaces."""

from reconciler.base.lazy import lazy_pattern
from reconciler.names.ids import normalise_url

_IMAGE = lazy_pattern(r"(?P<name>.+?)(?::(?P<tag>[^:/@]+))?(?:@(?P<digest>sha256:[0-9a-f]+))?")
_GIT = lazy_pattern(
    r"(?:git::|git\+)?(?P<remote>(?:[a-z][a-z0-9+.-]*://(?:[^/@]+@)?|[\w.-]+@(?!sha256:)[\w.-]+:(?!\d+/))?[^?#@]+?)"
    r"(?:(?:\?(?:[^#]*&)?ref=|[#@])(?P<ref>[^?#@&]+)(?:&[^#]*)?|:(?P<tag>[^:/@?#]+))?"
)
_FORCED = lazy_pattern(r"git::|git\+|[a-z][a-z0-9+.-]*://|[\w.-]+@(?!sha256:)[\w.-]+:(?!\d+/)")
_MARKED = lazy_pattern(r"[^:/]\.git(?:[/:@?#]|$)|\?(?:.*&)?ref=")
_PREFIX, _PLURAL = "io.cnab.interface.", "io.cnab.interfaces."
_COMMIT = lazy_pattern(r"[0-9a-f]{40}")


def parse_image(text: str) -> tuple[str, str, str]:
    """Split an image reference into name, tag and digest; missing parts are empty."""
    match = _IMAGE.fullmatch(text)
    return (match["name"], match["tag"] or "", match["digest"] or "") if match else (text, "", "")


def parse_source(text: str) -> tuple[str, str, str]:
    """Split the source of a Crossplane package, an image or a Git repository, into name, version and digest.

    A Git source has a scheme, a user, `.git` or `?ref=`. Its name is `https://HOST/PATH`, `//DIRECTORY`
    behind it, however it is reached, so that one repository is one package; a commit is its digest. Of a
    tag with a directory (`aws/v1.2.0`) the version counts.

    Source: Crossplane, packages-v2 design: `spec.package` is an OCI image or a Git source.
    """
    if not (_FORCED.match(text) or _MARKED.search(text)):
        return parse_image(text)
    match = _GIT.fullmatch(text)
    if match is None:
        return text, "", ""
    name, ref = _repository(match["remote"]), match["ref"] or match["tag"] or ""
    return (name, "", ref) if _COMMIT.fullmatch(ref) else (name, ref.rpartition("/")[2], "")


def _repository(remote: str) -> str:
    head, separator, tail = remote.partition("://")
    path = tail if separator else head
    path, inside, directory = path.partition(".git/")
    if not inside:
        path, inside, directory = path.partition("//")
    repository = normalise_url(f"{head}{separator}{path}" if separator else path)
    below = f"//{directory.strip('/')}" if directory.strip("/") else ""
    return f"{'file' if head == 'file' else 'https'}://{repository}{below}"


def canonical_interface(text: str) -> str:
    """Return the one name of a well-known interface, `io.cnab.interface.NAME`, also of its plural and `NAME`.

    Source: Porter, dependency namespaces and labels, which spells `io.cnab.interface.mysql` in three ways.
    """
    if text.startswith(_PLURAL):
        return _PREFIX + text.removeprefix(_PLURAL)
    return text if "." in text or "/" in text or not text else _PREFIX + text
