"""Nothing of a Secret is in any output, however its manifest is spelled."""

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.cli.main import invoke
from tests.support.git import Repo, kptfile
from tests.support.samples import sample
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World, git, refs, restored

pytestmark = pytest.mark.slow

EDGE, NAME = "edge-1", "edge-1/web"
OUR, OLD, NEW = "hunter1secretvalue", "hunter3secretvalue", "hunter5secretvalue"
VALUES = (OUR, OLD, NEW)
PLAIN = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\nstringData:\n  image: {v}\n  token: {v}\n"
CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  a: {v}\n"


def inside(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


SPELLINGS = {
    "plain": PLAIN,
    "list": "apiVersion: v1\nkind: List\nitems:\n-\n" + inside(PLAIN),
    "typed": "apiVersion: v1\nkind: SecretList\nitems:\n- {{metadata: {{name: t}}, data: {{token: {v}}}}}\n",
    "flow": "{{apiVersion: v1, kind: Secret, metadata: {{name: f}}, stringData: {{token: {v}}}}}\n",
    "escape": PLAIN.replace("Secret", '"\\x53ecret"'),
    "anchor": "x: &x Secret\n" + PLAIN.replace("Secret", "*x"),
    "binary": PLAIN.replace("Secret", "!!binary U2VjcmV0"),
    "folded": PLAIN.replace("Secret", ">-\n  Secret"),
    "CR": PLAIN.replace("\n", "\r"),
    "text": CONFIG.replace("{name}", "t").replace("{v}", "|\n" + inside(PLAIN)),
    "object": "apiVersion: k.crossplane.io/v1\nkind: Object\nmetadata: {{name: o}}\nspec:\n  manifest:\n"
    + inside(PLAIN),
    "helm": "{{{{ if .x }}}}\n" + PLAIN,
    "broken": "a: [\n---\n" + PLAIN,
    "comment": CONFIG.replace("{name}", "c").replace("{v}", "x")
    + "".join(f"# {line}\n" for line in PLAIN.splitlines()),
}


def write(copy: Path, value: str, seen: str) -> None:
    """Write every spelling with this value, and a file that may be seen."""
    for name, spelling in SPELLINGS.items():
        (copy / f"web/{name}.yaml").write_bytes(spelling.format(v=value).encode())
    (copy / "web/utf16.yaml").write_bytes(PLAIN.format(v=value).encode("utf-16"))
    (copy / "web/lines.json").write_text(f'{{}}\n{{"kind": "Secret", "data": {{"token": "{value}"}}}}\n')
    (copy / "web/seen.yaml").write_text(CONFIG.format(name="seen", v=seen))


def old(copy: Path) -> None:
    write(copy, OLD, "before")
    (copy / "web/was.yaml").write_text(PLAIN.format(v=OLD).replace("name: s", "name: was"))
    (copy / "web/becomes.yaml").write_text(CONFIG.format(name="becomes", v=OLD))
    (copy / "web/goes.yaml").write_text(SPELLINGS["flow"].format(v=OLD).replace("name: f", "name: goes"))
    (copy / "web/renamed.yaml").write_text(PLAIN.format(v=OLD).replace("name: s", "name: renamed"))


def new(copy: Path) -> None:
    write(copy, NEW, "after")
    (copy / "web/was.yaml").write_text(CONFIG.format(name="was", v=OLD))
    (copy / "web/becomes.yaml").write_text(PLAIN.format(v=OLD).replace("name: s", "name: becomes"))
    (copy / "web/goes.yaml").unlink()
    (copy / "web/renamed.yaml").rename(copy / "web/named.yaml")


@pytest.fixture
def world() -> World:
    """Revision 3 with the old values is on main; revision 4 with the new ones is asked for."""
    return restored("secrets", make_secrets)


def make_secrets(root: Path) -> World:
    world = write_world(root, (EDGE,))
    with world.edit("blueprints", "v3") as copy:
        old(copy)
    ask(world, 3)
    assert world.run("apply", "--quiet").code == 0
    assert world.run("approve", NAME).code == 0
    with world.edit("blueprints", "v4") as copy:
        new(copy)
    ask(world, 4)
    return world


def ask(world: World, revision: int) -> None:
    Repo(world.root / "blueprints.git").tag(f"web/v{revision}")
    with world.edit("control", f"web v{revision}") as copy:
        (copy / manifest(EDGE, "web")).write_text(variant(EDGE, "web", revision=revision))


def outputs(world: World) -> Iterator[tuple[str, str]]:
    """Yield everything that tells of the package: commands in every form, files, and what Git has of runs."""
    page, tables = world.root / "page.html", world.root / "tables"
    check = f"check --base {git(world.control, 'rev-parse', 'main~1').strip()}"
    for line in (
        *(f"plan -o {form}" for form in ("text", "json", "markdown", "sarif")),
        *("plan --diff --all", f"plan --diff {NAME}", f"plan --html {page}", "plan --verbose"),
        *(f"explain {NAME}", f"explain {NAME} -o json", f"explain {NAME} --why-not newest --history"),
        *("status -o wide", "status -o json", "status -o yaml", "status -o csv", "status -o jsonl"),
        *("doctor", "graph", check, f"{check} --diff"),
        *(f"{check} --html {tables}", *(f"{check} -o {form}" for form in ("markdown", "sarif", "json"))),
        *("pr list", "pr list -o json", f"pr show {NAME}", f"pr show {NAME} -o json"),
    ):
        said = world.run(*line.split())
        assert said.code not in (1, 2), (line, said)
        yield line, said.out + said.err
    yield "HTML", page.read_text() + tables.read_text()
    for repository in world.repositories():
        messages = git(repository, "log", "--all", "--format=%B")
        yield f"messages in {repository.name}", messages
        for ref in refs(repository):
            if ref.startswith(("refs/heads/reconciler/", "refs/reconciler/")):
                yield ref, git(repository, "grep", "-I", "-e", "", ref)


def leaks(text: str) -> list[str]:
    """Return the values that a text has: as they are, in base64, or in a binary patch."""
    shown = [text]
    if "GIT binary patch" in text:
        lines = [line[1:] for line in text.splitlines() if len(line) > 5 and " " not in line]
        for line in lines:
            try:
                shown.append(zlib.decompressobj().decompress(base64.b85decode(line)).decode("latin-1"))
            except (ValueError, zlib.error):
                continue
    whole = "".join(shown).replace("\0", "")
    forms = [(value, base64.b64encode(value.encode()).decode()) for value in VALUES]
    return [value for both in forms for value in both if value in whole]


def leaking(world: World) -> dict[str, list[str]]:
    return {name: found for name, text in outputs(world) if (found := leaks(text))}


def test_no_output_of_an_update_has_a_value_of_a_secret(world: World) -> None:
    before = leaking(world)
    assert world.run("apply", "--quiet").code == 0
    body = world.run("pr", "show", NAME).out
    diff = world.run("plan", "--diff", NAME).out
    page = world.root / "page.html"
    world.run("plan", "--html", str(page))

    assert (before, leaking(world)) == ({}, {})
    for text in (body, diff, page.read_text()):
        assert "a: after" in text, "what is no Secret is shown"
    hidden = [*SPELLINGS, "utf16", "was", "becomes", "goes", "renamed", "named"]
    for name in hidden:
        assert f"web/{name}.yaml, which may hold a Secret: not shown" in diff
    notes = {
        "utf16": "binary files differ: 234 -> 234 bytes",
        "goes": "removed",
        "renamed": "removed",
        "named": "new",
    }
    for name in hidden:
        (row,) = (line for line in body.splitlines() if f"| `{name}.yaml` |" in line)
        assert row.endswith(f"| {notes.get(name, 'may hold a Secret, not shown')} |")


@pytest.mark.parametrize("policy", sample(["", "local", "upstream", "fail"], 4))
def test_no_output_of_a_conflict_has_a_value_of_a_secret(world: World, policy: str) -> None:
    with world.edit(EDGE, "Our own values") as copy:
        write(copy, OUR, "ours")
        (copy / "web/was.yaml").write_text(PLAIN.format(v=OUR).replace("name: s", "name: was"))
    if policy:
        with world.edit("control", "policy") as copy:
            text = variant(EDGE, "web", revision=4)
            note = f"  annotations:\n    reconciler.dev/on-conflict: {policy}\n"
            text = text.replace("  namespace: default\n", f"  namespace: default\n{note}", 1)
            (copy / manifest(EDGE, "web")).write_text(text)

    before = leaking(world)
    world.run("apply", "--quiet")
    told = json.loads(world.run("explain", NAME, "-o", "json").out)

    assert (before, leaking(world)) == ({}, {})
    notes = told["answers" if policy in ("local", "upstream") else "conflicts"]
    values = {(note["path"], note["chosen" if "chosen" in note else "upstream"]) for note in notes}
    assert ("list.yaml", "***") in values
    assert ("seen.yaml", "ours" if policy == "local" else "after") in values


SETTERS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: setters, annotations: {config.kubernetes.io/local-config: "true"}}
data: {NAME: VALUE}
"""
MARKED = PLAIN.replace("token: {v}", "token: {v} # kpt-set: ${{NAME}}\n  url: https://{u}")
IMAGE = "ghcr.io/kptdev/krm-functions-catalog/apply-setters:v0.2.2"


@pytest.mark.parametrize("of", ["package", "another setter", "no setter, beside a large file", "variant"])
def test_no_output_has_what_functions_that_wait_write_into_a_secret(tmp_path: Path, of: str) -> None:
    world = write_world(tmp_path / "w", (EDGE,))
    with world.edit("control", "large packages") as copy, (copy / "reconciler.yaml").open("a") as file:
        file.write("  limits: {packageFileBytes: 33554432, packageBytes: 33554432}\n")
    size, of = (17 << 20, of.partition(",")[0]) if "large" in of else (1, of)

    def propose(revision: int, value: str, name: str = "cred") -> None:
        with world.edit("blueprints", f"v{revision}") as copy:
            (copy / "web/large.bin").write_bytes(bytes(size))
            in_package = "placeholder" if of == "variant" else value
            text = MARKED.replace("NAME", name).replace("image: {v}", "image: x")
            text = text.partition(" # kpt-set")[0] + "\n  url: https://{u}\n" if of == "no setter" else text
            (copy / "web/secret.yaml").write_text(text.format(v=in_package, u=f"v{revision}.example.com"))
            if of != "variant":
                (copy / "web/setters.yaml").write_text(
                    SETTERS.replace("NAME", name).replace("VALUE", in_package)
                )
                pipeline = f"pipeline: {{mutators: [{{image: {IMAGE}, configPath: setters.yaml}}]}}\n"
                (copy / "web/Kptfile").write_text(f"{kptfile('web')}{pipeline}")
        Repo(world.root / "blueprints.git").tag(f"web/v{revision}")
        mutators = f"  pipeline: {{mutators: [{{image: {IMAGE}, configMap: {{{name}: {value}}}}}]}}\n"
        with world.edit("control", f"web v{revision}") as copy:
            text = variant(EDGE, "web", revision=revision)
            (copy / manifest(EDGE, "web")).write_text(text + mutators * (of == "variant"))

    propose(3, OLD)
    world.publish()
    with world.edit(EDGE, "Mine") as copy:
        path = copy / "web/secret.yaml"
        text = path.read_text().replace("v3.example.com", "mine.example.com")
        path.write_text(
            text.replace(f"token: {OLD}", f"token: {OUR}") if of in ("another setter", "no setter") else text
        )
    propose(4, NEW, "secondary" if of == "another setter" else "cred")

    before = leaking(world)
    assert world.run("apply", "--quiet").code == 7

    records = {"refs/heads/reconciler/fleet/state"} if of == "variant" else set()  # of what its manifest has
    assert (before.keys(), leaking(world).keys()) == (records, records)


def test_edit_that_makes_a_secret_of_a_draft_is_not_shown(world: World) -> None:
    """The draft of a person holds the Secret, and no side of the merge does."""
    with world.edit(EDGE, "Ours") as copy:
        (copy / "web/seen.yaml").write_text(CONFIG.format(name="seen", v="ours"))
    assert world.run("apply", "--quiet").code == 7
    with world.edit(EDGE, "Edit", branch=world.draft_branch(EDGE, "web")) as copy:
        text = CONFIG.format(name="seen", v=OUR) + "---\n" + SPELLINGS["flow"].format(v=OUR)
        (copy / "web/seen.yaml").write_text(text)

    before = leaking(world)
    world.run("apply", "--quiet")

    assert (before, leaking(world)) == ({}, {})


def test_function_that_prints_secrets_shows_none(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """One function makes another object of a Secret, and the next one says every value that it can find."""
    with world.edit("blueprints", "a function that talks") as copy:
        text = (copy / "web/Kptfile").read_text()
        (copy / "web/Kptfile").write_text(f"{text}pipeline:\n  mutators:\n{TURNS}  validators:\n{TALKS}")
    ask(world, 5)

    before = leaking(world)
    world.run("apply", "--quiet")
    assert "found" in world.run("plan").out
    with world.edit("blueprints", "Nothing") as copy:
        render = ["package", "render", str(copy / "web"), "--results-dir", str(world.root / "results")]
        assert [invoke([*render, "-o", output]) for output in ("text", "json")] == [3, 3]

    assert (before, leaking(world)) == ({}, {})
    said = capsys.readouterr()
    results = (world.root / "results/results.yaml").read_text()
    assert "***" in results
    assert leaks(said.out + said.err + results) == []


TURNS = """\
  - image: starlark:v0.5
    configMap:
      source: |
        for r in ctx.resource_list["items"]:
          if r["kind"] == "Secret" and r["metadata"]["name"] == "becomes":
            r["kind"] = "ConfigMap"
"""
TALKS = """\
  - image: starlark:v0.5
    configMap:
      source: |
        fail("found " + str(ctx.resource_list["items"]))
"""


def test_error_about_a_value_does_not_quote_it(world: World) -> None:
    with world.edit("blueprints", "broken") as copy:
        text = PLAIN.replace("{v}", f"!!int {NEW}", 1).format(v=NEW)
        (copy / "web/plain.yaml").write_text(text)
        (copy / "web/Kptfile").write_text(text)
    ask(world, 5)

    before = leaking(world)
    world.run("apply", "--quiet")

    assert (before, leaking(world)) == ({}, {})
