"""Write `scores.md`: the share of caught mutants of each folder and seed, from the results of runs.

`make scores SEEDS="1 2 3"` runs them and calls `python -m tools.mutation.scores .mutation/scores-1.json ...`.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.mutation.report import CAUGHT
from tools.mutation.runner import Status

PAGE = Path(__file__).with_name("scores.md")
HEAD = """\
# Scores of mutation

`make scores` writes this page: caught mutants of those that were drawn, of each folder and seed. A mutant
that no test reaches counts as missed. [README.md](README.md) tells how it is measured.
"""


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the page: a row for each folder, a column for each seed, the share of all seeds at the end."""
    seeds = [result["options"]["seed"] for result in results]
    tried = [[m for m in result["mutants"] if m["status"] != Status.INVALID] for result in results]
    folders = sorted({mutant["folder"] for mutants in tried for mutant in mutants})
    lines = [
        f"| folder | {' | '.join(f'seed {seed}' for seed in seeds)} | all |",
        "|---" * (len(seeds) + 2) + "|",
    ]
    for folder in [*folders, "all"]:
        of_seeds = [[m["status"] in CAUGHT for m in each if folder in {m["folder"], "all"}] for each in tried]
        counts = [(sum(own), len(own)) for own in of_seeds]
        caught, every = (sum(part) for part in zip(*counts, strict=True))
        cells = [f"{own} of {number}" for own, number in counts]
        lines.append(f"| `{folder}` | {' | '.join(cells)} | {100 * caught / every:.0f} % |")
    options = results[0]["options"]
    how = f"Tests of up to {options['limit']:g} s, {options['budget']:g} s of them for each mutant."
    return "\n".join([HEAD, how, "", *lines, ""])


if __name__ == "__main__":
    PAGE.write_text(table([json.loads(Path(name).read_text()) for name in sys.argv[1:]]), encoding="utf-8")
