"""Durations of a run, as lines and as a value: all that was measured, and nothing that was not."""

from reconciler.report.timings import SLOWEST, StageDuration, Timings, Work, timings_lines, timings_value

WORKS = tuple(
    Work(f"edge/web-{number:02}", 1 + number, 9.00049 - number / 2) for number in range(SLOWEST + 2)
)
ALL = Timings(
    12.3456, 3.4567, 300 << 20, (StageDuration("read", 0.5004, 3), StageDuration("plan", 1.25)),
    WORKS, WORKS[:1], Work("git", 1, 0.12345), Work("forge", 2, 1.5),
)  # fmt: skip
HEAD = ["", "Time: 12.35 s, of which CPU 3.46 s; at most 300 MiB of memory"]
STAGES = ["STAGE  TIME     RESULTS", "read   0.500 s  3", "plan   1.250 s  0"]


def test_lines_have_stages_commands_requests_and_the_slowest() -> None:
    slowest = [f"edge/web-{n:02}       {9 - n / 2:.3f} s  {1 + n}" for n in range(SLOWEST)]

    assert list(timings_lines(ALL)) == [
        *HEAD, *STAGES,
        "", "Git: 1 command, 0.123 s", "Forges: 2 requests, 1.500 s",
        "", "SLOWEST PACKAGES  TIME     RUNS", *slowest,
        "", "SLOWEST FUNCTIONS  TIME     RUNS", "edge/web-00        9.000 s  1",
    ]  # fmt: skip


def test_lines_leave_out_what_nothing_was_done_for() -> None:
    without = ALL._replace(packages=(), functions=(), git=Work("git", 0, 0.0))

    assert list(timings_lines(without)) == [
        *HEAD,
        *STAGES,
        "",
        "Git: 0 commands, 0.000 s",
        "Forges: 2 requests, 1.500 s",
    ]
    assert list(timings_lines(without._replace(forge=Work("forge", 0, 0.0)))) == [*HEAD, *STAGES]


def test_value_has_the_same_to_the_millisecond() -> None:
    value = timings_value(ALL)

    assert [value.pop(name) for name in ("packages", "functions")] == [
        [{"name": work.name, "runs": work.runs, "seconds": round(work.seconds, 3)} for work in works]
        for works in (WORKS[:SLOWEST], WORKS[:1])
    ]
    assert value == {
        "seconds": 12.346,
        "cpuSeconds": 3.457,
        "peakBytes": 300 << 20,
        "stages": [
            {"name": "read", "seconds": 0.5, "items": 3},
            {"name": "plan", "seconds": 1.25, "items": 0},
        ],
        "git": {"name": "git", "runs": 1, "seconds": 0.123},
        "forge": {"name": "forge", "runs": 2, "seconds": 1.5},
    }
