"""Runs several programs in turn, several rounds of all of them, and compares their best times.

Each program prints lines of JSON with `case` and `seconds`; other fields are kept with the raw results, and shown in
the table if asked for. Interleaving the rounds spreads the noise of the machine over all programs; the minimum over
rounds counts. The raw numbers and a description of the machine go to a folder, the table to standard output and to
the folder.

    compare.py NAME --folder FOLDER --peer "threads=target/release/x threads" --peer "gloo=python gloo.py"

Only the standard library is needed.
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="name of the result files")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", action="append", required=True, metavar="NAME=COMMAND")
    parser.add_argument("--baseline", help="say how many times faster than this peer the others are")
    parser.add_argument("--reference", help="say how many times the time of this peer the others take")
    parser.add_argument("--show", action="append", default=[], metavar="FIELD:FORMAT",
                        help="show another field of the fastest round in the table, e.g. psnr_db:'{:.2f} dB'")
    parser.add_argument("--folder", type=Path, required=True, help="where the results go")
    return parser.parse_args()


def run(command):
    environment = dict(
        os.environ,
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{command} failed with code {done.returncode}:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def machine():
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.strip()
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "rustc": rustc,
        "commit": commit,
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def seconds_name(seconds):
    if seconds >= 10:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"


def ratio_name(ratio):
    return f"{ratio:.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


def table(results, peers, baseline=None, reference=None, show=()):
    best, fastest = {}, {}
    for result in results:
        key = (result["case"], result["peer"])
        if result["seconds"] < best.get(key, float("inf")):
            best[key], fastest[key] = result["seconds"], result
    lines = ["| case | " + " | ".join(peers) + " |", "|---|" + "---|" * len(peers)]
    for case in dict.fromkeys(case for case, _ in best):
        cells = []
        for peer in peers:
            seconds = best.get((case, peer))
            if seconds is None:
                cells.append("–")
                continue
            cell = seconds_name(seconds)
            if peer != baseline and (case, baseline) in best:
                cell += f" ({ratio_name(best[(case, baseline)] / seconds)})"
            if peer != reference and (case, reference) in best:
                cell += f" ({ratio_name(seconds / best[(case, reference)])})"
            for field, pattern in show:
                if field in fastest[(case, peer)]:
                    cell += ", " + pattern.format(fastest[(case, peer)][field])
            cells.append(cell)
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    arguments = parse_arguments()
    peers = dict(peer.split("=", 1) for peer in arguments.peer)
    results = []
    for round_number in range(arguments.rounds):
        for name, command in peers.items():
            print(f"round {round_number + 1} of {arguments.rounds}: {name}", file=sys.stderr)
            results += [dict(row, peer=name, round=round_number) for row in run(command)]
    facts = machine()
    show = [entry.split(":", 1) for entry in arguments.show]
    text = table(results, list(peers), arguments.baseline, arguments.reference, show)
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    raw = {"machine": facts, "peers": peers, "rounds": arguments.rounds, "results": results}
    (folder / f"{arguments.name}.json").write_text(json.dumps(raw, indent=1) + "\n")
    note = f"Best of {arguments.rounds} interleaved rounds" if arguments.rounds > 1 else "One round"
    if arguments.baseline:
        note += f"; in brackets, how many times faster than {arguments.baseline}"
    if arguments.reference:
        note += f"; in brackets, how many times the time of {arguments.reference}"
    (folder / f"{arguments.name}.md").write_text(f"{note}.\n\n{text}")
    print(f"{note}.\n\n{text}\nRaw results: {folder}")


if __name__ == "__main__":
    main()
