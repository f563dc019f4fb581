#!/usr/bin/env python3
"""A cone-beam job that is larger than memory: FDK, total variation and a plug-and-play denoiser, in memory and in a scratch folder.

Each method runs twice: in memory, and with --scratch under RLIMIT_DATA, which limits all that a process takes for itself and is no file
(prlimit --data). Then one run is killed with SIGKILL after its first checkpoint and resumed. A line of JSON for each run: the digest of the
result, seconds, VmHWM, the largest RssAnon, RssFile and RssShmem that were seen, the bytes of /proc/PID/io at every iteration, and the plan.
An iteration also writes its checkpoint, for which the state is read once more: `checkpoint_bytes` is the size of that file. The
first entry of `disk_bytes_of_iterations` is that of the first iteration, whose arrays are new: zeros that no disk has are not read. `--methods` and
`--modes` choose some of the runs, so that long ones can be divided; `--out` appends to a file.
"""

import argparse
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time

JOB = """
[measurements]
files = "views.npy"

[image]
size = [{size}, {size}, {size}]
channels = 1

[[operators]]
kind = "cone-beam"
angles = {views}
groups = 1
source-distance = {source}
detector-distance = {size}
spacing = {spacing}

[output]
file = "{name}.npy"

{more}
"""

METHODS = {
    "fdk": '[solver]\nmethod = "fdk"\n',
    "primal-dual": '[prior]\nkind = "total-variation"\nweight = 0.5\n[solver]\nmethod = "primal-dual"\nstep = {step}\n'
    '[start]\nkind = "{start}"\n[stop]\niterations = {iterations}\n[checkpoint]\niterations = 1\nkeep = 1\nfolder = "{name}-checkpoints"\n',
    "pgd": '[prior]\nkind = "network"\nmodel = "builtin:gray"\nsigma = 0.03\nscale = 1\n[solver]\nmethod = "pgd"\nstep = {step}\n'
    '[start]\nkind = "{start}"\n[stop]\niterations = {iterations}\n[checkpoint]\niterations = 1\nkeep = 1\nfolder = "{name}-checkpoints"\n',
}


def write_views(path, size, views):
    """Line integrals of some balls by a cone, in the layout (1, 1, view, row, column)."""
    import numpy as np

    balls = [((0.0, 0.0, 0.0), 0.42, 0.5), ((0.2, 0.1, 0.05), 0.12, 0.3), ((-0.15, 0.2, -0.1), 0.1, -0.4), ((0.0, -0.25, 0.2), 0.08, 0.4)]
    source, distance, spacing = 3.0 * size, 4.0 * size, 2.0
    detector = (np.arange(size) - (size - 1) / 2) * spacing
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(1, 1, views, size, size))
    for index in range(views):
        angle = 2 * np.pi * index / views
        u = np.array([np.cos(angle), np.sin(angle), 0.0])
        away = np.array([np.sin(angle), -np.cos(angle), 0.0])
        ray = -distance * away + detector[None, :, None] * u + detector[:, None, None] * np.array([0.0, 0.0, 1.0])
        ray /= np.linalg.norm(ray, axis=-1, keepdims=True)
        view = np.zeros((size, size))
        for centre, radius, value in balls:
            offset = source * away - np.array(centre) * size
            along = ray @ offset
            inside = (radius * size) ** 2 - (offset @ offset - along**2)
            view += value * 2 * np.sqrt(np.maximum(inside, 0.0))
        out[0, 0, index] = view
    out.flush()


def status(pid):
    fields = {}
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(("VmHWM", "RssAnon", "RssFile", "RssShmem", "VmData")):
                fields[line.split(":")[0]] = int(line.split()[1]) * 1024
    return fields


def disk(pid):
    with open(f"/proc/{pid}/io") as file:
        fields = dict(line.split(": ") for line in file.read().splitlines())
    return int(fields["read_bytes"]), int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])


def run(command, folder, limit=None, kill_at=None):
    """Runs a command and watches its process; kills it at the first checkpoint if that is asked for."""

    def limited():
        if limit:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    begin = time.time()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limited)
    most, marks, plan, details = {}, [], None, []

    def follow():
        nonlocal plan
        for line in process.stderr:
            try:
                event = json.loads(line)
            except ValueError:
                print(line, end="", file=sys.stderr)
                continue
            plan = event.get("scratch") or plan
            if "scratch folder" in str(event):
                details.append(event)
            if event.get("event") in ("plan", "iteration"):
                try:
                    marks.append(disk(process.pid))
                except OSError:
                    pass

    thread = threading.Thread(target=follow)
    thread.start()
    end = disk(process.pid)
    while process.poll() is None:
        try:
            for name, value in status(process.pid).items():
                most[name] = max(most.get(name, 0), value)
            end = disk(process.pid)
        except OSError:
            pass
        if kill_at and any(name.endswith(".checkpoint") for name in (os.listdir(kill_at) if os.path.isdir(kill_at) else [])):
            process.send_signal(signal.SIGKILL)
            kill_at = None
        time.sleep(0.02)
    output = process.stdout.read()
    thread.join()
    each = [[after[0] - before[0], after[1] - before[1]] for before, after in zip(marks, marks[1:])]
    return {
        "code": process.returncode,
        "seconds": round(time.time() - begin, 1),
        "bits": json.loads(output).get("bits") if process.returncode == 0 else None,
        "planned": plan,
        "details": details,
        "most_bytes": most,
        "disk_bytes": end,
        "disk_bytes_of_iterations": each,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--views", type=int, default=256)
    parser.add_argument("--limit", default="2GB")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--start", default="fdk", help="the kind of [start] of the methods with iterations")
    parser.add_argument("--folder", default="target/bench-scratch")
    parser.add_argument("--program", default="target/release/haloscope")
    parser.add_argument("--methods", default="fdk,primal-dual,pgd")
    parser.add_argument("--modes", default="memory,scratch,killed")
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    folder = os.path.abspath(options.folder)
    scratch = os.path.join(folder, "scratch")
    os.makedirs(scratch, exist_ok=True)
    views = os.path.join(folder, "views.npy")
    size = options.size
    if not os.path.exists(views):
        write_views(views, size, options.views)
    units = {"KB": 1e3, "MB": 1e6, "GB": 1e9}
    limit = int(float(options.limit[:-2]) * units[options.limit[-2:].upper()])
    # About one over the squared norm of the scan.
    step = 0.5 / (size * options.views)

    def tell(row):
        row = {"size": size, "views": options.views, "limit_bytes": limit, **row}
        print(json.dumps(row), flush=True)
        if options.out:
            with open(options.out, "a") as file:
                file.write(json.dumps(row) + "\n")

    def checkpoint(name):
        """The bytes of the newest checkpoint of a method."""
        place = os.path.join(folder, name + "-checkpoints")
        names = sorted(name for name in (os.listdir(place) if os.path.isdir(place) else []) if name.endswith(".checkpoint"))
        return os.path.getsize(os.path.join(place, names[-1])) if names else None

    for name in options.methods.split(","):
        more = METHODS[name].format(iterations=options.iterations, name=name, step=step, start=options.start)
        with open(os.path.join(folder, name + ".toml"), "w") as file:
            file.write(JOB.format(size=size, views=options.views, source=3 * size, spacing=2.0, name=name, more=more))
        base = [program, "--log", "json", "-v", "reconstruct", name + ".toml", "--json"]
        within = ["--scratch", scratch, "--memory-limit", options.limit]
        for mode in options.modes.split(","):
            if mode == "memory":
                tell({"method": name, "mode": "memory", **run(base + ["--start-over"], folder)})
            elif mode == "scratch":
                plan = subprocess.run([program, "check", name + ".toml", *within], cwd=folder, capture_output=True, text=True)
                lines = [line for line in plan.stdout.splitlines() if line.startswith(("memory", "disk"))] or [plan.stderr.strip()]
                tell({"method": name, "mode": "scratch", "plan": lines, **run(base + ["--start-over", *within], folder, limit), "checkpoint_bytes": checkpoint(name)})
            elif name != "fdk":
                checkpoints = os.path.join(folder, name + "-checkpoints")
                subprocess.run(["rm", "-rf", checkpoints])
                killed = run(base + ["--start-over", *within], folder, limit, kill_at=checkpoints)
                left = len(os.listdir(scratch))
                tell({"method": name, "mode": "killed", "files_left": left, **killed})
                tell({"method": name, "mode": "resumed", **run(base + ["--resume", *within], folder, limit)})


if __name__ == "__main__":
    main()
