"""Run every bench, print one table, write JSON, and exit 1 unless all goals are met.

Run as `python tools/bench/run.py [--quick] [--json FILE] [BENCH ...]`. A bench that fails decides nothing:
it is a line of the table, too. `--quick` measures in a minute what takes seconds and is met.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

BENCHES = Path(__file__).resolve().parent
ROOT = BENCHES.parents[1]
sys.path.insert(0, str(ROOT))

from tools.bench.goals import REPORT, Figure, Verdict, from_json, table, to_json  # noqa: E402

QUICK = ("bench_expand", "bench_functions", "bench_git", "bench_resolver", "bench_snapshot", "bench_yaml")
"""Benches with goals that a minute decides."""


def run(path: Path, options: Sequence[str]) -> list[Figure]:
    """Run one bench as a process and return its figures."""
    print(f"== {path.stem}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        environment = {**os.environ, REPORT: str(report), "PYTHONPATH": str(ROOT)}
        ended = subprocess.run([sys.executable, str(path), *options], env=environment, check=False)
        if report.is_file():
            return from_json(report.read_bytes())
    return [
        Figure(path.stem, "the bench ends", None, 0, "", note=f"it failed with exit code {ended.returncode}")
    ]


def main(arguments: Sequence[str]) -> int:
    """Run the chosen benches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, default=Path("bench.json"))
    parser.add_argument("benches", nargs="*")
    options = parser.parse_args(arguments)
    chosen = options.benches or (
        QUICK if options.quick else sorted(p.stem for p in BENCHES.glob("bench_*.py"))
    )
    figures: list[Figure] = []
    for name in chosen:
        figures += run(BENCHES / f"{name}.py", ["--quick"] if options.quick else [])
    options.json.write_bytes(to_json(figures))
    print(f"\n{'=' * 20} goals", *table(figures), sep="\n")
    counts = {verdict: sum(figure.verdict is verdict for figure in figures) for verdict in Verdict}
    print(
        f"{', '.join(f'{count} {verdict}' for verdict, count in counts.items())}; {options.json} has them all"
    )
    return int(not figures or counts[Verdict.MET] < len(figures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
