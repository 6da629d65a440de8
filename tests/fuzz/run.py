"""`make fuzz`: every target for some seconds with atheris, in a process of its own, and what came of it.

Without atheris (it has wheels for Linux on x86_64 only) the same targets get mutated seeds, without coverage.
A finding is kept in tests/fuzz/cases/TARGET/, where the ordinary tests run it for ever.
"""

import argparse
import hashlib
import random
import re
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

CASES = Path(__file__).resolve().parent / "cases"
_RUNS = re.compile(r"stat::number_of_executed_units:\s+(\d+)|Done (\d+) runs|^#(\d+)", re.MULTILINE)


def fuzz_one(name: str, seconds: int) -> tuple[int, str]:
    """Fuzz one target in another process; return executions, and the last lines of a finding."""
    with tempfile.TemporaryDirectory() as scratch:
        line = [
            sys.executable,
            "-m",
            "tests.fuzz.run",
            "--inside",
            name,
            "--seconds",
            str(seconds),
            "--scratch",
            scratch,
        ]
        ran = subprocess.run(line, capture_output=True, text=True, errors="replace", check=False)
        said = ran.stdout + ran.stderr
        counts = [int(next(filter(None, found.groups()))) for found in _RUNS.finditer(said)]
        crashes = sorted(Path(scratch).glob("crash-*")) + sorted(Path(scratch).glob("timeout-*"))
        for crash in crashes:
            keep(name, crash.read_bytes())
    told = "\n".join(said.splitlines()[-40:]) if ran.returncode else ""
    return max(counts, default=0), told


def keep(name: str, data: bytes) -> Path:
    """Keep an input as a case of the ordinary tests."""
    path = CASES / name / hashlib.sha256(data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def inside(name: str, seconds: int, scratch: Path) -> None:
    """Fuzz in this process until the time is over or something is found."""
    if find_spec("atheris"):
        _with_coverage(name, seconds, scratch)
    else:
        _with_mutations(name, seconds, scratch)


def _with_coverage(name: str, seconds: int, scratch: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["reconciler"]):
        from tests.fuzz.seeds import SEEDS
        from tests.fuzz.targets import TARGETS

    corpus = scratch / "corpus"
    corpus.mkdir()
    for number, seed in enumerate([*SEEDS[name], *_kept(name)]):
        (corpus / str(number)).write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-artifact_prefix={scratch}/", "-max_len=4096", "-timeout=20"]
    atheris.Setup(
        [sys.argv[0], *options, "-rss_limit_mb=3000", "-print_final_stats=1", str(corpus)], TARGETS[name]
    )
    atheris.Fuzz()


def _with_mutations(name: str, seconds: int, scratch: Path) -> None:
    from tests.fuzz.seeds import SEEDS
    from tests.fuzz.targets import TARGETS

    draw, end, runs = random.Random(), time.monotonic() + seconds, 0
    pool = [*SEEDS[name], *_kept(name)]
    while time.monotonic() < end:
        data = mutated(draw, pool)
        runs += 1
        try:
            TARGETS[name](data)
        except BaseException:
            (scratch / "crash-0").write_bytes(data)
            print(f"#{runs}")
            raise
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
    options.add_argument("--inside", default="")
    options.add_argument("--scratch", type=Path)
    options.add_argument("targets", nargs="*")
    asked = options.parse_args()
    if asked.inside:
        inside(asked.inside, asked.seconds, asked.scratch)
        return 0
    from tests.fuzz.targets import TARGETS

    print("with atheris" if find_spec("atheris") else "without atheris: mutated seeds, no coverage")
    findings = 0
    for name in asked.targets or TARGETS:
        runs, finding = fuzz_one(name, asked.seconds)
        findings += bool(finding)
        print(f"{name:15} {runs:10} executions  {'FINDING' if finding else 'no finding'}", flush=True)
        if finding:
            print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
