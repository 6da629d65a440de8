"""Options and profiles of the whole suite."""

import gc
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from reconciler.base import redact
from tests.support.ci import need
from tests.support.notes import VARIABLE
from tests.support.samples import pick

KEPT = re.compile(
    r"PATH|PYTHONPATH|TERM|TMPDIR|TZ|CI|SUDO_UID|DOCKER_HOST|XDG_RUNTIME_DIR|(?i:https?|all)_(?i:proxy)"
    r"|(COV|COVERAGE|HYPOTHESIS|PIP|PYTEST|SSL)_\w+"
    r"|RECONCILER_(ADMISSION_SUITES|CONFORMANCE|CONTAINERS|CORPUS|ECOSYSTEM|ECOSYSTEM_ALL|FAULTS|FAULTS_SEED|FLEET|FUZZ|GITEA_TOKEN"
    r"|GITEA_URL|GRAPHQL_SCHEMA|IMAGE|LIVES|README|RECIPES|SAMPLE|SEED|SHRINK_SECONDS|SLOW|SOAK_MINUTES|TEST_ORDER"
    r"|TRACE)"
)
"""Variables that tests see. No setting of Git or of ours, token, colour or language of a person counts."""
MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that must be free in memory: a run of the whole suite holds less than a quarter of them."""
ORDER = "RECONCILER_TEST_ORDER"
FORGES = ("github", "gitea", "gitlab", "azure", "bitbucket")
FUZZ = int(os.environ.get("RECONCILER_FUZZ", "1"))

SCRATCH = pytest.StashKey[str]()

settings.register_profile(
    "default",
    deadline=None,  # the machine's speed is nobody's fault
    derandomize=True,  # CI must not fail by luck; `make laws` looks further
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("fuzz", settings.get_profile("default"), derandomize=False, max_examples=100 * FUZZ)
settings.load_profile("fuzz" if FUZZ > 1 else "default")
if FUZZ <= 1:
    # Else constants of imported modules are drawn: examples would depend on what a worker ran before.
    vars(providers)["is_local_module_file"] = lambda _: False


def pytest_configure(config: pytest.Config) -> None:
    # Compiled modules take half a minute from a run of the whole suite, whatever the environment says.
    sys.dont_write_bytecode = False
    if not hasattr(config, "workerinput"):  # the workers of pytest-xdist inherit the controller's environment
        config.add_cleanup(partial(_restore_environment, dict(os.environ)))
        for name in set(os.environ) - set(filter(KEPT.fullmatch, os.environ)):
            del os.environ[name]
        if "TMPDIR" not in os.environ and not config.option.basetemp and _has_room():
            _remove_scratch_of_killed_runs()
            scratch = tempfile.mkdtemp(dir=MEMORY, prefix=f"t-{os.getpid()}-")
            config.stash[SCRATCH] = os.environ["TMPDIR"] = scratch
            tempfile.tempdir = None
        home = tempfile.mkdtemp(prefix="home-")
        config.add_cleanup(partial(shutil.rmtree, home, ignore_errors=True))
        # No repository lives so long that it needs to be repacked, and each push would look whether it does.
        Path(home, ".gitconfig").write_text(
            "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[receive]\n\tautogc = false\n", encoding="utf-8"
        )
        os.environ |= {"HOME": home, "LANG": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"}
        os.environ |= dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
        descriptor, os.environ[VARIABLE] = tempfile.mkstemp(prefix="test-notes-")
        os.close(descriptor)


def _has_room() -> bool:
    """Tell whether scratch files can be in memory: on a disk, tests wait for it half of their time."""
    if not os.access(MEMORY, os.W_OK):
        return False
    there = os.statvfs(MEMORY)
    return there.f_bavail * there.f_frsize >= ROOM and not there.f_flag & os.ST_NOEXEC


def _restore_environment(before: dict[str, str]) -> None:
    """Let what runs later in this process choose its own directory: a process can hold several runs."""
    os.environ.clear()
    os.environ |= before
    tempfile.tempdir = None


def _remove_scratch_of_killed_runs() -> None:
    for scratch in MEMORY.glob("t-*-*"):
        owner = scratch.name.split("-")[1]
        if owner.isdecimal() and not Path("/proc", owner).exists() and os.access(scratch, os.W_OK):
            shutil.rmtree(scratch, ignore_errors=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Leave what a failed test left until the next run, and nothing else."""
    scratch = session.config.stash.get(SCRATCH, None)
    if scratch and exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        session.config.add_cleanup(lambda: shutil.rmtree(scratch, ignore_errors=True))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run one worker more than there are cores: where a test waits, its processes mostly work."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run files, and the tests in each, in the order that RECONCILER_TEST_ORDER draws: none depends on it.

    What is marked `one_forge` runs on one of its forges, other tests on others; of two it runs on both.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        forge = next((kind for kind in FORGES if kind in re.split(r"\W", item.name)), "")
        if forge and item.get_closest_marker("one_forge"):
            cases.setdefault(item.nodeid.replace(forge, ""), []).append(item)
    several = {case: own for case, own in cases.items() if len(own) > 2}
    left_out = {item for case, own in several.items() for item in own if item not in pick(own, case)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    if seed := os.environ.get(ORDER):
        place = {item.path: random.Random(f"{seed} {item.path.name}").random() for item in items}
        items.sort(key=lambda item: (place[item.path], random.Random(f"{seed} {item.nodeid}").random()))


def pytest_collection_finish() -> None:
    # What is imported and collected lives to the end, and what tests make has few cycles: looking for them
    # seldom, and at that alone, takes an eighth of the CPU time from a run.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        need(*marker.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    reports = terminalreporter.stats.get("skipped", ())
    # What stands in parentheses tells the cases of one need apart, such as the vectors that are absent.
    reasons = (report.longrepr[2].removeprefix("Skipped: ").partition(" (")[0] for report in reports)
    if skipped := Counter(reasons):
        terminalreporter.section("what was not tried")
        for reason, number in sorted(skipped.items()):
            terminalreporter.line(f"{number} {reason}")
        terminalreporter.line(
            "A full run: .ci/run installs the programs, docs/contributing/tests.md names folders."
        )
    notes = Path(os.environ.pop(VARIABLE))
    if lines := notes.read_text(encoding="utf-8").splitlines():
        terminalreporter.section("what was measured")
        for line in sorted(lines):
            terminalreporter.line(line)
    notes.unlink()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected files of fixtures/worlds"
    )


@pytest.fixture(autouse=True)
def forget_credentials() -> Iterator[None]:
    """Forget what a test made the process mask: a credential "second" would mask words of others.

    Names are forgotten before, too: those of a run that a fixture of a module made would be shown.
    """
    known = redact._IN_USE.values.copy()
    redact._IN_USE.__dict__.update(redact._Credentials().__dict__, values=known.copy())
    yield
    redact._IN_USE.__dict__.update(redact._Credentials().__dict__, values=known)


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def project_root() -> Path:
    return Path(__file__).resolve().parent.parent
