"""YAML: reading against PyYAML's C loader, splicing against a ruamel.yaml round trip, and the fallbacks.

Run as `python tools/bench/bench_yaml.py [--quick]`; CPU time, the best of several interleaved runs. Real
packages are read from the folder `RECONCILER_CORPUS` (default `../shared/corpus`), without it from a
made-up package.
"""

import os
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402
from ruamel.yaml import YAML  # noqa: E402

from reconciler.krm.documents import DocumentKind, split_file  # noqa: E402
from reconciler.krm.yaml import (  # noqa: E402
    PACKAGE_LIMITS,
    AddKey,
    DeleteKey,
    Edit,
    InsertItem,
    SetLineComment,
    SetValue,
    Tree,
    YamlError,
    apply_edits,
    load_documents,
)
from tools.bench.goals import Goals, is_quick  # noqa: E402

LOAD_LIMIT = 0.7
"""Reading may take at most this share of CSafeLoader's time, with typing, checks and places."""
SPLICE_FLOOR = 30
"""A splice edit of a Kptfile must be at least this many times faster than the round trip."""
FALLBACK_LIMIT = 0.01
"""At most this share of files may need the round trip in the fixed mix of edits."""

KPTFILE = """apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: nginx # the instance
  annotations:
    config.kubernetes.io/local-config: "true"
upstream:
  type: git
  git:
    repo: https://github.com/example/packages.git
    directory: /nginx
    ref: v1
  updateStrategy: resource-merge
upstreamLock:
  type: git
  git:
    repo: https://github.com/example/packages.git
    directory: /nginx
    ref: v1
    commit: 0123456789012345678901234567890123456789
info:
  description: nginx
pipeline:
  mutators:
    - image: gcr.io/kpt-fn/set-namespace:v0.4.1
      configMap:
        namespace: example
    - image: gcr.io/kpt-fn/set-labels:v0.2.0
      configPath: labels.yaml
"""
NEW = {
    ("upstream", "git", "ref"): "v2",
    ("upstreamLock", "git", "ref"): "v2",
    ("upstreamLock", "git", "commit"): "f" * 40,
}


def best(runs: dict[str, Callable[[], object]], *, times: int, rounds: int = 9) -> dict[str, float]:
    """Return the least CPU seconds of one call, for runs that take turns."""
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            for _ in range(times):
                run()
            least[name] = min(least[name], (time.process_time() - start) / times)
    return least


def corpus() -> list[bytes]:
    folder = Path(os.environ.get("RECONCILER_CORPUS", ROOT.parent / "shared/corpus"))
    paths = sorted(p for p in folder.rglob("*") if p.name == "Kptfile" or p.suffix == ".yaml")
    if not paths:
        print(f"the folder of real packages is not here: {folder}")
    return [path.read_bytes() for path in paths[:: 4 if is_quick() else 1]] or [KPTFILE.encode()] * 100


def load_all(files: list[bytes]) -> dict[str, float]:
    return best(
        {
            "load_documents": lambda: [load_documents(data, PACKAGE_LIMITS) for data in files],
            "CSafeLoader": lambda: [list(yaml.load_all(data, yaml.CSafeLoader)) for data in files],
        },
        times=1,
    )


def splice() -> str:
    return apply_edits(KPTFILE, [SetValue(path, value) for path, value in NEW.items()]).text


def round_trip() -> str:
    loader = YAML()
    loader.preserve_quotes = True
    loader.width = 2**31
    loader.indent(mapping=2, sequence=4, offset=2)
    data = loader.load(KPTFILE)
    for (*parents, last), value in NEW.items():
        target = data
        for step in parents:
            target = target[step]
        target[last] = value
    out = StringIO()
    loader.dump(data, out)
    return out.getvalue()


def structural() -> str:
    edits: list[Edit] = [
        AddKey(("metadata",), "labels", {"app": "nginx"}),
        InsertItem(("pipeline", "mutators"), 0, {"image": "x"}),
        DeleteKey(("info", "description")),
        SetLineComment(("upstream",), "moved"),
    ]
    return apply_edits(KPTFILE, edits).text


def fallbacks(files: list[bytes]) -> tuple[int, int, int]:
    """Return files, files with a fallback, and edits of the fixed mix: one of each kind in each document."""
    fallen = edits = 0
    for data in files:
        needed = False
        for doc in split_file(data).documents:
            if doc.kind not in (DocumentKind.KRM, DocumentKind.DATA) or not isinstance(doc.value, dict):
                continue
            for edit in mix(doc.value):
                try:
                    needed |= apply_edits(doc.text, [edit]).fallbacks > 0
                except YamlError:
                    needed = True
                edits += 1
        fallen += needed
    return len(files), fallen, edits


def mix(value: dict[str, object]) -> list[Edit]:
    last = list(value)[-1]
    return [
        SetValue((last,), "text"),
        SetValue((last,), "two\nlines\n"),
        SetValue(("metadata", "annotations", "example.com/x"), "on"),
        AddKey((), "added", {"a": ["b", {"c": 1}]}, before=last),
        DeleteKey((last,)),
        SetLineComment((last,), "why"),
    ]


def main() -> int:
    files = corpus()
    size = sum(map(len, files))
    loads = load_all(files)
    share = loads["load_documents"] / loads["CSafeLoader"]
    edits = best({"splice": splice, "structural": structural}, times=50)
    trips = best({"round trip": round_trip}, times=3)
    factor = trips["round trip"] / edits["splice"]
    assert splice() == round_trip()
    assert Tree.parse(structural()).value["metadata"]["labels"] == {"app": "nginx"}
    count, fallen, made = fallbacks(files)
    print(f"{'what':44} {'time':>12} {'ratio':>8}")
    print(f"{'CSafeLoader, ' + str(size // 1024) + ' KiB':44} {loads['CSafeLoader'] * 1e3:9.1f} ms")
    print(f"{'load_documents':44} {loads['load_documents'] * 1e3:9.1f} ms {share:8.2f}")
    print(f"{'ruamel.yaml round trip of a Kptfile':44} {trips['round trip'] * 1e6:9.1f} us")
    print(f"{'three fields by splice, checked':44} {edits['splice'] * 1e6:9.1f} us {factor:7.1f}x")
    slow = trips["round trip"] / edits["structural"]
    print(f"{'four structural edits, checked':44} {edits['structural'] * 1e6:9.1f} us {slow:7.1f}x")
    what = f"fallbacks, {made} edits of {count} files"
    print(f"{what:44} {fallen:9} files {fallen / count:7.1%}")
    goals = Goals(__file__)
    goals.at_most("reading, against PyYAML's C loader", share, LOAD_LIMIT, "x")
    goals.at_least("a splice of a Kptfile, against a round trip", factor, SPLICE_FLOOR, "x")
    goals.at_most("files that need the round trip, in the fixed mix of edits", fallen / count, FALLBACK_LIMIT)
    return goals.finish()


if __name__ == "__main__":
    sys.exit(main())
