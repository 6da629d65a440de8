"""No credential changes what machines read, and no text for people shows one that is secret."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pygit2
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from reconciler.base import redact
from reconciler.records.state import PackageVariantRecord
from tests.e2e.test_canaries import encoded
from tests.support.git import Repo
from tests.support.small_world import blueprint, manifest, repository, variant, write_world
from tests.support.world import World, refs, restored

pytestmark = pytest.mark.slow

EDGES = ("edge-1", "edge-2")
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{4,}[A-Za-z0-9]")
ID = re.compile(r"[0-9a-f-]+")
CONSTANTS = ("default", "localTree", "PackageVariant", "refs/heads", "packages", "Published", "drafts")
HOST = "127.0.0.1:9"
"""Nobody answers there."""


class Way(NamedTuple):
    """How a run gets a credential: by a variable, or by the address of a team's repository."""

    variable: str = ""
    user: str = ""
    address: str = f"http://{HOST}/x.git"


WAYS = {
    "token of the control repository": Way("RECONCILER_CONTROL_TOKEN"),
    "variable with the name of a secret": Way("TEAM_DEPLOY_TOKEN"),
    "variable of a rule": Way("TEAM"),
    "user of a refused address": Way(user="{}", address="ftp://git.example/x.git"),
    "user of an address that does not answer": Way(user="{}"),
    "password of a refused address": Way(user="kim:{}", address=f"http://{HOST}/../x.git"),
    "password of an address that does not answer": Way(user="kim:{}"),
}
RULE = f"  credentials:\n  - {{prefix: 'http://{HOST}', tokenEnv: TEAM}}\n"


@contextmanager
def environment(variable: str, word: str) -> Iterator[None]:
    """Set a variable, and forget every credential and name of runs before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEAM", "a-token-that-nobody-has")
        if variable:
            patch.setenv(variable, word)
        redact._IN_USE.__dict__.update(redact._Credentials().__dict__)
        yield


def make_world(way: Way) -> Callable[[Path], World]:
    def build(root: Path) -> World:
        write_world(root, EDGES)
        control = Repo(root / "control.git")
        merged = control.read("main", "reconciler.yaml").decode()
        files = {"reconciler.yaml": merged + RULE} if way.variable == "TEAM" else {}
        control.commit({**files, "manifests/repositories/team.yaml": team(way, "")})
        return World(root)

    return build


def team(way: Way, word: str) -> str:
    scheme, _, rest = way.address.partition("//")
    user = f"{way.user.format(quote(word, safe=''))}@" if word and way.user else ""
    return repository("team").replace("../team.git", f"'{scheme}//{user}{rest}'")


def machine_reads(world: World) -> Mapping[str, Mapping[str, str]]:
    """Return what the next run reads of this one: all refs of downstreams, and the records of every branch.

    The commit of the control repository that was applied is left out: it has the address.
    """
    found = {edge: refs(world.root / f"{edge}.git") for edge in EDGES}
    control = pygit2.Repository(str(world.control))
    for name, target in refs(world.control).items():
        if name.startswith("refs/heads/reconciler/"):
            tree = control[target].peel(pygit2.Tree)
            found[name] = {path: data for path, data in files_of(tree) if path != "applied.json"}
    return found


def files_of(tree: pygit2.Tree, prefix: str = "") -> Iterator[tuple[str, str]]:
    for entry in tree:
        if isinstance(entry, pygit2.Tree):
            yield from files_of(entry, f"{prefix}{entry.name}/")
        elif isinstance(entry, pygit2.Blob):
            yield f"{prefix}{entry.name}", entry.data.decode()


def three_runs(world: World) -> tuple[list[int], str]:
    said = [world.run(*line.split()) for line in ("apply", "plan -o json", "apply", "apply", "pr list")]
    return [each.code for each in said], "".join(each.out + each.err for each in said)


@cache
def reference(way: Way) -> tuple[Mapping[str, Mapping[str, str]], list[int]]:
    """Return what machines read after runs without the credential, and the exit codes of these runs."""
    world = restored(f"masking-{list(WAYS.values()).index(way)}", make_world(way))
    with environment("", ""):
        codes, _ = three_runs(world)
    return machine_reads(world), codes


@cache
def words() -> tuple[str, ...]:
    """Return the names that a plan has, from what a run without any credential wrote; no ids.

    Names of fields are plain words, which texts for people hide where they equal a credential.
    """
    machine, _ = reference(WAYS["token of the control repository"])
    fields = {each.encode_name for each in structs.fields(PackageVariantRecord)}
    found = set(WORD.findall(json.dumps(machine))) - fields
    return tuple(sorted({*(word for word in found if not ID.fullmatch(word)), *CONSTANTS}))


@given(
    way=st.sampled_from(list(WAYS.values())),
    word=st.deferred(lambda: st.sampled_from(words())),
    cut=st.integers(0, 9),
)
@example(way=WAYS["user of a refused address"], word="packagevariant-1", cut=0)
@example(way=WAYS["password of an address that does not answer"], word="packagevariant-1", cut=0)
@example(way=WAYS["token of the control repository"], word="localTree", cut=0)
@settings(max_examples=6)
def test_credential_that_is_a_name_changes_nothing_that_machines_read(way: Way, word: str, cut: int) -> None:
    word = word[min(cut, len(word) - 6) :]
    before, codes = reference(way)
    world = restored(f"masking-{list(WAYS.values()).index(way)}", make_world(way))
    if way.user:
        Repo(world.control).commit({"manifests/repositories/team.yaml": team(way, word)})

    with environment(way.variable, word):
        got, said = three_runs(world)

    assert machine_reads(world) == before
    assert got == codes
    assert "drafts/web/packagevariant-1" in said
    pulls = [ref for ref in refs(world.root / "edge-1.git") if ref.startswith("refs/reconciler/pulls/")]
    assert len(pulls) == 2, "three runs open each pull request once"


SECRETS = st.text(st.characters(codec="ascii", exclude_categories=["C", "Z"]), min_size=12, max_size=24)
USED = ("token of the control repository", "password of an address that does not answer")


@given(way=st.sampled_from([WAYS[name] for name in USED]), secret=SECRETS)
@settings(max_examples=4, phases=[Phase.explicit, Phase.generate])
def test_secret_that_a_server_repeats_is_in_no_text_and_no_record(way: Way, secret: str) -> None:
    secret = f"s3cret-{secret}"
    world = restored("masking-echo", make_world(way))
    Repo(world.control).commit({"manifests/repositories/team.yaml": team(way, secret)})
    hook = world.root / "edge-2.git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    sent = [base64.b64encode(f"{user}{secret}".encode()).decode() for user in ("", "kim:", "x-access-token:")]
    words = " ".join([secret, quote(secret, safe=""), json.dumps(secret), *sent]).replace("'", "'\\''")
    hook.write_text(f"#!/bin/sh\nprintf '%s\\n' '{words}' >&2\nexit 1\n")
    hook.chmod(0o755)

    with environment(way.variable, secret):
        _, texts = three_runs(world)
        page = world.root / "page.html"
        for line in (f"plan --html {page}", "status -o json", "doctor"):
            texts += str(world.run(*line.split()))

    assert "refuses" in texts
    assert "***" in texts
    every = texts + page.read_text() + json.dumps(machine_reads(world))
    assert [form for form in encoded(secret) if form in every] == []


def test_package_that_is_named_as_a_token_is_refused_alone() -> None:
    token = "w3b7x9q2v5t8z1k4m6n0"
    world = restored("masking-name", make_world(WAYS["variable of a rule"]))
    blueprints = Repo(world.root / "blueprints.git")
    blueprints.commit(blueprint(token, 1))
    blueprints.tag(f"{token}/v1")
    Repo(world.control).commit({manifest("edge-1", token): variant("edge-1", token)})

    with environment("RECONCILER_CONTROL_TOKEN", token):
        said = [world.run("apply") for _ in range(2)]
        texts = "".join(each.out + each.err for each in said)

    named = refs(world.root / "edge-1.git")
    assert {name for name in named if name.startswith("refs/heads/drafts/")} == {
        "refs/heads/drafts/db/packagevariant-1",
        "refs/heads/drafts/web/packagevariant-1",
    }
    assert "Ref refs/heads/drafts/***/packagevariant-1 holds a credential that this run uses" in texts
    assert token not in texts + json.dumps(machine_reads(world))
    assert "opened   edge-1" not in said[1].out
