"""What a sync takes from registries, package repositories and Git, and what it says of the rest."""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.model.cluster import build_catalogue
from reconciler.git.cache import MirrorLocation
from reconciler.git.repository import Mirror
from reconciler.git.urls import Remote
from reconciler.inventory.inventory import Source, SourcedDocument
from reconciler.policy import Limits, RegistryPolicy
from reconciler.sources.registry import RegistryClient
from reconciler.sources.sync import SyncRequest, SyncResult, find_new_versions
from tests.support.dependency_manifests import crossplane, install, installation, package, provider, world_of
from tests.support.git import make_repository
from tests.support.registry import Answer, Gate, MemoryRegistry, serve_gate
from tests.support.values import replace


class Synced:
    """A registry in memory behind a gate, and what a sync makes of manifests with it."""

    def __init__(self, gate: Gate) -> None:
        self.gate, self.registry = gate, MemoryRegistry()
        gate.plan = self.registry

    def client(self, **limits: int) -> RegistryClient:
        mirrors = dict.fromkeys(("x.io", "r.io"), f"http://{self.gate.address}")
        return RegistryClient(RegistryPolicy(mirrors=mirrors, at_once=1, **limits), lambda _: None)

    def push_meta(self, name: str, tag: str, *needs: tuple[str, str], kind: str = "Provider") -> str:
        depends = [{"provider": f"x.io/{need}", "version": range_} for need, range_ in needs]
        head = {"apiVersion": "meta.pkg.crossplane.io/v1", "kind": kind, "metadata": {"name": "p"}}
        return self.registry.push_xpkg(name, tag, yaml.safe_dump({**head, "spec": {"dependsOn": depends}}))

    def sync(
        self,
        world: str,
        *repositories: Any,
        mirror: Callable[[str], Mirror] = Mirror,
        limits: dict[str, int] | None = None,
        **request: Any,
    ) -> SyncResult:
        inputs = world_of(world)
        documents = tuple(
            SourcedDocument(
                {"kind": "PackageRepository", "metadata": {"name": "shop"}, "spec": {"fetch": each}},
                Source(Location("r.yaml", 7)),
            )
            for each in repositories
        )
        asked = SyncRequest(inputs.installs, request.pop("catalogue", inputs.catalogue), documents, **request)
        policy = RegistryPolicy(at_once=1, **(limits or {}))
        return find_new_versions(asked, self.client(**(limits or {})), mirror, policy, Limits())


@pytest.fixture
def synced() -> Iterator[Synced]:
    with serve_gate() as gate:
        yield Synced(gate)


def folders(result: SyncResult) -> list[str]:
    return [version.folder.removeprefix("index/") for version in result.versions]


def problems(result: SyncResult) -> list[str]:
    return [f"{each.location} {each.reason} {each.message}" for each in result.problems]


# Needs


def test_what_is_needed_comes_with_what_that_needs(synced: Synced) -> None:
    for tag in ("v1.0.0", "v1.1.0", "v2.0.0", "v1", "latest"):
        synced.push_meta("platform", tag, ("aws", ">=v1.1.0"), kind="Configuration")
    for tag in ("v1.0.0", "v1.1.0", "v1.2.0"):
        synced.push_meta("aws", tag)
    synced.push_meta("other", "v1.0.0")
    needs = provider("platform", "v1.1.0", "Configuration")

    some = synced.sync(needs)
    every = synced.sync(needs, every=True)

    assert folders(some) == ["x.io/aws/v1.1.0", "x.io/aws/v1.2.0", "x.io/platform/v1.1.0"]
    assert [version.origin for version in some.versions] == ["x.io"] * 3
    assert folders(every) == [
        *(f"x.io/aws/v1.{minor}.0" for minor in range(3)),
        *(f"x.io/platform/v{version}.0" for version in ("1.0", "1.1", "2.0")),
    ]
    assert (some.problems, some.notes, every.problems, every.notes) == ([], [], [], [])


def test_bundles_come_with_what_they_need_and_tags_are_listed_once(synced: Synced) -> None:
    wants = {"requires": {"db": {"bundle": "r.io/db:v0.1.0"}, "local": {"bundle": "r.io/app:v1.0.0"}}}
    app = {"name": "app", "version": "1.0.0", "custom": {"io.cnab.dependencies": wants}}
    synced.registry.push_cnab("app", "v1.0.0_build.1", app | {"version": "1.0.0+build.1"})
    synced.registry.push_cnab("app", "v1.0.0", app)
    synced.registry.push_cnab("db", "v0.1.0", {"name": "db", "version": "0.1.0"})

    result = synced.sync(installation("app", "app"))

    assert (folders(result), result.problems, result.notes) == (
        [f"r.io/{each}" for each in ("app/1.0.0", "app/1.0.0+build.1", "db/0.1.0")],
        [],
        [],
    )
    assert sorted(path for path in synced.gate.paths() if "tags" in path) == [
        f"/v2/{name}/tags/list?n=1000" for name in ("app", "db")
    ]


def test_a_package_of_git_has_the_versions_of_its_tags(synced: Synced, tmp_path: Path) -> None:
    head = "apiVersion: meta.pkg.crossplane.io/v1\nkind: Configuration\nmetadata: {name: p}\n"
    repo = make_repository(tmp_path / "a.git", {"sub/crossplane.yaml": head})
    for tag in ("v1.0.0", "v1.1.0", "other"):
        repo.tag(tag)
    made = Mirror(MirrorLocation.of(tmp_path / "cache", Remote(f"file://{repo.path}", ""), None))
    made.fetch()
    opened: list[str] = []

    def mirror(url: str) -> Mirror:
        opened.append(url)
        return made

    name = "https://git.example/a//sub"
    needs = f"[{{configuration: '{name}', version: '>=v1.1.0'}}]"
    result = synced.sync(crossplane("x", "v1.0.0", needs), every=True, mirror=mirror)

    assert (opened, result.problems) == (["https://git.example/a"], [])
    assert folders(result) == ["git.example/a/sub/v1.0.0", "git.example/a/sub/v1.1.0"]


def test_versions_that_the_index_has_or_refused_are_not_taken_again(synced: Synced) -> None:
    for tag in ("v1.0.0", "v1.1.0"):
        synced.push_meta("aws", tag)
    world = crossplane("platform", "v1.0.0", "[{provider: x.io/aws, version: '>=v1.0.0'}]") + crossplane(
        "aws", "v1.0.0"
    )
    synced.push_meta("platform", "v1.0.0", ("aws", ">=v1.0.0"), kind="Configuration")

    assert folders(synced.sync(world + provider("platform", "v1.0.0", "Configuration"))) == [
        "x.io/aws/v1.1.0"
    ]


def test_the_limit_of_a_run_leaves_the_rest_to_the_next(synced: Synced) -> None:
    for tag in ("v1.0.0", "v1.1.0", "v1.2.0"):
        synced.push_meta("aws", tag)
    synced.push_meta("platform", "v1.0.0", ("aws", ">=v1.0.0"), kind="Configuration")
    world = provider("platform", "v1.0.0", "Configuration")

    result = synced.sync(world, limits={"versions": 2})

    assert len(result.versions) == 2
    assert result.notes == ["2 versions are left to the next run: registries.versions"]
    assert synced.sync(world, limits={"versions": 3}).notes == [
        "1 version is left to the next run: registries.versions"
    ]


def test_what_one_package_lacks_stops_no_other(synced: Synced) -> None:
    registry = synced.registry
    needs = [(name, ">=v1.0.0") for name in ("away", "busy", "gone", "half", "odd", "plain", "aws")]
    synced.push_meta("platform", "v1.0.0", *needs, kind="Configuration")
    for name in ("half", "aws"):
        synced.push_meta(name, "v1.0.0")
    registry.push_xpkg("odd", "v1.0.0", "apiVersion: meta.pkg.crossplane.io/v1\nkind: Provder\n")
    registry.push_xpkg("odd", "v1.1.0", "kind: Other\n")
    registry.push_bundle("plain", "v1.0.0", {})
    synced.gate.plan = lambda asked: (
        Answer(403, b"{}") if "/away/" in asked.path or "half/manifests" in asked.path else registry(asked)
    )

    result = synced.sync(provider("platform", "v1.0.0", "Configuration"))

    assert folders(result) == ["x.io/aws/v1.0.0", "x.io/platform/v1.0.0"]
    at = "index/x.io/platform/v1.0.0/package.yaml"
    assert [line.replace(f"http://{synced.gate.address}/v2", "") for line in problems(result)] == [
        f"{at}:8:14 RepositoryUnavailable GET /away/tags/list: 403",
        f"{at}:10:14 NotFound GET /busy/tags/list: 404 not known; NAME_UNKNOWN",
        f"{at}:12:14 NotFound GET /gone/tags/list: 404 not known; NAME_UNKNOWN",
        "x.io/half RepositoryUnavailable GET /half/manifests/v1.0.0: 403",
    ]
    assert [each.subject for each in result.problems] == [
        "xpkg:x.io/away",
        "xpkg:x.io/busy",
        "xpkg:x.io/gone",
        "xpkg:x.io/half v1.0.0",
    ]
    lacks = "No layer of x.io/plain:v1.0.0 is annotated io.crossplane.xpkg: base"
    assert result.notes == [
        "x.io/odd v1.0.0 is left out: Provder is no kind of package of meta.pkg.crossplane.io",
        "xpkg:x.io/odd v1.1.0 is left out: nothing in it says what the package needs",
        f"xpkg:x.io/plain v1.0.0 is left out: {lacks}, so it is no package of Crossplane",
    ]


SHOP = "shop.example.com"
NEEDS = install("shop", SHOP, ">=1.1.0")


def shop_files(*versions: str, more: str = "") -> dict[str, str]:
    return {
        f"packages/{SHOP}/{v}.yml": package(SHOP, v, *([f"releaseNotes: {more}"] if more else []))
        for v in versions
    }


@pytest.mark.parametrize(
    ("fetch", "tags"),
    [
        ({"imgpkgBundle": {"image": "x.io/shops:2.0.0"}}, "2.0.0"),
        ({"image": {"url": "x.io/shops:2.0.0"}}, "2.0.0"),
        ({"image": {"url": "x.io/shops"}}, "latest"),
        ({"imgpkgBundle": {"image": "x.io/shops", "tagSelection": {"semver": {"constraints": "<2.1.0"}}}},
            "2.0.0"),
        ({"imgpkgBundle": {"image": "x.io/shops",
            "tagSelection": {"semver": {"constraints": ">1.0.0", "prereleases": {}}}}}, "3.0.0-rc.1"),
        ({"image": {"url": "x.io/shops",
            "tagSelection": {"semver": {"prereleases": {"identifiers": ["beta"]}}}}}, "2.1.0-beta.1"),
        ({"image": {"url": "x.io/shops:1.0.0", "tagSelection": {"semver": "x"}}}, "1.0.0"),
        ({"image": {"url": "x.io/shops@DIGEST", "tagSelection": {"semver": {}}}}, "1.0.0"),
    ],
)  # fmt: skip
def test_a_package_repository_is_read_at_the_tag_that_it_selects(
    synced: Synced, fetch: Any, tags: str
) -> None:
    pushed = {
        tag: f"1.{number}.0"
        for number, tag in enumerate(("1.0.0", "2.0.0", "2.1.0-beta.1", "3.0.0-rc.1", "latest"), 1)
    }
    digests = {
        tag: synced.registry.push_bundle("shops", tag, shop_files(version)) for tag, version in pushed.items()
    }
    read = json.loads(json.dumps(fetch).replace("DIGEST", digests["1.0.0"]))

    result = synced.sync(NEEDS, read)

    assert (result.problems, result.notes) == ([], [])
    assert folders(result) == [f"{SHOP}/{pushed[tags]}"]
    assert [version.origin for version in result.versions] == ["x.io/shops"]


@pytest.mark.parametrize(
    ("fetch", "reason", "message", "hint"),
    [
        ({"http": {"url": "x"}}, "ValidationError",
            "What this PackageRepository fetches is neither imgpkgBundle nor image", "Pull it"),
        (None, "ValidationError", "nor image, git or inline.paths", "Pull it"),
        ({"inline": {"pathsFrom": []}}, "ValidationError", "nor image, git or inline.paths", "Pull it"),
        ({"image": {"url": "x.io/shops", "tagSelection": {"semver": {"constraints": ">9.0.0"}}}}, "NotFound",
            "No tag of x.io/shops is >9.0.0", "Correct its tagSelection."),
        ({"image": {"url": "x.io/none"}}, "NotFound", "/v2/none/manifests/latest: 404",
            "Check the name x.io/none"),
        ({"image": {"url": "x.io/shops", "tagSelection": {"semver": {"constraints": ">>"}}}},
            "InvalidConstraint", "", ""),
        ({"image": {"url": "x.io/odd"}}, "InvalidPackage", "A layer of x.io/odd:latest may not hold", ""),
    ],
)  # fmt: skip
def test_a_package_repository_that_cannot_be_read_is_a_problem_at_its_fetch(
    synced: Synced, fetch: Any, reason: str, message: str, hint: str
) -> None:
    synced.registry.push_bundle("shops", "1.0.0", shop_files("1.1.0"))
    synced.registry.push_bundle("odd", "latest", {"packages/../x.yml": ""})

    (problem,) = synced.sync(NEEDS, fetch).problems

    assert (str(problem.location), problem.subject) == ("r.yaml:7", "PackageRepository shop")
    assert (problem.reason, message in problem.message) == (reason, True), problem
    assert problem.hint.startswith(hint)


def open_shops(root: Path) -> Callable[[str], Mirror]:
    """Return what opens a repository with two tags of packages below repo/, the second behind main."""
    shops = make_repository(
        root / "shops.git", {f"repo/{path}": text for path, text in shop_files("1.1.0").items()}
    )
    shops.tag("v1.0.0")
    shops.commit({f"repo/{path}": text for path, text in shop_files("1.2.0").items()})
    shops.tag("v2.0.0")
    shops.commit({**shop_files("1.3.0")})
    made = Mirror(MirrorLocation.of(root / "cache", Remote(f"file://{shops.path}", ""), None))
    made.fetch()
    return lambda _: made


def test_a_package_repository_in_git_is_read_at_its_ref(synced: Synced, tmp_path: Path) -> None:
    mirror = open_shops(tmp_path)
    older = {"semver": {"constraints": "<2.0.0"}}
    for fetch, versions in (
        ({"ref": "origin/main", "subPath": "/repo/"}, ["1.1.0", "1.2.0"]),
        ({"subPath": "repo"}, ["1.1.0", "1.2.0"]),
        ({"ref": "v1.0.0", "subPath": "repo"}, ["1.1.0"]),
        ({"refSelection": older, "ref": "main", "subPath": "repo"}, ["1.1.0"]),
        ({"refSelection": {"semver": {"constraints": ">9.0.0"}}, "ref": "main"}, ["1.3.0"]),
        ({"ref": "refs/tags/v2.0.0", "subPath": "repo"}, ["1.1.0", "1.2.0"]),
        ({"subPath": "none"}, []),
    ):
        result = synced.sync(NEEDS, {"git": {"url": "https://git.example/shops", **fetch}}, mirror=mirror)
        assert (folders(result), result.problems) == ([f"{SHOP}/{version}" for version in versions], [])
        assert {version.origin for version in result.versions} <= {"https://git.example/shops"}
    (problem,) = synced.sync(NEEDS, {"git": {"url": "u", "ref": "gone"}}, mirror=mirror).problems
    assert (problem.message, problem.hint) == ("u has no branch or tag gone", "Correct the ref of its fetch.")


def inline(*versions: str, more: str = "", below: str = "") -> dict[str, Any]:
    files = {f"{below}{path}": text for path, text in shop_files(*versions, more=more).items()}
    return {"inline": {"paths": files}}


def test_the_packages_in_the_manifest_of_a_package_repository_are_read(synced: Synced) -> None:
    result = synced.sync(NEEDS, inline("1.0.0", "1.1.0"))

    assert (folders(result), result.problems, result.notes) == ([f"{SHOP}/1.1.0"], [], [])
    assert [version.origin for version in result.versions] == ["r.yaml"]


def test_a_package_that_two_repositories_have_is_taken_if_they_agree(synced: Synced) -> None:
    """Source: kapp-controller#428: two repositories with one version, and different contents of it."""
    alike = synced.sync(NEEDS, inline("1.1.0"), inline("1.1.0", "1.2.0"))
    contested = synced.sync(NEEDS, inline("1.1.0"), inline("1.1.0", "1.2.0", more="other"))
    index = {"present": {"index/there": b""}, "catalogue": world_of(package(SHOP, "1.1.0")).catalogue}
    again = synced.sync(NEEDS, inline("1.1.0", more="other"), inline("1.1.0"), **index)

    assert (folders(alike), alike.problems, alike.notes) == ([f"{SHOP}/1.1.0", f"{SHOP}/1.2.0"], [], [])
    assert folders(contested) == [f"{SHOP}/1.2.0"]
    told = [f"r.yaml:7 InvalidManifest r.yaml has {SHOP} 1.1.0, too, with other content"]
    assert (problems(contested), contested.notes) == (told, [])
    assert (problems(again), again.notes) == (told, [])


@pytest.mark.parametrize(
    ("world", "repositories", "note"),
    [
        (NEEDS, [], "no PackageRepository among the manifests has it; `reconciler index import PATH`"),
        (NEEDS, [inline("1.0.0")], "no PackageRepository among the manifests has it; `reconciler index"),
        (provider("aws", "v9.0.0"), [], "no tag of x.io/aws fits; publish one, or ask for another range"),
        (installation("app", "app").replace("r.io/", ""), [], "it names no registry; `reconciler index"),
    ],
)
def test_what_no_sync_would_bring_is_named_with_what_does(
    synced: Synced, world: str, repositories: list[Any], note: str
) -> None:
    synced.push_meta("aws", "v1.0.0")

    result = synced.sync(world, *repositories)

    (told,) = result.notes
    assert f" is still missing: {note}" in told
    assert (result.problems, result.versions) == ([], [])


def test_a_package_repository_without_packages_is_named(synced: Synced) -> None:
    result = synced.sync("", inline("1.1.0", below="more/"))

    assert result.notes == ["PackageRepository shop has no package below packages/"]


# What is there already


@pytest.mark.parametrize(
    ("published", "moved"), [("", []), ("new", [f"carvel:{SHOP} 1.2.0 is not what it was: "])]
)
def test_a_package_that_is_published_anew_or_no_more_is_told(
    synced: Synced, published: str, moved: list[str]
) -> None:
    synced.registry.push_bundle("shops", "1", shop_files("1.2.0", more=published))
    present = {f"config/{name}": package(SHOP, "1.2.0").encode() for name in ("1.2.0.yml", "package.yaml")}
    world = NEEDS + package(SHOP, "1.1.0") + package(SHOP, "1.2.0")

    result = synced.sync(world, {"image": {"url": "x.io/shops:1"}}, present=present)

    assert (folders(result), synced.sync(world).notes) == ([], [])
    assert [each.message for each in result.problems] == [
        f"{each}it was published anew with another content" for each in moved
    ]
    step = "set `withdrawn:` in config/cluster.yaml, or `reconciler index remove` it"
    gone = f"carvel:{SHOP} 1.1.0 may be withdrawn: no PackageRepository has it any more; {step}"
    assert result.notes == [gone]


def test_tags_of_versions_that_are_there_are_compared_if_that_is_asked(synced: Synced) -> None:
    world = provider("aws", "v1.0.0")
    old = {tag: synced.push_meta("aws", tag) for tag in ("v1.0.0", "v1.1.0", "v1.2.0")}
    there = build_catalogue(version.candidate for version in synced.sync(world, every=True).versions)
    new = synced.push_meta("aws", "v1.1.0", ("other", ">=v1.0.0"))
    del synced.registry.content["/v2/aws/manifests/v1.2.0"]

    quick = synced.sync(world, catalogue=there)
    thorough = synced.sync(world, catalogue=there, checks_tags=True)

    gone = "xpkg:x.io/aws v1.2.0 may be withdrawn: its tag is gone from the registry; set `withdrawn:` in "
    assert (quick.problems, [note.partition(" index/")[0] + " " for note in quick.notes]) == ([], [gone])
    (moved,) = thorough.problems
    was = f"its tag now names {new[:19]}, and it was {old['v1.1.0'][:19]}"
    assert moved.message == f"xpkg:x.io/aws v1.1.0 is not what it was: {was}"
    assert (str(moved.location), moved.subject) == ("index/x.io/aws/v1.1.0/package.yaml:1", "xpkg:x.io/aws")
    assert thorough.notes == quick.notes

    synced.gate.plan = lambda asked: Answer(403, b"{}") if asked.method == "HEAD" else synced.registry(asked)
    assert {each.reason for each in synced.sync(world, catalogue=there, checks_tags=True).problems} == {
        Reason.REPOSITORY_UNAVAILABLE
    }
    marked = build_catalogue(replace(each, withdrawn="yes") for each in chain(*there.packages.values()))
    assert synced.sync(world, catalogue=marked).notes == []
