"""Published packages with requirements: which revisions can be chosen, pinned or refused."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.base.errors import ConfigurationError, Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.index import DependencyInputs, PackageTree, PublishedPackages
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import Inventory, ReviewedLock, Trust
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.objects import File
from reconciler.policy import Limits, Policy
from reconciler.read.dependencies import read_dependencies, read_index_directory, read_published
from tests.support.git import Repo, kptfile, make_repository
from tests.support.reading import read_registered
from tests.unit.read.test_repositories import registration


def manifest(
    version: str = "9.9.9", *, group: str = "data.packaging.carvel.dev", name: str = "web.io"
) -> str:
    spec = f"{{refName: {name}, version: {version}, template: {{spec: {{}}}}}}"
    meta = "{name: web, annotations: {config.kubernetes.io/local-config: 'true'}}"
    return f"apiVersion: {group}/v1alpha1\nkind: Package\nmetadata: {meta}\nspec: {spec}\n"


class World:
    """The repositories `blue` with package `web`, and whatever variants follow."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mirrors = Mirrors(root / "cache")
        self.blue = self.repository("blue", {"web/Kptfile": kptfile("web"), "web/package.yaml": manifest()})
        self.url = str(self.blue.path).removesuffix(".git")

    def repository(self, name: str, files: Mapping[str, Any]) -> Repo:
        return make_repository(self.root / f"{name}.git", files)

    def inventory(self, *upstreams: str, policy: Policy | None = None, **fields: Any) -> Inventory:
        registrations = [
            registration(str(path), name=path.stem, directory="sub" if path.stem == "sub" else "")
            for path in sorted(self.root.glob("*.git"))
        ]
        views = read_registered(registrations, self.mirrors, policy or Policy())
        variants = tuple(
            SimpleNamespace(
                key=ObjectName("default", "v"),
                manifest=SimpleNamespace(
                    spec=SimpleNamespace(upstream=SimpleNamespace(repo=repo, package=package))
                ),
            )
            for repo, _, package in (upstream.partition("/") for upstream in upstreams)
        )
        every = {
            "repositories": views,
            "variants": variants,
            "sets": (),
            "documents": (),
            "policy": policy or Policy(),
            "trees": {},
            "trust": {},
            **fields,
        }
        return cast("Any", SimpleNamespace(**every))

    def read(self, *upstreams: str, **fields: Any) -> PublishedPackages:
        return read_published(self.inventory(*upstreams, **fields), self.mirrors)

    def versions(self, *upstreams: str, **fields: Any) -> list[tuple[str, str]]:
        """Return version and tag of the candidates."""
        return [(c.version.text, c.source) for c in self.read(*upstreams, **fields).candidates]

    def revisions(self, *upstreams: str, **fields: Any) -> dict[str, str]:
        """Return the versions of the revisions by tree."""
        return {key.tree: c.version.text for key, c in self.read(*upstreams, **fields).revisions.items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_tagged_revision_is_a_candidate_with_the_version_of_its_tag(world: World) -> None:
    world.blue.tag("web/v3")
    tree = world.blue.tree("main", "web")

    published = world.read()

    (candidate,) = published.candidates
    assert (candidate.id.name, candidate.version.text) == (f"{world.url}//web", "3.0.0")
    assert (candidate.source, candidate.digest, candidate.names) == ("v3", tree, ("web.io",))
    assert candidate.location == Location("blue/web/v3/package.yaml", 1)
    assert published.revisions == {PackageTree(PackageKey(world.url, "web"), tree): candidate}
    assert (published.warnings, published.refused) == ((), {})


@pytest.mark.parametrize(
    ("tag", "version"),
    [("v1", "1.0.0"), ("v1.2.3", "1.2.3"), ("1.2.3-rc.1", "1.2.3-rc.1"), ("latest", None), ("v", None)],
)
def test_tag_that_is_a_version_makes_a_candidate(world: World, tag: str, version: str | None) -> None:
    world.blue.tag(f"web/{tag}")

    assert world.versions() == ([(version, tag)] if version else [])
    tree = world.blue.tree("main", "web")
    assert world.revisions() == {tree: version or f"9.9.9+{tree[:12]}"}


def test_documents_of_other_kinds_are_passed_over(world: World) -> None:
    world.blue.commit(
        {
            "web/package.yaml": "---\n".join(
                ["- list\n", manifest(group="other.dev"), "kind: Package\n", manifest()]
            )
        }
    )
    world.blue.tag("web/v1")

    (candidate,) = world.read().candidates

    assert candidate.location.line > 5


def test_revision_without_requirements_of_a_package_that_has_some_can_be_pinned(world: World) -> None:
    world.blue.tag("web/v1")
    world.blue.commit({"web/package.yaml": None})
    world.blue.tag("web/v2")

    assert world.versions() == [("1.0.0", "v1")]
    published = world.read()
    last = published.revisions[PackageTree(PackageKey(world.url, "web"), world.blue.tree("main", "web"))]
    assert (last.version.text, last.source, last.digest) == ("2.0.0", "v2", world.blue.tree("main", "web"))
    assert last not in published.candidates


def test_package_of_a_variant_is_no_candidate(world: World) -> None:
    owned = kptfile("web", owner="default/default/pv")
    world.blue.commit({"web/Kptfile": owned})
    world.blue.tag("web/v1")

    assert world.read() == PublishedPackages()
    assert world.versions("blue/web") == []
    (followed,) = world.read("blue/web").revisions.values()
    assert (followed.version.text, followed.names) == ("1.0.0", ())


def test_unverified_revision_is_refused_by_the_name_of_its_package(world: World) -> None:
    world.blue.tag("web/v1")
    good = world.blue.oid("main")
    world.blue.commit({"web/package.yaml": manifest("2.0.0")})
    world.blue.tag("web/v2")
    trust = {
        world.url: Trust(
            tags=frozenset({("web/v1", good)}), faults={("web/v2", world.blue.oid("main")): "is not signed"}
        )
    }

    published = world.read("blue/web", trust=trust)

    assert [c.source for c in published.candidates] == ["v1"]
    assert set(published.revisions.values()) == set(published.candidates)
    ((name, ((version, problem),)),) = published.refused.items()
    assert (name, version) == (f"{world.url}//web", "2.0.0")
    assert (problem.reason, problem.message) == (Reason.UPSTREAM_NOT_VERIFIED, "not verified: is not signed")
    assert (str(problem.location), problem.subject) == ("blue/web/v2", "package web")
    assert problem.hint


def test_invalid_manifest_is_a_warning_and_refuses_its_revision_alone(world: World) -> None:
    world.blue.tag("web/v1")
    world.blue.commit({"web/package.yaml": manifest().replace("refName: web.io", "refName: [x]")})
    world.blue.tag("web/v2")
    world.blue.commit({"web/package.yaml": f"{manifest()}---\na: [\n"})
    world.blue.tag("web/v3")

    published = world.read()

    assert [c.source for c in published.candidates] == ["v1", "v3"]
    assert {problem.location.path for problem in published.warnings} == {
        "blue/web/v2/package.yaml",
        "blue/web/v3/package.yaml",
    }
    refused = published.refused[f"{world.url}//web"]
    assert {(version, problem.location.path) for version, problem in refused} == {
        ("2.0.0", "blue/web/v2/package.yaml"),
        ("3.0.0", "blue/web/v3/package.yaml"),
    }
    (syntax,) = [p for p in published.warnings if p.reason is Reason.INVALID_YAML]
    assert (syntax.subject, syntax.location.line > 5) == ("package web", True)


def test_manifest_over_the_limit_has_no_requirements(world: World) -> None:
    world.blue.tag("web/v1")

    assert world.versions(policy=Policy(limits=Limits(manifest_bytes=len(manifest())))) == [("1.0.0", "v1")]
    assert world.versions(policy=Policy(limits=Limits(manifest_bytes=len(manifest()) - 1))) == []


# Locks


def with_control(
    world: World, *, documents: tuple[object, ...] = (), reviewed: ReviewedLock | None = None
) -> Inventory:
    control = world.repository("control", {"x": "1"})
    state = control.commit({"locks/a.json": "state", "locks/README": "x", "other": "x"}, branch="state")
    there = SimpleNamespace(remote=str(control.path), state=state)
    return world.inventory(control=there, documents=documents, reviewed=reviewed)


def test_locks_are_those_of_the_state_branch_or_the_reviewed_ones(world: World) -> None:
    files = {path: File.of(b"main") for path in ("a.json", "README")}
    (lock,) = read_dependencies(with_control(world), world.mirrors).locks.items()
    assert lock == ("locks/a.json", b"state")

    world.mirrors = Mirrors(world.root / "second")
    inventory = with_control(World(world.root / "other"), reviewed=ReviewedLock(files=files))

    assert read_dependencies(inventory, world.mirrors) == DependencyInputs(locks={"locks/a.json": b"main"})


def test_lock_of_a_newer_version_is_no_lock_to_replace(world: World) -> None:
    newer = {"a.json": File.of(b'{"apiVersion": "reconciler.dev/v9", "kind": "PackageLock"}')}

    with pytest.raises(ConfigurationError, match=r"locks/a\.json.*newer version"):
        read_dependencies(with_control(world, reviewed=ReviewedLock(files=newer)), world.mirrors)


def test_packages_are_read_only_if_something_may_need_them(world: World) -> None:
    world.blue.tag("web/v1")
    idle = with_control(world)
    busy = cast("Any", SimpleNamespace(**{**vars(cast("Any", idle)), "documents": ("some",)}))

    assert read_dependencies(idle, world.mirrors) == DependencyInputs(locks={"locks/a.json": b"state"})
    inputs = read_dependencies(busy, world.mirrors)
    assert [candidate.source for candidate in inputs.published.candidates] == ["v1"]


# The index


def test_index_of_a_working_copy_is_read_as_it_lies_there(tmp_path: Path) -> None:
    for path, text in {
        "index/b/two.yml": "a: 2",
        "index/a.yaml": "a: 1\n---\n- x\n",
        "index/c.json": '{"a": 3}',
        "index/d.yaml/x.txt": "no",
        "index/e.txt": "no",
        "other/f.yaml": "a: 5",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    folders = read_index_directory(tmp_path, Limits())

    assert [(d.source.location, d.value["a"]) for d in folders.documents] == [
        (Location("index/a.yaml", 1), 1),
        (Location("index/b/two.yml", 1), 2),
        (Location("index/c.json", 1), 3),
    ]
    (problem,) = folders.problems
    assert (problem.location, problem.reason) == (Location("index/a.yaml", 3), Reason.INVALID_MANIFEST)
    assert read_index_directory(tmp_path / "nowhere", Limits()).documents == ()
