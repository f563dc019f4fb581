"""Seconds per all-reduce and per exchange of PyTorch's Gloo on two processes, as lines of JSON.

Sizes, batches and the choice of the fastest batch are those of
`crates/haloscope-comm/benches/collectives.rs`.
"""

import json
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

SIZES = [(4 << 10, 200, 20), (1 << 20, 10, 20), (64 << 20, 1, 12)]


def report(operation, size, calls, batches, call):
    best = float("inf")
    call()
    for _ in range(batches):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, time.perf_counter() - begin)
    if dist.get_rank() == 0:
        name = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
        print(json.dumps({"case": f"{operation}, {name}", "seconds": best / calls}), flush=True)


def measure(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    other = 1 - rank
    for size, calls, batches in SIZES:
        values = torch.zeros(size // 4)
        received = torch.zeros(size // 4)

        def exchange():
            requests = [dist.isend(values, other), dist.irecv(received, other)]
            for request in requests:
                request.wait()

        report("all_reduce", size, calls, batches, lambda: dist.all_reduce(values))
        report("exchange", size, calls, batches, exchange)
    dist.destroy_process_group()


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    multiprocessing.spawn(measure, args=(free_port(),), nprocs=2)
