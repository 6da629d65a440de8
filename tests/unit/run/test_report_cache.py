"""Which reports are kept, and which changes outside of Git are noticed."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from reconciler.base.errors import Exit, Location
from reconciler.base.reasons import Reason
from reconciler.names.ids import Oid
from reconciler.names.problems import Problem
from reconciler.policy import VerifyRule
from reconciler.run import report_cache
from reconciler.run.apply import apply_plan
from reconciler.run.options import RunOptions
from reconciler.run.plan import PlannedRun, plan_run
from reconciler.run.report_cache import InputDigest, Report, ReportCache
from tests.support.git import Repo, run
from tests.support.small_world import write_world
from tests.support.values import replace

KIM = ("-c", "user.name=Kim", "-c", "user.email=kim@example.com")
PRINTED = ["Nothing to do\n", ("note", "It is old", "")]
SCHEDULE = "  pullRequests:\n    schedule:\n    - '* 8-16 * * *'\n    timezone: UTC\n"
MORNING, EVENING = 1_767_258_000.0, 1_767_294_000.0  # 9 and 19 o'clock


@pytest.fixture
def options(tmp_path: Path) -> RunOptions:
    """A world with nothing left to do."""
    return settle(tmp_path, "")


def settle(tmp_path: Path, configuration: str) -> RunOptions:
    write_world(tmp_path / "w", ("edge-1",))
    options = RunOptions(str(tmp_path / "w/control.git"), tmp_path / "cache")
    apply_plan(plan_run(options))
    if configuration:
        control = Repo(tmp_path / "w/control.git")
        text = control.read("main", "reconciler.yaml").decode() + configuration
        control.commit({"reconciler.yaml": text})
        apply_plan(plan_run(options))
    return options


def cache(options: RunOptions, environment: Mapping[str, str] | None = None, *question: str) -> ReportCache:
    return ReportCache(options, question or ("plan",), environment or {}, now=lambda: MORNING)


def keep(options: RunOptions, planned: PlannedRun | None = None) -> InputDigest:
    inputs = cache(options).inputs_of(planned or plan_run(options))
    assert inputs is not None
    cache(options).keep(inputs, PRINTED, Exit.DONE)
    assert cache(options).find() == Report(tuple(PRINTED), Exit.DONE)
    return inputs


@pytest.mark.parametrize("name", ["RECONCILER_INSTANCE", "PATH", "HOME", "ANY_TOKEN"])
def test_variable_is_an_input(name: str, options: RunOptions) -> None:
    keep(options)

    assert cache(options, {name: "another"}).find() is None


@pytest.mark.parametrize("name", sorted(report_cache.VOLATILE))
def test_name_of_a_pod_or_process_is_no_input(name: str, options: RunOptions) -> None:
    keep(options)

    assert cache(options, {name: "another"}).find() is not None


def test_nothing_reads_the_variables_that_are_no_input() -> None:
    package = Path(report_cache.__file__).parents[1]
    texts = [path.read_text() for path in package.rglob("*.py") if path.name != "report_cache.py"]

    names = report_cache.VOLATILE - {"_"}  # a shell's own, and the name of much else

    assert not [name for name in names if any(f'"{name}"' in text for text in texts)]


def test_variable_and_text_may_be_no_utf8(options: RunOptions) -> None:
    environment = {"LEGACY": "caf\udce9"}
    inputs = cache(options, environment).inputs_of(plan_run(options))
    cache(options, environment).keep(inputs, PRINTED, Exit.DONE)
    cache(options, environment, "-o", "odd\udce9").keep(inputs, [(False, "odd\udce9")], Exit.DONE)

    assert cache(options, environment).find() is not None
    assert cache(options, environment, "-o", "odd\udce9").find() is None


def test_code_of_the_program_is_an_input(
    options: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "code/deep/module.py"
    module.parent.mkdir(parents=True)
    module.write_text("ONE = 1\n")
    monkeypatch.setattr(report_cache, "_CODE", (tmp_path / "code",))
    keep(options)
    module.write_text("ONE = 10\n")

    assert cache(options).find() is None


def test_program_that_a_run_calls_is_an_input(
    options: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setattr(report_cache, "_TOOLS", (str(tool),))
    keep(options)
    tool.write_text("#!/bin/bash\n")

    assert cache(options).find() is None


@pytest.mark.parametrize(
    "setting",
    ["credentials:\n  - prefix: https://h\n    tokenFile: {}", "functions:\n    exec:\n      f: {}"],
)
def test_file_that_the_configuration_names_is_an_input(setting: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    options = settle(tmp_path, f"  {setting.format(file)}\n")
    keep(options)
    file.write_text("new and longer")

    assert cache(options).find() is None


def test_directory_of_the_command_is_part_of_the_question(
    options: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(options)
    monkeypatch.chdir(tmp_path)

    assert cache(options).find() is None


def test_uncommitted_file_of_a_working_copy_is_an_input(options: RunOptions, tmp_path: Path) -> None:
    run("clone", "-q", options.control, str(tmp_path / "copy"), cwd=tmp_path)
    options = replace(options, control=str(tmp_path / "copy"))
    keep(options)
    (tmp_path / "copy/manifests/new.yaml").write_text("kind: Repository\n")

    assert cache(options).find() is None


def test_branch_of_a_working_copy_is_an_input(options: RunOptions, tmp_path: Path) -> None:
    run("clone", "-q", options.control, str(tmp_path / "copy"), cwd=tmp_path)
    options = replace(options, control=str(tmp_path / "copy"))
    keep(options)
    run("checkout", "-q", "-b", "next", cwd=tmp_path / "copy")

    assert cache(options).find() is None


def test_commit_of_a_working_copy_that_is_not_pushed_is_an_input(options: RunOptions, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    run("clone", "-q", options.control, str(copy), cwd=tmp_path)
    options = replace(options, control=str(copy))
    (copy / "README.md").write_text("Ours\n")
    run("add", "README.md", cwd=copy)
    run(*KIM, "commit", "-qm", "Ours", cwd=copy)
    keep(options)
    run(*KIM, "commit", "-q", "--amend", "--reset-author", "-m", "Ours again", cwd=copy)

    assert cache(options).find() is None


def test_schedule_is_computed_again(tmp_path: Path) -> None:
    options = settle(tmp_path, SCHEDULE)
    planned = plan_run(options)
    closed = planned.inputs.inventory.opening._replace(is_open=True, opens="")
    inventory = replace(planned.inputs.inventory, opening=closed)
    planned = replace(planned, inputs=replace(planned.inputs, inventory=inventory))
    keep(options, planned)

    evening = cache(options)
    evening.now = lambda: EVENING

    assert evening.find() is None


def test_commit_that_only_a_lock_names_must_still_be_there(options: RunOptions) -> None:
    inputs = keep(options)
    missing = (str(Path(options.control).with_name("blueprints.git")), Oid("0" * 40))
    watched = inputs.watched._replace(commits=(missing,))
    cache(options).keep(inputs._replace(watched=watched), PRINTED, Exit.DONE)

    assert cache(options).find() is None


def test_damaged_report_is_none(options: RunOptions, tmp_path: Path) -> None:
    keep(options)
    (file,) = (tmp_path / "cache/reports").iterdir()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)

    assert cache(options).find() is None


@pytest.mark.parametrize("code", [Exit.UNAVAILABLE, Exit.PARTIAL, Exit.REFUSED])
def test_report_of_a_run_that_may_end_differently_is_not_kept(code: Exit, options: RunOptions) -> None:
    inputs = cache(options).inputs_of(plan_run(options))
    cache(options).keep(inputs, PRINTED, code)

    assert cache(options).find() is None


def test_report_with_dependencies_that_have_no_answer_is_kept_until_they_may_have_one(tmp_path: Path) -> None:
    install = "apiVersion: pkg.crossplane.io/v1\nkind: Provider\nmetadata: {name: aws}\n"
    install += "spec: {package: 'x.example.com/acme/aws:v1.0.0'}\n"
    write_world(tmp_path / "w", ("edge-1",), more={"manifests/clusters/edge-1/aws.yaml": install})
    options = RunOptions(str(tmp_path / "w/control.git"), tmp_path / "cache")
    apply_plan(plan_run(options))
    planned = plan_run(options)
    cache(options).keep(cache(options).inputs_of(planned), PRINTED, Exit.INVALID_INPUT)

    assert [each.reason for each in planned.plan.problems] == [Reason.DEPENDENCY_CONFLICT]
    assert cache(options).find() == Report(tuple(PRINTED), Exit.INVALID_INPUT)
    Repo(tmp_path / "w/control.git").commit({"index/README.md": b"Another commit\n"})
    assert cache(options).find() is None


def test_large_report_is_not_kept(options: RunOptions) -> None:
    inputs = cache(options).inputs_of(plan_run(options))
    cache(options).keep(inputs, [(False, "x" * (5 << 20))], Exit.DONE)

    assert cache(options).find() is None


def test_number_of_kept_reports_is_limited(options: RunOptions, tmp_path: Path) -> None:
    inputs = cache(options).inputs_of(plan_run(options))
    for number in range(40):
        cache(options, None, str(number)).keep(inputs, PRINTED, Exit.DONE)

    assert len(list((tmp_path / "cache/reports").iterdir())) == 32


def changed(planned: PlannedRun) -> Iterator[PlannedRun]:
    """Yield runs whose reports must not be kept."""
    inventory = planned.inputs.inventory
    rule = VerifyRule(prefix="https://host.example/", ssh_keys=("ssh-ed25519 AAAA",))
    for values in (
        {"policy": replace(inventory.policy, verify=(rule,))},
        {"is_history_due": True},
        {"problems": (Problem(Location("manifests/web.yaml"), Reason.INVALID_MANIFEST, "It is wrong"),)},
        {"now": 1},
        {"unreadable_pulls": {"url": ()}},
        {"control": replace(inventory.control, state=None)},
        {"control": replace(inventory.control, status=None)},
    ):
        yield replace(planned, inputs=replace(planned.inputs, inventory=replace(inventory, **values)))
    yield replace(planned, inputs=replace(planned.inputs, opened=None))
    yield replace(planned, inputs=replace(planned.inputs, forges=_Unread()))


class _Unread:
    """Forges of which a read failed."""

    def reads(self) -> None:
        return None


def test_report_with_inputs_that_cannot_be_judged_is_not_kept(options: RunOptions) -> None:
    planned = plan_run(options)

    assert cache(options).inputs_of(planned) is not None
    for each in changed(planned):
        assert cache(options).inputs_of(each) is None
