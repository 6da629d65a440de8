"""Attacks by a second registration of a repository: none decides how another one is read."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.git import Repo
from tests.support.http_git import HttpGit, serve
from tests.support.signing import Key, make_key, signing_options
from tests.support.small_world import manifest, repository, write_world
from tests.support.world import World, git

OWN = "manifests/repositories/blueprints.yaml"
PLACES = list(product(["aa", "zz"], ["manifests/aa.yaml", "manifests/zz/team.yaml"]))
"""Names of the second Repository, and files with it, before and after those of the first one."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return write_world(tmp_path / "w", ("edge-1",), more={manifest("edge-1", "db"): ""})


@pytest.fixture
def server(world: World) -> Iterator[HttpGit]:
    with serve(world.root) as running:
        yield running


def register(world: World, path: str, name: str, address: str, configuration: str = "") -> None:
    text = repository("blueprints").replace("name: blueprints", f"name: {name}")
    files = {path: text.replace("../blueprints.git", address)}
    if configuration:
        own = Repo(world.control).read("main", "reconciler.yaml").decode()
        files["reconciler.yaml"] = f"{own}{configuration}"
    Repo(world.control).commit(files)


@pytest.mark.parametrize(("name", "path"), PLACES)
def test_nothing_is_read_in_the_clear_because_of_a_second_object(
    world: World, server: HttpGit, name: str, path: str
) -> None:
    clear = server.url("blueprints.git")
    register(world, OWN, "blueprints", clear.replace("http:", "ssh:").replace("//", "//git@"))
    alone = world.run("plan")
    register(world, path, name, clear)

    ran = world.run("apply")

    assert (alone.code, ran.code) == (Exit.UNAVAILABLE, Exit.UNAVAILABLE)
    assert server.requests == []
    assert f"{path}:10:11: RepositoryRefused: Repository default/{name} could not be read: " in ran.out
    assert "drafts" not in "".join(world.all_refs()["edge-1.git"])


@pytest.mark.parametrize(("name", "path"), PLACES)
@pytest.mark.parametrize("scheme", ["https://", "ssh://git@", "http://eve:pw@"])
def test_second_address_does_not_take_out_what_the_configuration_names(
    world: World, server: HttpGit, name: str, path: str, scheme: str
) -> None:
    clear = server.url("blueprints.git")
    named = f"  forges:\n  - prefix: {server.address}\n    type: local\n"
    register(world, OWN, "blueprints", clear, named)
    alone = world.run("plan", cache="other")
    register(world, path, name, clear.replace("http://", scheme))

    ran = world.run("plan")

    assert alone.code == Exit.DONE
    if scheme.startswith("http://") and path < OWN:
        return  # the configuration names both, and the file decides
    assert ran.code == Exit.INVALID_INPUT
    assert "create  edge-1/web  New     web/v1" in ran.out
    assert f"{path}:10:11: RepositoryRefused: " in ran.out
    assert "pw" not in ran.out
    doctor = world.run("doctor")
    assert f"error    reach: Repository default/{name}: " in doctor.out


@pytest.mark.parametrize("name", ["aa", "zz"])
@pytest.mark.parametrize("prefix", ["ssh://git@127.0.0.1", "127.0.0.1", "https://127.0.0.1/blueprints"])
def test_rule_counts_for_every_address_of_a_repository(
    world: World, server: HttpGit, tmp_path: Path, name: str, prefix: str
) -> None:
    key = make_key(tmp_path / "key")
    public = key.private.with_suffix(".pub").read_text().strip()
    rule = f"  verify:\n  - prefix: {prefix}\n    sshKeys: ['{public}']\n"
    register(world, OWN, "blueprints", server.url("blueprints.git"), rule)
    register(world, "manifests/team.yaml", name, f"{server.url('blueprints')}/")

    unsigned = world.run("plan")
    sign(world, key)

    assert unsigned.code == Exit.INVALID_INPUT
    assert "UpstreamNotVerified" in unsigned.out
    assert world.run("plan").code == Exit.DONE


def sign(world: World, key: Key) -> None:
    command = [*signing_options(key), "tag", "-s", "-f", "-m", "x", "web/v1", "web/v1^{commit}"]
    git(world.root / "blueprints.git", *command)


@pytest.mark.parametrize("names", [("aa", "zz"), ("zz", "aa")])
def test_second_directory_of_one_identity_is_refused_by_its_place(
    world: World, names: tuple[str, str]
) -> None:
    (world.root / "twin").mkdir()
    git(world.root / "twin", "clone", "-q", "--bare", str(world.root / "blueprints.git"), "x.git")
    git(world.root / "twin", "clone", "-q", "--bare", str(world.root / "blueprints.git"), "x")
    register(world, "manifests/m.yaml", names[0], "../twin/x.git")
    register(world, "manifests/n.yaml", names[1], "../twin/x")

    ran = world.run("plan")

    assert "manifests/n.yaml:10:11: RepositoryUnavailable: " in ran.out
    assert "two repositories with one identity" in ran.out
    assert "manifests/m.yaml" not in ran.out
