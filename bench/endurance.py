#!/usr/bin/env python3
"""Reconstructions under kills, stalls, signals and full disks, resumed on other ranks, for an hour; every result must have its bits.

    endurance.py --program target/openmpi/release/haloscope --launcher "mpirun.openmpi --oversubscribe -n" --minutes 60 --out endurance.jsonl

The jobs are those of the studies, at small sizes, with the image whole on every rank and in shards, and a checkpoint after every
iteration. Each is run once undisturbed on one thread rank, whose bits are expected from then on. Then journeys follow until the time is over: a
job starts from nothing and meets up to five events at random moments, each on another number of ranks, on threads or under the launcher:

    kill      SIGKILL to the process, or to one of the launcher's ranks
    stall     one process stands still for a moment, less than the deadline, and goes on
    hang      one of the launcher's ranks stands still for good, so that the others have to find out
    signal    SIGTERM to the process or the launcher
    disk      the disk of the checkpoints is full

and is resumed after each. In the end it runs undisturbed. A line of JSON for each run: what it was, how it ended, and what it said last.
A run that does not end, one that fails without an event, a file that is left beside the checkpoints after the end, or other bits are
failures; the program exits with 1 if there is any. A launcher that does not end although all of its ranks have is counted apart, as
`launcher_stuck`: mpirun of Open MPI 4.1 sometimes does that if a rank is killed while it says that it has begun. Disks are tmpfs of some megabytes, which needs root; without it, `disk` is left out, visibly.
"""

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

JOBS = {
    "deblur": "72",
    "super-resolution": "64",
    "tomography-2d": "64",
    "tomography-3d": "24",
}
ITERATIONS = 40
DEADLINE = 6
# Processes that stand still before MPI has begun are found out by this.
ENVIRONMENT = {**os.environ, "HALOSCOPE_START_SECONDS": "30"}
# Long after the deadline, on a machine that is busy.
PATIENCE = 120
# What a launcher gets to end after its last rank.
LAUNCHER = 20
CHECKPOINT = "\n[checkpoint]\niterations = 1\nfolder = \"checkpoints\"\n"


def job_file(program, problem, layout):
    """The job of a study."""
    command = [program, "bench", "scaling", "--problem", problem, "--sizes", JOBS[problem], "--model", "builtin:color", "--ranks", "1"]
    command += ["--iterations", str(ITERATIONS), "--layout", layout, "--show-jobs"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout + CHECKPOINT


def children(parent):
    """The processes that a launcher started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return sorted(found)


def has_ended(pid):
    """Whether a process is over, even if its parent has not asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def send(pid, what):
    try:
        os.kill(pid, what)
        return True
    except ProcessLookupError:
        return False


class Journey:
    """A job in a folder of its own."""

    def __init__(self, options, name, text, chance):
        self.options, self.name, self.chance = options, name, chance
        self.folder = options.folder / "journey"
        if self.folder.exists():
            self.unmount()
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        (self.folder / "checkpoints").mkdir()
        (self.folder / "job.toml").write_text(text)
        self.has_disk = False

    def mount(self):
        """Gives the checkpoints a small disk of their own, if that is allowed."""
        command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(self.folder / "checkpoints")]
        self.has_disk = subprocess.run(command, capture_output=True).returncode == 0
        return self.has_disk

    def unmount(self):
        subprocess.run(["umount", str(self.folder / "checkpoints")], capture_output=True)

    def checkpoints(self):
        return len(list((self.folder / "checkpoints").glob("*.checkpoint*")))

    def run(self, event, backend, ranks, after):
        """Runs the job, meets an event after some seconds, and returns what became of it."""
        command = [self.options.program, "reconstruct", "job.toml", "--resume", "--json", "--deadline", str(DEADLINE)]
        if backend == "mpi":
            command = shlex.split(self.options.launcher) + [str(ranks), *command]
        else:
            command += ["--ranks", str(ranks)]
        there = self.checkpoints()
        filler = self.folder / "checkpoints" / "filler"
        begin = time.time()
        with open(self.folder / "stderr", "w+") as errors, open(self.folder / "stdout", "w+") as output:
            process = subprocess.Popen(command, cwd=self.folder, stdout=output, stderr=errors, env=ENVIRONMENT)
            met = self.meet(event, backend, process, after, filler) if event else False
            code, is_stuck = self.wait(process)
            output.seek(0), errors.seek(0)
            said, words = output.read(), errors.read().strip().splitlines()
        filler.unlink(missing_ok=True)
        bits = None
        if code == 0:
            bits = json.loads(said)["bits"]
        return {
            "job": self.name,
            "backend": backend,
            "ranks": ranks,
            "event": event,
            "met": met,
            "after_seconds": round(after, 3),
            "checkpoints_before": there,
            "checkpoints_after": self.checkpoints(),
            "seconds": round(time.time() - begin, 2),
            "code": code,
            "launcher_stuck": is_stuck,
            "bits": bits,
            "said": next((line for line in reversed(words) if "haloscope" in line or "rank" in line or "error" in line), words[-1] if words else ""),
        }

    def wait(self, process):
        """The exit code, none if there is none after all that time, and whether only the launcher was left."""
        end = time.time() + PATIENCE
        alive = time.time()
        while time.time() < end:
            code = process.poll()
            if code is not None:
                return code, False
            ranks = children(process.pid)
            if not ranks or not all(has_ended(pid) for pid in ranks):
                alive = time.time()
            if time.time() > alive + LAUNCHER:
                break
            time.sleep(0.05)
        is_stuck = time.time() > alive + LAUNCHER
        for pid in [*children(process.pid), process.pid]:
            send(pid, signal.SIGKILL)
        process.wait()
        return None, is_stuck

    def meet(self, event, backend, process, after, filler):
        """Lets the event happen; false if the job was over before."""
        end = time.time() + after
        while time.time() < end:
            if process.poll() is not None:
                return False
            time.sleep(0.005)
        # A launcher starts its ranks a moment after itself.
        end = time.time() + PATIENCE
        while backend == "mpi" and not children(process.pid):
            if process.poll() is not None or time.time() > end:
                return False
            time.sleep(0.005)
        ranks = children(process.pid) or [process.pid]
        one = self.chance.choice(ranks)
        if event == "kill":
            return send(one, signal.SIGKILL)
        if event == "signal":
            return send(process.pid, signal.SIGTERM)
        if event == "hang":
            return send(one, signal.SIGSTOP)
        if event == "stall":
            if not send(one, signal.SIGSTOP):
                return False
            time.sleep(self.chance.uniform(0.2, DEADLINE / 3))
            return send(one, signal.SIGCONT)
        runs = False
        try:
            with open(filler, "wb", buffering=0) as file:
                while file.write(bytes(1 << 14)):
                    runs = process.poll() is None
        except OSError:
            pass
        # The job may have met the full disk and ended since.
        return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--launcher", default=None)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("target/endurance"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    options.folder = options.folder.absolute()
    chance = random.Random(options.seed)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    failures, runs, events, journeys, stuck = [], 0, {}, 0, 0
    backends = ["threads"] + (["mpi"] if options.launcher else [])

    with open(options.out, "w") as file:

        def tell(row, failure=None):
            nonlocal runs
            runs += 1
            if failure:
                row["failure"] = failure
                failures.append(failure)
                print(f"failure: {json.dumps(row)}", flush=True)
            file.write(json.dumps(row) + "\n")
            file.flush()

        expected = {}
        for problem in JOBS:
            for layout in ("replicated", "sharded"):
                text = job_file(options.program, problem, layout)
                name = f"{problem} {layout}"
                row = Journey(options, name, text, chance).run(None, "threads", 1, 0)
                if row["code"] != 0:
                    sys.exit(f"{name} fails when nothing disturbs it: {row['said']}")
                expected[name] = (text, row["bits"], row["seconds"])
                tell(row)
        end = time.time() + options.minutes * 60
        while time.time() < end:
            name = chance.choice(list(expected))
            text, bits, usual = expected[name]
            journey = Journey(options, name, text, chance)
            if not journey.mount() and journeys == 0:
                print("left out: full disks, because a tmpfs cannot be mounted here")
            journeys += 1
            for step in range(chance.randint(2, 5) + 1):
                backend = chance.choice(backends)
                ranks = chance.randint(1, 4 if backend == "mpi" else 8)
                kinds = ["kill", "kill", "stall", "signal"]
                kinds += ["hang"] if backend == "mpi" and ranks > 1 else []
                kinds += ["disk"] if journey.has_disk else []
                event = chance.choice(kinds)
                row = journey.run(event, backend, ranks, chance.uniform(0.05, 0.5 * usual))
                failure = None
                if row["code"] is None:
                    failure = None if row["launcher_stuck"] and row["met"] else "did not end"
                elif row["code"] == 0 and row["bits"] != bits:
                    failure = "other bits"
                elif row["code"] != 0 and not row["met"]:
                    failure = "failed without an event"
                elif row["code"] != 0 and event == "stall":
                    failure = "failed by a moment"
                if row["met"]:
                    events[event] = events.get(event, 0) + 1
                stuck += row["launcher_stuck"]
                tell(row, failure)
                if row["code"] == 0:
                    break
            else:
                backend = chance.choice(backends)
                row = journey.run(None, backend, chance.randint(1, 4), 0)
                wrong = "failed without an event" if row["code"] != 0 else "other bits" if row["bits"] != bits else None
                tell(row, wrong)
            left = [path.name for path in (journey.folder / "checkpoints").iterdir() if ".tmp" in path.name or path.name.startswith(".")]
            if left:
                failures.append(f"files left: {left}")
            journey.unmount()
        summary = {"summary": True, "minutes": options.minutes, "seed": options.seed, "journeys": journeys, "runs": runs, "events": events, "launcher_stuck": stuck, "failures": failures}
        file.write(json.dumps(summary) + "\n")
    print(json.dumps(summary))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
