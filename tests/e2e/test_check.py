"""`check` as a process, on real repositories: what a reviewer reads before merging."""

import html
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from tests.support.command_server import run_reconciler
from tests.support.git import Repo, kptfile
from tests.support.http_git import serve
from tests.support.small_world import CONFIGURATION, EDGES, manifest, repository, variant, write_world
from tests.support.world import git

BROKEN = "kind: [broken\n"


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        return self.out.splitlines()[-1]

    @property
    def effect(self) -> str:
        """The report below the line that names both sides."""
        first, rest = self.out.split("\n", 1)
        assert re.fullmatch(r"compared  (\S+@)?[0-9a-f]{12} -> (\S+@)?[0-9a-f]{12}", first), first
        return rest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_world(tmp_path / "w")
    return tmp_path / "w"


def run(root: Path, *arguments: str, **environment: str) -> Said:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "CI_", "RECONCILER_"))}
    own = {"XDG_CACHE_HOME": str(root / "cache"), **environment}
    ran = run_reconciler(arguments, cwd=root, env={**clean, **own})
    assert "Traceback" not in ran.stderr, ran.stderr
    return Said(ran.returncode, ran.stdout, ran.stderr)


def propose(root: Path, changes: dict[str, str | None], branch: str = "feature") -> Repo:
    control = Repo(root / "control.git")
    control.commit(changes, branch=branch, start="main")
    return control


def check(root: Path, *arguments: str, **environment: str) -> Said:
    return run(root, "check", "--control", "control.git", "--head", "feature", *arguments, **environment)


def test_every_form_of_the_report_names_what_was_compared(root: Path, tmp_path: Path) -> None:
    control = propose(root, {manifest("edge-1", "web"): variant("edge-1", "web", revision=2)})
    base, head = control.oid("main"), control.oid("feature")
    compared = f"main@{base[:12]} -> feature@{head[:12]}"
    control.commit({"README.md": "meanwhile\n"})
    page, summary = tmp_path / "check.html", tmp_path / "summary.md"

    text = check(root, "--html", str(page), GITHUB_STEP_SUMMARY=str(summary)).out
    value = json.loads(check(root, "--output", "json").out)
    sarif = json.loads(check(root, "--output", "sarif").out)

    assert text.splitlines()[0] == f"compared  {compared}"
    assert (value["base"], value["head"]) == (
        {"branch": "main", "commit": base},
        {"branch": "feature", "commit": head},
    )
    assert sarif["runs"][0]["properties"] == dict(zip(("base", "head"), compared.split(" -> "), strict=True))
    assert f"Compared: `{compared}`." in check(root, "--output", "markdown").out
    assert f"Compared: `{compared}`." in summary.read_text()
    assert f"Compared: {compared}" in html.unescape(page.read_text())


def test_only_new_problems_fail(root: Path) -> None:
    control = Repo(root / "control.git")
    control.commit({"manifests/old.yaml": BROKEN})
    propose(root, {"README.md": "words\n"})
    before = check(root)
    propose(root, {"manifests/new.yaml": BROKEN})
    after = check(root)

    assert (before.code, before.last) == (0, "Problems: 1 there before")
    assert (after.code, after.last) == (3, "Problems: 1 new, 1 there before")
    assert check(root, "--strict").code == 3


@pytest.mark.parametrize("level", ["fleet", "manifests"])
def test_a_wrong_repository_is_one_problem_however_many_need_it(root: Path, level: str) -> None:
    one, other = (variant(edge, "new").replace("blueprints", "odd") for edge in ("edge-1", "edge-2"))
    wrong: dict[str, str | None] = {manifest("edge-1", "new"): one}
    wrong["manifests/repositories/odd.yaml"] = repository("odd").replace("type: git", "type: oci")
    control = propose(root, wrong)
    before = check(root, "--level", level)
    control.commit(wrong)
    propose(root, {manifest("edge-2", "new"): other}, "more")
    after = run(root, "check", "--control", "control.git", "--head", "more", "--level", level)

    assert (before.code, before.last) == (3, "Problems: 1 new")
    assert (after.code, after.last) == (0, "Problems: 1 there before")


@pytest.mark.parametrize("name", ["blueprints", "edge-1"])
def test_a_repository_that_nobody_registered_is_a_problem_at_each_level(root: Path, name: str) -> None:
    """Which Repositories there are is in the manifests, so nothing needs to be read for it."""
    text = variant("edge-1", "new").replace(f"repo: {name}\n", f"repo: {name}x\n")
    propose(root, {manifest("edge-1", "new"): text})

    fleet, manifests = (check(root, "--level", level) for level in ("fleet", "manifests"))

    named, again = (
        [line for line in said.out.splitlines() if "RepositoryNotFound:" in line or "hint:" in line]
        for said in (fleet, manifests)
    )
    assert [line.partition(": ")[0] for line in named] == ["problem", "  hint"]
    assert named == again
    assert (manifests.code, manifests.last) == (3, "Problems: 1 new")


def test_a_directory_that_is_a_package_is_one_problem_of_its_repository(root: Path) -> None:
    run(root, "apply", "--control", "control.git")
    Repo(root / "edge-1.git").commit({"web/Kptfile": kptfile("web")})
    path = "manifests/repositories/edge-1.yaml"
    propose(root, {path: f"{repository('edge-1')}    directory: web\n"})

    said = check(root)

    assert (said.code, said.last) == (3, "Problems: 1 new")
    assert f"problem: {path}:12:16: InvalidManifest: directory web is a package on branch main" in said.out


@pytest.mark.parametrize("what", ["directory: web", "branch: gone"])
def test_place_of_a_problem_is_that_of_the_change_though_both_commits_have_one_time(
    root: Path, what: str
) -> None:
    run(root, "apply", "--control", "control.git")
    Repo(root / "edge-1.git").commit({"web/Kptfile": kptfile("web")})
    path = "manifests/repositories/edge-1.yaml"
    text = repository("edge-1").replace("    branch: main\n", "") + f"    {what}\n"
    control = Repo(root / "control.git")
    control.commit({path: text})
    propose(root, {path: text.replace("  git:\n", "  git:\n    # one line more\n")})
    times = {control.git[control.oid(ref)].commit_time for ref in ("main", "feature")}

    said = check(root)

    assert len(times) == 1
    assert f"{path}:{len(text.splitlines()) + 1}:" in said.out + said.err


def test_a_stalled_set_or_variant_deletes_nothing(root: Path) -> None:
    run(root, "apply", "--control", "control.git")
    propose(root, {manifest("edge-1", "web"): BROKEN})

    said = check(root)

    assert said.code == 3
    assert "Merging this changes no package" in said.out
    assert "keep      PackageVariant default/web-edge-1" in said.out


def test_manifests_alone_need_no_other_repository(root: Path) -> None:
    run(root, "apply", "--control", "control.git")
    propose(root, {manifest("edge-1", "web"): variant("edge-1", "web", revision=2)})
    for repo in ("blueprints", *EDGES):
        (root / f"{repo}.git").rename(root / f"{repo}.away")

    asked = check(root, "--level", "manifests")
    auto = check(root)
    fleet = check(root, "--level", "fleet")

    assert asked.last == "Merging this changes 1 PackageVariant, and packages were not compared"
    assert auto.last == f"{asked.last}: 4 repositories were not read"
    assert (asked.code, auto.code, fleet.code) == (0, 0, 5)
    assert asked.out.count("not read:") == 0
    assert auto.out.count("not read:") == 4
    assert json.loads(check(root, "--output", "json").out)["complete"] is False


@pytest.mark.parametrize("source", ["tokenEnv: FLEET_TOKEN", "APP", "tokenFile: /nonexistent/token"])
def test_a_check_without_credentials_leads_to_the_second_level_and_asks_for_no_secret(
    root: Path, source: str, project_root: Path
) -> None:
    control = Repo(root / "control.git")
    app = 'appId: "1"\n    installationId: "2"\n    appKeyEnv: RECONCILER_APP_KEY'
    rule = f"  credentials:\n  - prefix: https://git.example.com/\n    {app if source == 'APP' else source}\n"
    configuration = control.read("main", "reconciler.yaml").decode() + rule
    private = {
        f"manifests/repositories/{name}.yaml": repository(name).replace("../", "https://git.example.com/")
        for name in ("blueprints", *EDGES)
    }
    control.commit({"reconciler.yaml": configuration, **private})
    propose(root, {manifest("edge-1", "web"): variant("edge-1", "web", revision=2)})

    asked, auto, fleet = (check(root, "--level", level) for level in ("manifests", "auto", "fleet"))
    summary = check(root, "--output", "markdown").out

    assert (asked.code, auto.code, fleet.code) == (0, 0, 5)
    assert "not read" not in asked.out, "what was not to be read is no news"
    assert auto.out.count("not read: ") == 4
    hints = set(re.findall(r"hint: (.*)", auto.out))
    assert [re.findall(r"docs/\S+\.md", hint) for hint in hints] == [["docs/guides/pre-merge-check.md"]]
    assert "Only manifests were compared" in summary
    assert not re.search(r"\bSet\b", auto.out + summary), "whoever proposes a change could take that secret"
    assert (project_root / "docs/guides/pre-merge-check.md").is_file()
    assert "  hint: Set " in fleet.out, "the second check needs what it has not"


def test_the_base_decides_credentials_what_is_executed_and_whom_to_talk_to(root: Path) -> None:
    control = Repo(root / "control.git")
    with serve(root) as server:
        stolen = control.read("main", "reconciler.yaml").decode() + (
            f"  credentials:\n  - prefix: {server.address}\n    tokenEnv: PRECIOUS\n"
        )
        evil = repository("evil").replace("../evil.git", server.url("edge-1.git"))
        propose(root, {"reconciler.yaml": stolen, "manifests/evil.yaml": evil})

        said = check(root, PRECIOUS="a-precious-token")
        more = {manifest("edge-1", "web"): variant("edge-1", "web", revision=2)}
        control.commit(more, branch="more", start="feature")
        line = ("check", "--control", "control.git", "--base", "feature", "--head", "more")
        based = run(root, *line, PRECIOUS="a-precious-token")
        asked = list(server.requests)

    assert (asked, "RepositoryRefused: " in based.out) == ([], True), based
    assert "RepositoryRefused: " in said.out
    assert "that the merged configuration does not name" in said.out
    assert said.code == 3


def test_repository_that_main_registers_is_read_wherever_it_is(root: Path) -> None:
    control = Repo(root / "control.git")
    with serve(root) as server:
        remote = repository("blueprints").replace("../blueprints.git", server.url("blueprints.git"))
        control.commit({"manifests/repositories/blueprints.yaml": remote})
        run(root, "apply", "--control", "control.git")
        propose(root, {manifest("edge-1", "web"): variant("edge-1", "web", revision=2)})
        update = check(root)
        propose(root, {manifest("edge-1", "web"): variant("edge-1", "web", revision=9)})
        missing = check(root)

    assert (update.code, update.last) == (0, "Merging this updates 1 package")
    assert missing.code == 3
    assert "UpstreamNotFound" in missing.out


def test_the_first_configuration_can_be_checked(tmp_path: Path) -> None:
    write_world(tmp_path / "w")
    control = Repo(tmp_path / "w/control.git")
    control.point("refs/heads/feature", control.oid("main"))
    control.commit({"reconciler.yaml": None}, branch="main")
    control.point("refs/heads/main", control.write(control.tree("main"), [control.oid("feature")]))
    control.commit(
        {"reconciler.yaml": control.read("feature", "reconciler.yaml")}, branch="again", start="main"
    )

    said = run(tmp_path / "w", "check", "--control", "control.git", "--head", "again")

    assert said.last == "Merging this creates 6 drafts in 3 repositories"


def test_a_runner_gets_annotations_summary_outputs_and_reports(root: Path, tmp_path: Path) -> None:
    hostile = 'a"%0A::set-output name=x::y'
    propose(
        root,
        {
            "manifests/bad,line=9.yaml": BROKEN,
            **{f"manifests/bad-{n}.yaml": BROKEN for n in range(14)},
            "manifests/name.yaml": variant("edge-1", "web").replace("name: web-edge-1", f"name: '{hostile}'"),
        },
    )
    summary, out = tmp_path / "summary.md", tmp_path / "out"
    files = ("--json-file", str(tmp_path / "r.json"), "--sarif-file", str(tmp_path / "r.sarif"))

    said = check(
        root, *files, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary), GITHUB_OUTPUT=str(out)
    )

    commands = [line for line in said.out.splitlines() if line.startswith("::")]
    assert len(commands) == 10
    assert commands[-1].endswith("::7 more in the job summary")
    assert any("file=manifests/bad%2Cline=9.yaml,line=2" in line for line in commands)
    assert not any(line.startswith("::set-output") for line in said.out.splitlines())
    assert "### Problems of this change" in summary.read_text()
    outputs = out.read_text()
    delimiters = re.findall(r"<<(end-[0-9a-f]{32})\n", outputs)
    assert len(set(delimiters)) == len(delimiters) == 4
    assert json.loads((tmp_path / "r.json").read_text())["kind"] == "Comparison"
    sarif = json.loads((tmp_path / "r.sarif").read_text())
    assert len([r for r in sarif["runs"][0]["results"] if r["level"] == "error"]) == 16
    propose(root, {"reconciler.yaml": CONFIGURATION.replace("manifests:", "manifest:")})
    unusable = check(root, GITHUB_ACTIONS="true", GITHUB_OUTPUT=str(out))
    place = "::error col=3,file=reconciler.yaml,line=6,title=InvalidManifest"
    assert unusable.out == f"{place}::Unknown field spec.manifest. Did you mean manifests?\n"
    assert out.read_text().removeprefix(outputs).splitlines()[1] == "3"


@pytest.mark.parametrize(
    "filters", [(), ("--filter=blob:none",)], ids=["shallow", "shallow and without blobs"]
)
def test_a_shallow_checkout_of_a_pull_request_gets_what_it_lacks(
    root: Path, tmp_path: Path, filters: tuple[str, ...]
) -> None:
    """As actions/checkout leaves it: one commit, detached, of a merge that no branch holds."""
    control = propose(root, {manifest("edge-1", "web"): None})
    control.commit({"README.md": "meanwhile\n"})
    merged = control.merge("feature", into="main")
    control.point("refs/pull/1/merge", merged)
    control.point("refs/heads/main", str(control.git[merged].parents[0].id))
    control.git.config["uploadpack.allowFilter"] = True
    with serve(root) as server:
        copy = tmp_path / "copy"
        subprocess.run(["git", "init", "-q", str(copy)], check=True)
        git = ["git", "-C", str(copy)]
        subprocess.run([*git, "remote", "add", "origin", server.url("control.git")], check=True)
        fetch = [*git, "fetch", "-q", "--no-tags", "--depth=1", *filters, "origin"]
        subprocess.run([*fetch, "+refs/pull/1/merge:refs/remotes/pull/1/merge"], check=True)
        subprocess.run([*git, "checkout", "-q", "--force", "refs/remotes/pull/1/merge"], check=True)

        said = run(root, "check", "--control", str(copy), GITHUB_BASE_REF="main")

    assert said.last == "Merging this ends 1 pending change", said
    assert said.code == 0
    assert "not pushed" not in said.err, "the forge made that commit, and has a ref for it"


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("GITHUB_EVENT_NAME", "pull_request"),
        ("GITHUB_EVENT_NAME", "pull_request_target"),
        ("GITHUB_EVENT_NAME", "merge_group"),
        ("CI_PIPELINE_SOURCE", "merge_request_event"),
    ],
)
def test_apply_refuses_in_a_run_for_a_pull_request(root: Path, name: str, event: str) -> None:
    before = {path.name: Repo(path).refs() for path in root.glob("*.git")}

    said = run(root, "apply", "--control", "control.git", **{name: event})

    assert said.code == 4
    assert {path.name: Repo(path).refs() for path in root.glob("*.git")} == before


class Fault(NamedTuple):
    """What keeps a draft from being ready: in the manifest of a variant, and in revision 3 of its upstream.

    `offline` tells that settings and manifests alone show it. `line` is the one of the manifest.
    """

    message: str
    hint: str
    line: int
    spec: str = ""
    upstream: Mapping[str, str] = MappingProxyType({})
    offline: bool = False
    effect: str = "Merging this creates 1 draft in 1 repository, 1 not ready"


CATALOG = "ghcr.io/kptdev/krm-functions-catalog"
PIPELINE = "  pipeline:\n    {stage}:\n    - image: {image}\n"
KPTFILE = kptfile("web") + "pipeline:\n  mutators:\n  - image: {image}\n"
POINT = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: region
  annotations:
    kpt.dev/config-injection: required
"""
UPSTREAM = 8
FAULTS = {
    "unknown function": Fault(
        f"PackageVariant default/web-new: {CATALOG}/apply-setter:v0.2.0 cannot run: it is not built in",
        f"Did you mean {CATALOG}/apply-setters:v0.2.0?",
        16,
        PIPELINE.format(stage="mutators", image=f"{CATALOG}/apply-setter:v0.2.0"),
        offline=True,
    ),
    "refused configuration": Fault("set-namespace:v0.4.1: data.namespaces is no field of set-namespace",
        "Did you mean namespace?", 17,
        PIPELINE.format(stage="mutators",
        image="set-namespace:v0.4.1") + "      configMap: {namespaces: a}\n", offline=True),
    "failing validator": Fault(
        "edge-1/new would not be ready: Functions failed: validators[0]: starlark:v0.5: ",
        "",
        16,
        PIPELINE.format(stage="validators", image="starlark:v0.5")
        + "      configMap: {source: \"fail('no')\"}\n",
    ),
    "unknown function of upstream": Fault(
        "edge-1/new would not be ready: apply-setter:v0.2 cannot run: It is not built in",
        "Did you mean apply-setters:v0.2?",
        UPSTREAM,
        upstream={"web/Kptfile": KPTFILE.format(image="apply-setter:v0.2")},
    ),
    "required injection without an object": Fault(
        "edge-1/new would not be ready: config.injection.ConfigMap.region: no injectors defined",
        "Add the object to the snapshot",
        UPSTREAM,
        upstream={"web/region.yaml": POINT},
    ),
}  # fmt: skip


@pytest.fixture
def faulty(root: Path, request: pytest.FixtureRequest) -> Fault:
    """A variant `new` of revision 3 on branch `feature`."""
    fault: Fault = request.param
    blueprints = Repo(root / "blueprints.git")
    blueprints.commit({**fault.upstream, "web/more.yaml": "a: b\n"})
    blueprints.tag("web/v3")
    text = variant("edge-1", "web", revision=3).replace("    package: web\n", "    package: new\n")
    text = text.replace("package: new\n    revision", "package: web\n    revision")
    propose(root, {"manifests/new.yaml": text.replace("name: web-edge-1", "name: web-new") + fault.spec})
    return fault


@pytest.mark.parametrize("faulty", FAULTS.values(), ids=list(FAULTS), indirect=True)
def test_what_makes_a_new_draft_unready_is_a_problem_of_the_change(root: Path, faulty: Fault) -> None:
    run(root, "apply", "--control", "control.git")
    said, manifests = check(root), check(root, "--level", "manifests")
    Repo(root / "control.git").point("refs/heads/main", Repo(root / "control.git").oid("feature"))
    propose(root, {"README.md": "words\n"}, branch="after")
    after = run(root, "check", "--control", "control.git", "--head", "after")
    strict = run(root, "check", "--control", "control.git", "--head", "after", "--strict")

    assert (said.code, said.last) == (3, "Problems: 1 new"), said
    (line,) = [line for line in said.out.splitlines() if line.startswith("problem: ")]
    assert line.startswith(f"problem: manifests/new.yaml:{faulty.line}:")
    assert faulty.message in line
    assert (
        f"  hint: {faulty.hint}" in said.out or not faulty.hint
    )  # a failing function says itself what it lacks
    assert faulty.effect in said.out
    assert manifests.code == (3 if faulty.offline else 0)
    assert faulty.message in manifests.out or not faulty.offline  # known only where the package is rendered
    assert (after.code, strict.code) == (0, 3), after
    assert after.last == "Problems: 1 there before"
    assert f"was there before: manifests/new.yaml:{faulty.line}:" in after.out


@pytest.mark.parametrize(
    ("lines", "arguments", "message", "hint"),
    [
        ("remote remove origin", "", "has no default branch", "`git switch -c change`. Then run"),
        ("remote remove origin;branch change", "--base main", "with itself",
            "too: --base main --head change"),
        ("commit --allow-empty -m x;push;reset --hard HEAD~1", "", "is 1 commit behind", "Run `git pull`"),
        ("checkout --detach;push origin main:change", "", "are one commit", "--head change"),
        ("branch change;commit --allow-empty -m x;push origin main;switch change", "",
            "change is in main already", "Commit the change on change first."),
        ("switch -c change;commit --allow-empty -m x;push origin change;switch main", "--base change",
            "main is in change already", "Did you mean --base main --head change?"),
        ("commit --allow-empty -m x", "--base mian", "no branch or commit mian", "Did you mean main?"),
    ],
)  # fmt: skip
def test_check_without_two_sides_is_refused(
    root: Path, lines: str, arguments: str, message: str, hint: str
) -> None:
    copy = root / "copy"
    git(root, "clone", "-q", str(root / "control.git"), str(copy))
    for line in lines.split(";"):
        git(copy, *line.split())

    said = run(root, "check", "--control", "copy", *arguments.split())

    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert hint in said.err.partition("hint: ")[2]
