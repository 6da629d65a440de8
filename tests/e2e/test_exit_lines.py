"""Every exit code but 0 comes with a line that says what is wrong, where, and what to do next."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.base.errors import Exit
from tests.support.git import Repo, make_repository
from tests.support.small_world import manifest, repository, variant, write_world
from tests.support.world import World

SPARE = "manifests/repositories/spare.yaml"
WEB = manifest("edge-1", "web")


def commit(world: World, files: dict[str, str | None]) -> None:
    Repo(world.control, time=1_767_300_000).commit(files)


def unreachable_spare(world: World) -> None:
    commit(world, {SPARE: repository("spare")})
    world.propose_nothing()


def empty_spare(world: World) -> None:
    commit(world, {SPARE: repository("spare")})
    spare = make_repository(world.root / "spare.git")
    for ref in spare.refs():
        spare.delete(ref)


def broken_manifest(world: World) -> None:
    commit(world, {WEB: "kind: [\n"})


def unknown_upstream(world: World) -> None:
    commit(world, {WEB: variant("edge-1", "web", revision=9)})


def declining_hook(world: World) -> None:
    hook = world.root / "edge-1.git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'frozen until Monday' >&2\nexit 1\n")
    hook.chmod(0o755)


def floating_upstream(world: World) -> None:
    commit(world, {WEB: variant("edge-1", "web").replace("    revision: 1\n", "")})
    world.run("apply")
    with world.edit("blueprints", "web v3") as copy:
        (copy / "web/app.yaml").write_text((copy / "web/app.yaml").read_text().replace("web:v2", "web:v3"))
    world.tag("blueprints", "web/v3", "main")


def closed_pull_request(world: World) -> None:
    world.run("apply")
    world.run("pr", "close", "edge-1/web")


def unconsented_deletion(world: World) -> None:
    world.run("apply")
    for name in ("web", "db"):
        world.run("approve", f"edge-1/{name}")
    world.run("apply")
    text = Repo(world.control).read("main", "reconciler.yaml").decode()
    commit(world, {"reconciler.yaml": f"{text}  deletions:\n    count: 0\n", WEB: None})


def nothing(world: World) -> None:
    del world


class Case(NamedTuple):
    reason: str
    provoke: Callable[[World], None]
    line: tuple[str, ...]
    code: Exit
    where: str
    hint: str = "hint: "


CASES = [
    *(
        Case(
            f"{name} meets an unused repository that is not there",
            unreachable_spare,
            line,
            Exit.UNAVAILABLE,
            SPARE,
        )
        for name, line in {"plan": ("plan",), "apply": ("apply",), "status": ("status",)}.items()
    ),
    Case(
        "check and an unused repository",
        unreachable_spare,
        ("check", "--head", "words"),
        Exit.UNAVAILABLE,
        SPARE,
    ),
    Case("plan meets an unused empty repository", empty_spare, ("plan",), Exit.UNAVAILABLE, SPARE),
    *(
        Case(
            f"{name} meets a manifest that cannot be parsed",
            broken_manifest,
            (name,),
            Exit.INVALID_INPUT,
            WEB,
        )
        for name in ("plan", "apply", "status")
    ),
    Case("plan meets an upstream that is not there", unknown_upstream, ("plan",), Exit.INVALID_INPUT, WEB),
    Case("apply meets a hook that declines", declining_hook, ("apply",), Exit.REFUSED, "edge-1", "frozen"),
    Case(
        "plan refuses a deletion", unconsented_deletion, ("plan",), Exit.REFUSED, "PackageVariants", "hint: "
    ),
    Case(
        "apply of another plan is refused", nothing, ("apply", "--checksum", "0" * 64), Exit.REFUSED, "plan"
    ),
    Case("plan waits for a rejection", closed_pull_request, ("plan",), Exit.WAITING, "edge-1/web", "closed"),
    Case(
        "plan has changes", nothing, ("plan", "--detailed-exitcode"), Exit.PENDING, "edge-1/web", "to create"
    ),
    *(
        Case(f"{' '.join(line)} meets a manifest that cannot be parsed", broken_manifest, line, code, WEB)
        for line, code in (
            (("lock",), Exit.INVALID_INPUT),
            (("lock", "--check"), Exit.INVALID_INPUT),
            (("lock", "--frozen"), Exit.INVALID_INPUT),
            (("expand",), Exit.INVALID_INPUT),
            (("snapshot", "kinds"), Exit.INVALID_INPUT),
        )
    ),
    Case("lock meets an upstream that is not there", unknown_upstream, ("lock",), Exit.INVALID_INPUT, WEB),
    *(
        Case(f"{' '.join(line)} meets a repository that is not there", unreachable_spare, line, code, SPARE)
        for line, code in (
            (("lock",), Exit.UNAVAILABLE),
            (("lock", "--frozen"), Exit.UNAVAILABLE),
            (("snapshot", "kinds"), Exit.UNAVAILABLE),
            (("expand",), Exit.UNAVAILABLE),
            (("pr", "list"), Exit.UNAVAILABLE),
            (("approve", "--all"), Exit.UNAVAILABLE),
        )
    ),
    Case("lock is pending", floating_upstream, ("lock", "--check"), Exit.PENDING, "default/web-edge-1", "v3"),
    Case("lock is frozen", floating_upstream, ("lock", "--frozen"), Exit.REFUSED, "default/web-edge-1"),
    Case("lock holds a variant that is not there", nothing, ("lock", "hold", "wep"), Exit.USAGE, "wep"),
    Case("approve names nothing that is there", nothing, ("approve", "edge-1/wep"), Exit.USAGE, "edge-1/wep"),
    Case("pr names nothing that is there", nothing, ("pr", "show", "edge-1/wep"), Exit.USAGE, "edge-1/wep"),
    Case("pr merges a draft", closed_pull_request, ("pr", "merge", "edge-1/db"), Exit.REFUSED, "1"),
    Case("status names nothing that is there", nothing, ("status", "x/y"), Exit.USAGE, "x/y"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_exit_code_has_line_with_place_and_hint(case: Case, tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    case.provoke(world)

    said = world.run(*case.line)

    assert said.code == case.code, said.out + said.err
    assert case.where in said.out + said.err
    assert case.hint in said.out + said.err


def test_dead_repository_is_told_once_whoever_uses_it(tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1", "edge-2"))
    world = World(tmp_path / "w")
    (world.root / "edge-2.git").rename(world.root / "gone")

    said = world.run("plan")
    problems = json.loads(world.run("plan", "-o", "json").out)["problems"]

    assert said.code == Exit.UNAVAILABLE
    assert said.out.count("problem: ") == 1
    assert [p["location"]["path"] for p in problems] == ["manifests/repositories/edge-2.yaml"]
    assert problems[0]["message"].endswith("; 2 variants or sets that need it are kept as they are")
    assert problems[0]["hint"]
