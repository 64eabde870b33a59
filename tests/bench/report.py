"""How long `tier-router report` takes, and how much memory: `python tests/bench/report.py`.

Makes logs in a temporary folder: one of decisions, one of request bodies in which some texts come
again, and reports on both in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
SUBJECTS = ("invoice", "contract", "parcel", "router", "tax form", "flight", "password", "proof")
ASKS = (
    "What is the status of my {subject} number {number}?",
    "Summarise {subject} {number} in two sentences.",
    "Prove that the greedy schedule of {number} jobs for every {subject} is optimal.",
    "Write a parser for {subject} records, {number} fields each, and explain its complexity.",
    "when do you open",
)


def bodies(count: int, fresh: float) -> Iterator[bytes]:
    """Chat bodies with a time; a share `fresh` of the texts has not come before."""
    pick = random.Random(1)
    at = 1.7e9
    for place in range(count):
        at += pick.expovariate(20)
        number = place if pick.random() < fresh else pick.randrange(2_000)
        ask = pick.choice(ASKS).format(subject=pick.choice(SUBJECTS), number=number)
        yield msgspec.json.encode(
            {
                "created": round(at, 3),
                "body": {"model": "gpt-4o", "messages": [{"role": "user", "content": ask}]},
                "usage": {"prompt_tokens": 30, "completion_tokens": pick.randrange(20, 600)},
            }
        )


def decisions(count: int) -> Iterator[bytes]:
    """Records of decisions."""
    pick = random.Random(2)
    at = 1.7e9
    for place in range(count):
        at += pick.expovariate(20)
        level = round(pick.betavariate(1, 4), 5)
        heavy = level > 0.16
        record = {
            "v": 1, "at": round(at, 3), "id": f"req-{place}", "door": "sidecar",
            "tier": "heavy" if heavy else "light", "replica": "heavy-0" if heavy else "light-0",
            "reasons": ["hard" if heavy else "easy"], "difficulty": level, "threshold": 0.16,
            "intent": pick.choice((None, None, None, "balance")), "confidence": 0.9,
            "ttft": 0.05, "latency": 2.5, "tokens": pick.randrange(20, 3_000), "stream": True,
            "usage": {"prompt": pick.randrange(20, 3_000), "completion": pick.randrange(20, 600)},
            "conversation": f"{place % 100_000:016x}", "status": 200,
        }  # fmt: skip
        yield msgspec.json.encode(record)


def measure(log: Path, *options: str) -> str:
    """Seconds, and the largest sum of memory over the processes of the command, in MB."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "tier_router", "report", str(log), "--json", *options]
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proxy'}"}
    most = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env) as process:
        while process.poll() is None:
            most = max(most, sum(map(memory, family(process.pid))))
            time.sleep(0.1)
    size = log.stat().st_size / 1e6
    return (
        f"{log.name} ({size:.0f} MB) {' '.join(options)}: exit {process.returncode}, "
        f"{time.monotonic() - begin:.1f} s, {most / 1024:.0f} MB"
    )


def family(pid: int) -> list[int]:
    """The process and those that it began."""
    found = [pid]
    for own in found:
        try:
            for task in Path(f"/proc/{own}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:  # it has ended
            continue
    return found


def memory(pid: int) -> int:
    """Proportional set size in kB: shared pages count once."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:"), 0)


def main() -> None:
    """Prints a line for each log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--fresh", type=float, default=0.5)
    parser.add_argument("--judge", default="100000")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "decisions.jsonl")
        log.write_bytes(b"\n".join(decisions(chosen.lines)) + b"\n")
        print(measure(log), flush=True)
        log = Path(folder, "bodies.jsonl")
        log.write_bytes(b"\n".join(bodies(chosen.lines, chosen.fresh)) + b"\n")
        print(measure(log, "--judge", chosen.judge), flush=True)


if __name__ == "__main__":
    main()
