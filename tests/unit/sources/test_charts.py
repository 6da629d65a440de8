"""Versions of charts: which one a range means, and where its archive is."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.base.errors import ReconcilerError, UnavailableError, UsageError
from reconciler.git.cache import MirrorLocation
from reconciler.git.repository import Mirror
from reconciler.git.urls import Remote
from reconciler.policy import Limits, RegistryPolicy
from reconciler.sources.charts import choose_version, fetch_chart, find_chart_in_git, find_chart_version
from reconciler.sources.registry import DigestError, RegistryClient
from tests.support.git import make_repository
from tests.support.registry import Answer, Gate, MemoryRegistry, serve_gate

Mirrors = dict[tuple[str, ...], Mirror]
SITE = "https://charts.example.com/stable"
OCI = "oci://charts.example.com/acme/web"


@pytest.fixture
def gate() -> Iterator[Gate]:
    with serve_gate() as served:
        yield served


def client_of(gate: Gate) -> RegistryClient:
    return RegistryClient(
        RegistryPolicy(mirrors={"charts.example.com": f"http://{gate.address}"}), lambda _: None
    )


def serve(gate: Gate, index: Any, **files: bytes) -> None:
    text = index if isinstance(index, str) else yaml.safe_dump({"entries": index})
    content = {
        "/stable/index.yaml": text.encode(),
        **{f"/stable/{name}": data for name, data in files.items()},
    }
    gate.plan = lambda asked: Answer(200, content[asked.path]) if asked.path in content else None


WRITE, CHECK = "Name https://REPOSITORY/NAME, where https://REPOSITORY/index.yaml", "Check the URL, the"
VERSIONS = ["1.2.0", "1.10.0", "v1.9.0", "2.0.0-rc.1", "latest"]


@pytest.mark.parametrize(
    ("wanted", "want"),
    [("", "1.10.0"), ("~1.9", "v1.9.0"), ("1.2.0", "1.2.0"), (">=2-0", "2.0.0-rc.1"), ("^3", "")],
)
def test_the_newest_version_of_a_range_is_no_prerelease_unless_it_is_named(wanted: str, want: str) -> None:
    assert choose_version(VERSIONS, wanted) == want


def test_what_is_no_range_is_refused_with_how_to_write_one() -> None:
    with pytest.raises(UsageError, match=r"--version >>1: ") as caught:
        choose_version(VERSIONS, ">>1")
    assert caught.value.hint == "Write it like 1.2.3, or ^1.2 as Helm does."


@pytest.mark.parametrize(
    ("urls", "url"),
    [
        (["web.tgz", "other.tgz"], f"{SITE}/web.tgz"),
        (["web.tgz#of-the-shop"], f"{SITE}/web.tgz"),
        (["/files/web.tgz"], "https://charts.example.com/files/web.tgz"),
        (["https://cdn.example.com/web.tgz"], "https://cdn.example.com/web.tgz"),
    ],
)
@pytest.mark.parametrize("digest", ["ab12", "sha256:ab12", None])
def test_an_index_tells_where_an_archive_is(
    gate: Gate, urls: list[str], url: str, digest: str | None
) -> None:
    client = client_of(gate)
    newest = {"version": "1.1.0", "urls": urls, "digest": digest}
    serve(gate, {"web": [{"version": "1.0.0"}, "x", {"urls": ["z"]}, newest, {"version": "2.0.0"}]})

    found = find_chart_version(f"{SITE}/web", "^1", client, Limits())

    assert found == ("1.1.0", f"{SITE}/web", url, "ab12" if digest else "", "2.0.0")


@pytest.mark.parametrize(
    ("index", "name", "message", "hint"),
    [
        ({"web": [], "api": []}, "weeb", f"{SITE} has no chart weeb", "Ask for one that it has: web."),
        ({"web": [], "api": "x"}, "quux", f"{SITE} has no chart quux", "Ask for one that it has: web."),
        ({}, "web", f"{SITE} has no chart web", ""),
        ({"web": []}, "web", f"{SITE}/web has no version at all", ""),
        ({"web": [{"version": v} for v in ("1.8.0", "1.11.0", "x", "1.9.0", "1.10.0")]}, "web",
            f"{SITE}/web has no version ^9", "Ask for one that it has: 1.9.0, 1.10.0, 1.11.0."),
        ({"web": [{"version": "9.0.0"}]}, "web",
            f"The index of {SITE} has no usable address for web 9.0.0: ", CHECK),
        ({"web": [{"version": "9.0.0", "urls": "x"}]}, "web",
            f"The index of {SITE} has no usable address for web 9.0.0: ", CHECK),
        ("", "web", f"{SITE}/index.yaml is no index of charts", WRITE),
        ("entries: [web]", "web", f"{SITE}/index.yaml is no index of charts", WRITE),
        ({"web": [{"version": "9.0.0", "urls": ["//["]}]}, "web",
            f"The index of {SITE} has no usable address", CHECK),
        ("a:\n b: [", "web", f"{SITE}/index.yaml:3: ", CHECK),
    ],
)  # fmt: skip
def test_an_index_that_is_not_followed_is_named(
    gate: Gate, index: Any, name: str, message: str, hint: str
) -> None:
    client = client_of(gate)
    serve(gate, index)
    wanted = "" if "at all" in message else "^9"

    with pytest.raises(UnavailableError) as caught:
        find_chart_version(f"{SITE}/{name}", wanted, client, Limits())

    assert str(caught.value).startswith(message)
    assert caught.value.hint.startswith(hint)
    assert bool(caught.value.hint) is bool(hint)


@pytest.mark.parametrize("as_text", [json.dumps, yaml.safe_dump])
def test_values_of_an_index_are_bounded(gate: Gate, as_text: Callable[[object], str]) -> None:
    serve(gate, as_text({"entries": {"web": [1] * 100}}))

    with pytest.raises(
        UnavailableError, match=rf"^{SITE}/index\.yaml:[0-9]+: The document has more than 99 nodes"
    ):
        find_chart_version(f"{SITE}/web", "", client_of(gate), Limits(yaml_nodes=99))


def test_an_archive_is_the_one_that_was_listed(gate: Gate) -> None:
    client = client_of(gate)
    digest = hashlib.sha256(b"archive").hexdigest()
    listed = [
        {"version": v, "urls": ["web.tgz"], "digest": d}
        for v, d in (("1.0.0", digest), ("2.0.0", ""), ("3.0.0", "0" * 64))
    ]
    serve(gate, {"web": listed}, **{"web.tgz": b"archive"})

    for version in ("1.0.0", "2.0.0"):
        fetched = fetch_chart(find_chart_version(f"{SITE}/web", version, client, Limits()), client)
        assert fetched == (b"archive", f"{SITE}/web:{version}@sha256:{digest}")
    stated = rf"stable/web\.tgz should be sha256:{'0' * 12}, and is sha256:{digest[:12]}$"
    with pytest.raises(DigestError, match=stated) as caught:
        fetch_chart(find_chart_version(f"{SITE}/web", "3.0.0", client, Limits()), client)
    assert "Nothing of it was used." in caught.value.hint


def test_a_chart_of_a_registry_is_the_layer_of_helm(gate: Gate) -> None:
    client = client_of(gate)
    gate.plan = registry = MemoryRegistry()
    registry.push_chart("acme/web", "1.0.0", b"old")
    digest = registry.push_chart("acme/web", "1.1.0+build.1", b"new")
    other = registry.push_xpkg("acme/web", "1.2.0", "kind: Provider")

    found = find_chart_version(OCI, "<1.2", client, Limits())

    assert found == ("1.1.0+build.1", OCI, f"{OCI}:1.1.0_build.1", "", "1.2.0")
    assert fetch_chart(found, client) == (b"new", f"{OCI}:1.1.0_build.1@{digest}")
    assert other != digest
    with pytest.raises(UnavailableError, match=rf"^{OCI}:1\.2\.0 is no chart$") as caught:
        fetch_chart(find_chart_version(OCI, "", client, Limits()), client)
    assert caught.value.hint == "Its manifest has no layer of Helm."


PLAIN, NAMED = ("v1.0.0", "1.1.0", "2.0.0-rc.1"), ("web-1.0.0", "web/v1.1.0", "charts/web-3.0.0", "v9.0.0")
BESIDE, NIGHTLY = ("v1.0.0", "web-admin-2.0.0", "web/stable"), ("nightly", "web-admin-2.0.0")


@pytest.fixture(scope="module")
def mirrors(tmp_path_factory: pytest.TempPathFactory) -> Mirrors:
    """Repositories by their tags, each of a commit where web/Chart.yaml has it; main is behind."""
    made = {}
    for tags in (PLAIN, NAMED, BESIDE, NIGHTLY, ()):
        root = tmp_path_factory.mktemp("charts")
        repo = make_repository(root / "charts.git", {"web/Chart.yaml": "first"})
        for tag in tags:
            repo.commit({"web/Chart.yaml": tag, "Chart.yaml": f"root {tag}"})
            repo.tag(tag)
        repo.commit({"web/Chart.yaml": "main"})
        made[tags] = Mirror(MirrorLocation.of(root / "cache", Remote(f"file://{repo.path}", ""), None))
        made[tags].fetch()
    return made


@pytest.mark.parametrize(
    ("tags", "version", "path", "want"),
    [
        (PLAIN, "", "web", "1.1.0"), (PLAIN, "~1.0", "web", "v1.0.0"), (PLAIN, "v1.0.0", "web", "v1.0.0"),
        (PLAIN, "", "", "root 1.1.0"), (NAMED, "", "web", "web/v1.1.0"), (NAMED, "~1.0", "web", "web-1.0.0"),
        (NAMED, "v9.0.0", "web", "v9.0.0"), (PLAIN, "main", "web", "main"), ((), "", "web", "main"),
        (BESIDE, "", "web", "v1.0.0"), (NIGHTLY, "", "web", "main"), (NIGHTLY, "nightly", "web", "nightly"),
    ],
)  # fmt: skip
def test_a_chart_in_git_is_at_a_tag_of_its_own_a_branch_or_a_commit(
    mirrors: Mirrors, tags: tuple[str, ...], version: str, path: str, want: str
) -> None:
    mirror = mirrors[tags]
    refs = mirror.refs()
    commit = refs.get(f"refs/tags/{want.removeprefix('root ')}") or refs["refs/heads/main"]

    for asked in (version, commit):
        found = find_chart_in_git(
            mirror, "https://kim:token-of-kim@git.example/charts", path, asked, Limits()
        )
        assert found.files["Chart.yaml"].data == want.encode()
        assert found.address.endswith(f"git.example/charts@{commit}")
        assert "token" not in found.address


@pytest.mark.parametrize(
    ("tags", "asked", "message", "hint"),
    [
        (PLAIN, ("^3", "web"), "/charts has no version ^3", "has: v1.0.0, 1.1.0, 2.0.0-rc.1."),
        (PLAIN, ("1.0.0", "wep"), "/charts has no directory wep at 1.0.0", ""),
        ((), ("", "wep"), "/charts has no directory wep at ", ""),
        ((), ("f" * 40, "web"), f"--version {'f' * 40}: ", "Write it like"),
    ],
)
def test_a_chart_that_is_not_in_git_is_named(
    mirrors: Mirrors, tags: tuple[str, ...], asked: tuple[str, str], message: str, hint: str
) -> None:
    mirror, (version, path) = mirrors[tags], asked

    with pytest.raises(ReconcilerError) as caught:
        find_chart_in_git(mirror, "https://git.example/charts", path, version, Limits())

    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")
    if not version:
        assert str(caught.value).endswith(mirror.refs()["refs/heads/main"][:12])


def test_a_repository_without_tags_and_branches_has_no_chart(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "empty.git")
    mirror = Mirror(MirrorLocation.of(tmp_path / "cache", Remote(f"file://{repo.path}", ""), None))
    mirror.fetch()

    with pytest.raises(UnavailableError, match="a has neither tags of versions nor a default branch"):
        find_chart_in_git(mirror, "a", "web", "", Limits())
