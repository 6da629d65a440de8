"""The registry of faults: one row per fault, what is promised after it, and the test that tries it."""

from typing import NamedTuple


class Row(NamedTuple):
    """One fault. `test` is `file::function`; its cases or recorded points are the points tried.

    Rows that differ in `where` only are one row of the table.
    """

    fault: str
    promise: str
    test: str
    where: str = ""


WORLDS = {
    "ungrouped": "a pull request per package",
    "grouped": "a pull request per repository",
    "locks": "reviewed locks and deliveries",
}
FORGES = {
    "github": "GitHub",
    "gitlab": "GitLab",
    "gitea": "Gitea",
    "azure": "Azure DevOps",
    "bitbucket": "Bitbucket Cloud",
}
EFFECT_FAULTS = {
    "kill": "`kill -9` before and after every effect",
    "term": "SIGTERM before and after every effect",
    "disk": "no free space on the disk of cache and repositories, from every effect on",
    "size": "no file may be written (`ulimit -f 0`), from every effect on",
    "descriptors": "no file descriptor is left, from every effect on",
    "few-descriptors": "eight file descriptors are left, from every effect on",
}
_SAME = "the next run ends with the refs of an undisturbed one"
_TOLD = "what the report claims is true"
EFFECT_PROMISES = {
    "kill": _SAME,
    "term": f"the run ends between two effects with exit 6, or as usual after the last; {_TOLD}; {_SAME}",
    **dict.fromkeys(
        ("disk", "size", "descriptors", "few-descriptors"), f"exit 5 with a hint; {_TOLD}; {_SAME}"
    ),
}
_LOCAL = "test_after_a_fault_at_any_effect_the_next_run_ends_as_an_undisturbed_one"

_FORGE = "test_after_a_fault_at_any_effect_on_a_forge_the_next_run_ends_as_an_undisturbed_one"
_MACHINES = "tests/faults/test_two_machines.py"
_ONCE = "no pull request twice"


def _effect_rows() -> dict[str, Row]:
    local = {
        f"{fault}/local/{world}": Row(
            f"{what}, on the local forge",
            EFFECT_PROMISES[fault],
            f"tests/faults/test_effects.py::{_LOCAL}",
            about,
        )
        for fault, what in EFFECT_FAULTS.items()
        for world, about in WORLDS.items()
    }
    simulated = {
        f"{fault}/{kind}": Row(
            f"{what}, on a forge",
            f"{EFFECT_PROMISES[fault]}; {_ONCE}",
            f"tests/faults/test_forge_effects.py::{_FORGE}",
            forge,
        )
        for fault, what in EFFECT_FAULTS.items()
        for kind, forge in FORGES.items()
    }
    return local | simulated


def _machine_rows() -> dict[str, Row]:
    promise = f"each ends as usual or with exit 5 and a hint; {_SAME}; {_ONCE}"
    what = (
        "two machines with separate caches, each stopped once before a push or a request, in every schedule"
    )
    test = f"{_MACHINES}::test_two_machines_on_the_local_forge_do_what_one_does"
    rows = {"machines/local": Row(f"{what}, on the local forge", promise, test)}
    for kind, forge in FORGES.items():
        test = f"{_MACHINES}::test_two_machines_on_a_forge_do_what_one_does"
        rows[f"machines/{kind}"] = Row(f"{what}, on a forge", promise, test, forge)
    return rows


_REPLIES = "tests/faults/test_forge_faults.py"
_MOVING = "tests/faults/test_moving_world.py"
_STATE = "tests/faults/test_disturbed_state.py"
_STOP = "tests/faults/test_stop.py"
_RACES = "tests/faults/test_lock_races.py"
_LATER = "the next run ends as if it had been there before"

_SINGLE = {
    "replies": Row(
        "rate limits, errors, HTML, resets, cut and late replies, lost permissions, a dead repository",
        "the documented exit code; after a read that fails nothing is written; one pull request per draft",
        f"{_REPLIES}::test_after_a_fault_there_is_one_pull_request_per_draft",
    ),
    "lag": Row("lists of a forge lag behind writes whose replies were lost", _ONCE,
        f"{_REPLIES}::test_a_lists_lag_makes_no_duplicate"),
    "lag-other": Row("lists lag, and another machine runs meanwhile", _ONCE,
        f"{_REPLIES}::test_what_another_run_opened_a_moment_ago_is_found"),
    "pages": Row("pages of a list slip while they are read",
        f"open pull requests stay the same ones; {_ONCE}",
        f"{_REPLIES}::test_pages_that_slip_while_they_are_read_make_no_duplicate"),
    "newer-pulls": Row("pull requests are newer than the branches that were read",
        "exit 5, nothing is written",
        f"{_REPLIES}::test_pull_requests_that_are_newer_than_the_branches_are_not_believed"),
    "push-race": Row("a person pushes to a draft between reading and pushing",
        "exit 5; the person's commit stays, in this run and the next",
        f"{_REPLIES}::test_a_persons_push_between_read_and_push_survives"),
    "base-deleted": Row(
        "the base branch is deleted before its pull requests are opened",
        "exit 4, then 5 for its repository; drafts stay; others proceed; complete when the base is back",
        f"{_REPLIES}::test_a_base_that_is_deleted_before_its_pull_requests_costs_nothing",
    ),
    "moving": Row("the base, the manifests or an upstream repository moves between reading and pushing",
        f"{_LATER}; {_ONCE}", f"{_MOVING}::test_what_moves_while_a_run_writes_is_met_by_the_next_one"),
    "permission": Row(
        "a token, the right to push or the right to open pull requests is lost in the middle of a run",
        f"exit 4 or 5; when it is back the next run completes the work; {_ONCE}",
        f"{_MOVING}::test_a_permission_that_is_lost_while_a_run_writes_costs_nothing_but_time",
    ),
    "clock": Row("the run's clock is an hour off, either way",
        "the same commits and exit code as with the right time",
        f"{_STATE}::test_a_clock_that_is_an_hour_off_changes_no_commit"),
    "forge-clock": Row("the forge's clock is ten minutes or an hour off, either way",
        "the write budget opens neither early nor late",
        f"{_REPLIES}::test_a_clock_that_is_off_neither_opens_the_budget_early_nor_closes_it"),
    "state": Row("state or status deleted, older, forged, or replaced by an unrelated commit",
        "exit 0, or 3 with the record's name; no package is touched; both branches are as before after it",
        f"{_STATE}::test_a_state_that_is_not_ours_moves_no_package_and_is_written_again"),
    "state-lost": Row("the state is lost together with a manifest",
        "nothing is deleted: the package is kept (`OwnerUnknown`)",
        f"{_STATE}::test_a_lost_state_deletes_nothing_although_a_manifest_went_with_it"),
    "state-damaged": Row("lines of the state are damaged",
        "exit 3 with file and line; their last readable version counts, and the next apply writes them anew",
        "tests/e2e/test_damaged_records.py::test_damaged_record_of_a_variant_keeps_what_people_rejected"),
    "state-older": Row("the state was written by an earlier release",
        "drafts, closed proposals, rollouts, locks and pauses go on; nothing is opened twice",
        "tests/e2e/test_kept_states.py::test_a_run_goes_on_from_the_state_of_an_earlier_release"),
    "state-newer": Row("the state was written by a newer version", "exit 3 with a hint; nothing is written",
        f"{_STATE}::test_the_state_of_a_newer_version_stops_the_run_and_stays"),
    "sigterm": Row("SIGTERM to the process while four repositories are being pushed to",
        "what is under way is finished and recorded, the rest is counted; exit 6; the next run does the rest",
        f"{_STOP}::test_a_stopped_apply_ends_between_two_effects_and_the_next_one_goes_on"),
    "sigterm-reading": Row("SIGTERM while a silent server is being read",
        "exit 6 within seconds; nothing is written",
        f"{_STOP}::test_a_run_that_still_reads_ends_at_once_and_has_written_nothing"),
    "races": Row(
        "a hundred races of two processes for the lock of one cluster",
        "no upgrade and no generation is lost",
        f"{_RACES}::test_races_lose_no_upgrade_and_no_generation",
    ),
    "limits": Row("a process with few descriptors or no file space from its start",
        "exit 0, or 5 with a hint; the next run completes the work",
        "tests/e2e/test_machine_limits.py::test_limits_of_the_process_are_told_and_harm_nothing"),
    "server": Row(
        "the server of a repository has no disk space, quota, descriptors, or a read-only disk",
        "exit 5 with a hint; the others proceed; the next run completes the work",
        "tests/faults/test_servers_at_their_limits.py"
        "::test_a_server_at_its_limits_is_unavailable_and_the_others_proceed",
    ),
    "cache": Row("damaged files of the cache", "made anew once; the same plan as without damage",
        "tests/e2e/test_damaged_cache.py::test_run_with_a_damaged_cache_plans_as_with_a_whole_one"),
    "silent": Row(
        "a Git server that never answers",
        "costs its own repository its deadline; everything else proceeds",
        "tests/e2e/test_silent_server.py::test_silent_servers_cost_one_deadline_and_everything_else_is_written",
    ),
}  # fmt: skip

ROWS: dict[str, Row] = _effect_rows() | _machine_rows() | _SINGLE
