"""`make fuzz`: every target for some seconds with atheris, in a fork of its own, and what came of it.

Half of the inputs have changed bytes, half have odd shapes (`tools.fuzz.shapes`). Without atheris (it has
wheels for Linux on x86_64 only) the same targets get them drawn from the seeds, without coverage.
A finding is kept in tests/fuzz/cases/TARGET/, where the ordinary tests run it for ever.
"""

import argparse
import hashlib
import os
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from tools.fuzz.shapes import drawn

CASES = Path(__file__).resolve().parents[2] / "tests/fuzz/cases"
_RUNS = re.compile(r"stat::number_of_executed_units:\s+(\d+)|Done (\d+) runs|^#(\d+)", re.MULTILINE)


def fuzz_one(name: str, seconds: int) -> tuple[int, str]:
    """Fuzz one target in a fork; return executions, and the last lines of a finding."""
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as out:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            fuzz_here(name, seconds, Path(scratch))
        _, status = os.waitpid(child, 0)
        out.seek(0)
        text = out.read().decode("utf-8", "replace")
        for pattern in ("crash-*", "timeout-*", "oom-*"):
            for found in sorted(Path(scratch).glob(pattern)):
                keep(name, found.read_bytes())
    counts = [int(next(filter(None, match.groups()))) for match in _RUNS.finditer(text)]
    return max(counts, default=0), "\n".join(text.splitlines()[-40:]) if status else ""


def keep(name: str, data: bytes) -> Path:
    """Keep an input as a case of the ordinary tests."""
    path = CASES / name / hashlib.sha256(data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def fuzz_here(name: str, seconds: int, scratch: Path) -> None:
    """Fuzz until the time is over or something is found, and leave the process."""
    code = 1
    try:
        (_with_coverage if find_spec("atheris") else _with_mutations)(name, seconds, scratch)
        code = 0
    except BaseException:  # noqa: BLE001 - the parent reads it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def load_targets() -> None:
    """Import the targets, instrumented where atheris is installed: once, before forking."""
    if not find_spec("atheris"):
        return
    import atheris

    with atheris.instrument_imports(include=["reconciler"]):
        import tools.fuzz.targets  # noqa: F401


def _with_coverage(name: str, seconds: int, scratch: Path) -> None:
    import atheris

    from tools.fuzz.seeds import SEEDS
    from tools.fuzz.targets import TARGETS

    corpus = scratch / "corpus"
    corpus.mkdir()
    for number, seed in enumerate([*SEEDS[name], *_kept(name)]):
        (corpus / str(number)).write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-artifact_prefix={scratch}/", "-max_len=65536", "-timeout=60"]
    options += ["-rss_limit_mb=3000", "-print_final_stats=1", str(corpus)]

    def change(data: bytes, size: int, seed: int) -> bytes:
        draw = random.Random(seed)
        odd = drawn(draw, [data]) if draw.random() < 0.5 else data
        return odd if odd != data and len(odd) <= size else bytes(atheris.Mutate(data, size))

    atheris.Setup([sys.argv[0], *options], partial(_keeping, TARGETS[name], scratch), custom_mutator=change)
    atheris.Fuzz()


def _keeping(target: Callable[[bytes], None], scratch: Path, data: bytes) -> None:
    """Call a target, and write down the input that breaks its law."""
    try:
        target(data)
    except BaseException:
        (scratch / "crash-python").write_bytes(data)
        raise


def _with_mutations(name: str, seconds: int, scratch: Path) -> None:
    from tools.fuzz.seeds import SEEDS
    from tools.fuzz.targets import TARGETS

    draw, end, runs = random.Random(), time.monotonic() + seconds, 0
    pool = [*SEEDS[name], *_kept(name)]
    while time.monotonic() < end:
        data = draw.choice((mutated, drawn))(draw, pool)
        runs += 1
        _keeping(TARGETS[name], scratch, data)
    print(f"Done {runs} runs")


def mutated(draw: random.Random, pool: list[bytes]) -> bytes:
    """Return an input of the pool with some bytes changed, removed, repeated, or taken from another input."""
    data = bytearray(draw.choice(pool))
    for _ in range(draw.randint(1, 6)):
        start, size = draw.randint(0, len(data)), draw.randint(0, 12)
        other = draw.choice(pool)
        at = draw.randint(0, len(other))
        data[start : start + draw.randint(0, size)] = draw.choice(
            [
                b"",
                bytes(draw.randbytes(draw.randint(1, 3))),
                other[at : at + size],
                data[start : start + size] * 2,
            ]
        )
    return bytes(data)


def _kept(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CASES / name).glob("*"))]


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("targets", nargs="*")
    asked = options.parse_args()
    load_targets()
    from tools.fuzz.targets import TARGETS

    print(
        "with atheris" if find_spec("atheris") else "without atheris: mutated seeds, no coverage", flush=True
    )
    findings = 0
    for name in asked.targets or TARGETS:
        runs, finding = fuzz_one(name, asked.seconds)
        findings += bool(finding)
        print(f"{name:15} {runs:10} executions  {'FINDING' if finding else 'no finding'}", flush=True)
        if finding:
            print(finding, flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
