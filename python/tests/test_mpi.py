"""Under mpirun: the numbers of thread ranks, mpi4py beside haloscope, and nobody who hangs.

`scripts/python-test mpi` runs these with a build for the library of MPIRUN.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import haloscope
import pytest

pytestmark = pytest.mark.mpi

ROOT = pathlib.Path(__file__).parents[2]
QUICKSTART = ROOT / "examples" / "python" / "quickstart.py"


@pytest.fixture(autouse=True)
def _a_build_with_mpi() -> None:
    assert "mpi" in haloscope.info().features


def mpirun(ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Starts Python on so many processes; one that hangs is a failure."""
    launcher = shlex.split(os.environ.get("MPIRUN", "mpirun"))
    environment = {
        **os.environ,
        # Open MPI refuses to run as root, and to run more ranks than cores, unless told to.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    command = [*launcher, "-n", str(ranks), sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)


def program(ranks: int, text: str) -> str:
    """What a program prints on so many ranks, none of which fails."""
    done = mpirun(ranks, "-c", text)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs_mpi4py() -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    loaded = mpirun(1, "-c", "from mpi4py import MPI")
    if "ImportError" in loaded.stderr:
        pytest.skip("mpi4py does not load this MPI library")


def test_the_quick_start_has_the_bits_of_thread_ranks() -> None:
    outputs = []
    for ranks in ("1", "3"):
        command = [sys.executable, str(QUICKSTART), "--ranks", ranks]
        outputs.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for processes in (1, 3):
        done = mpirun(processes, str(QUICKSTART))
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert len(set(outputs)) == 1
    assert re.search(r"^bits +[0-9a-f]{16}", outputs[0], re.M)


def test_contexts_come_and_go_and_need_not_be_closed() -> None:
    text = """
import haloscope, numpy
image = haloscope.io.phantom.landscape(24, 32)
blur = haloscope.physics.Blur(haloscope.kernels.gaussian(1.0), "circular", img_size=(3, 24, 32))
kept = []
for _ in range(2):
    with haloscope.Context(backend="mpi") as ctx:
        stack = haloscope.distribute([blur, blur, blur], ctx)
        # Makes a context of its own.
        found = haloscope.reconstruct(blur.A(image), blur, "tv", method="fista", max_iter=2)
        kept.append(stack)
        ctx.barrier()
try:
    kept[0].A(image)
    assert len(set(kept[0].owners)) == 1, "a closed context has no other ranks"
except haloscope.Error as error:
    assert "left" in str(error), error
last = haloscope.Context(backend="mpi")
forgotten = haloscope.distribute([blur, blur], last)
shape = forgotten.A_adjoint_A(image).shape
if last.is_root:
    print("size", last.size, shape, found.digest)
"""
    lines = {program(ranks, text).splitlines()[-1].replace(f"size {ranks}", "size") for ranks in (1, 3)}
    assert len(lines) == 1 and "(1, 3, 24, 32)" in next(iter(lines))


def test_a_context_that_fails_after_it_joined_is_not_counted() -> None:
    text = """
import os
import haloscope
sizes = [name for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE") if name in os.environ]
right = {name: os.environ[name] for name in sizes}
image = haloscope.io.phantom.landscape(16, 16)
with haloscope.Context(backend="mpi") as ctx:
    stack = haloscope.distribute([haloscope.physics.Denoising(img_size=(3, 16, 16))] * 4, ctx)
    os.environ.update({name: "7" for name in sizes})
    try:
        haloscope.Context(backend="mpi")
        raise AssertionError("7 ranks were not started")
    except haloscope.Error as error:
        assert "7 ranks" in str(error), error
    os.environ.update(right)
    # The ranks work on, and leave with this one.
    stack.A_adjoint_A(image)
try:
    stack.A_adjoint_A(image)
    raise AssertionError("the ranks have not left")
except haloscope.Error as error:
    assert "left" in str(error), error
with haloscope.Context(backend="mpi") as again:
    count = len(again.all_gather(again.rank))
    if again.is_root:
        print("again", count)
"""
    assert program(3, text).split() == ["again", "3"]


MPI4PY_AND_OURS = """
comm = MPI.COMM_WORLD
assert (ctx.rank, ctx.size) == (comm.rank, comm.size)
# Messages of both, in turns.
for turn in range(20):
    assert comm.allreduce(ctx.rank) == sum(range(comm.size))
    assert float(ctx.all_reduce(numpy.float32([ctx.rank]))[0]) == sum(range(comm.size))
stack = haloscope.distribute([haloscope.physics.Denoising(img_size=(3, 16, 16))] * 4, ctx)
total = stack.A_adjoint_A(haloscope.io.phantom.landscape(16, 16))
ctx.close()
# mpi4py works on.
assert comm.allreduce(1) == comm.size
with haloscope.Context() as again:
    again.barrier()
assert comm.allreduce(1) == comm.size
if comm.rank == 0:
    print("total", total.tobytes().hex()[:64])
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_mpi4py_may_come_first(ranks: int) -> None:
    needs_mpi4py()
    text = "from mpi4py import MPI\nimport haloscope, numpy\n"
    text += "ctx = haloscope.Context.from_mpi4py(MPI.COMM_WORLD)\n" + MPI4PY_AND_OURS
    assert "total" in program(ranks, text)


@pytest.mark.parametrize("ranks", [1, 3])
def test_mpi4py_may_come_second(ranks: int) -> None:
    needs_mpi4py()
    text = 'import haloscope, numpy\nctx = haloscope.Context(backend="mpi")\nfrom mpi4py import MPI\n' + MPI4PY_AND_OURS
    assert "total" in program(ranks, text)


def test_mpi4py_is_found_by_a_context_that_is_detected() -> None:
    needs_mpi4py()
    text = "from mpi4py import MPI\nimport haloscope, numpy\nctx = haloscope.Context()\n" + MPI4PY_AND_OURS
    assert "total" in program(3, text)


def test_parts_of_the_world_are_ranks_of_their_own() -> None:
    needs_mpi4py()
    text = """
from mpi4py import MPI
import haloscope, numpy
world = MPI.COMM_WORLD
half = world.Split(world.rank % 2)
with haloscope.Context.from_mpi4py() as all_ranks, haloscope.Context.from_mpi4py(half) as ctx:
    assert (ctx.rank, ctx.size) == (half.rank, half.size)
    assert float(ctx.all_reduce(numpy.float32([1]))[0]) == half.size
    assert float(all_ranks.all_reduce(numpy.float32([1]))[0]) == world.size
for wrong in (3, MPI.COMM_NULL):
    try:
        haloscope.Context.from_mpi4py(wrong)
    except haloscope.ArgumentError as error:
        assert "intracommunicator" in str(error)
    else:
        raise AssertionError("that is no communicator")
# One rank prints, because the lines of several may mix.
ranks = world.gather(world.rank)
if world.rank == 0:
    print("ranks", *ranks)
"""
    assert program(4, text).split() == ["ranks", "0", "1", "2", "3"]


def test_a_level_of_threads_that_is_too_low_is_refused() -> None:
    needs_mpi4py()
    text = """
import mpi4py
mpi4py.rc.thread_level = "single"
from mpi4py import MPI
import haloscope
if MPI.Query_thread() >= MPI.THREAD_SERIALIZED:
    outcome = "the library gives more than was asked for"
else:
    try:
        haloscope.Context.from_mpi4py()
        outcome = "accepted"
    except haloscope.Error as error:
        assert "Serialized" in str(error), error
        outcome = "refused"
# One rank prints, because the lines of several may mix.
outcomes = MPI.COMM_WORLD.gather(outcome)
if MPI.COMM_WORLD.rank == 0:
    assert "accepted" not in outcomes, outcomes
    print("done")
"""
    assert program(2, text).split() == ["done"]


def test_an_exception_on_rank_2_of_3_ends_all() -> None:
    text = """
import haloscope
with haloscope.Context() as ctx:
    ctx.barrier()
    if ctx.rank == 2:
        raise KeyError("the line of the user")
    ctx.barrier()
"""
    done = mpirun(3, "-c", text)
    assert done.returncode != 0
    assert "Traceback" in done.stderr and "KeyError: 'the line of the user'" in done.stderr
    assert "rank 2" in done.stderr


def test_an_exception_of_a_callable_is_raised_on_its_rank_and_named_on_the_others() -> None:
    text = """
import haloscope
def failing(x, sigma):
    if ctx.rank == 1:
        raise KeyError("the line of the user")
    return x
with haloscope.Context() as ctx:
    shared = haloscope.distribute(failing, ctx, patch_size=16, overlap=4)
    try:
        shared(haloscope.io.phantom.landscape(40, 56), 0.1)
    except KeyError as error:
        caught = f"rank {ctx.rank} KeyError;"
    except haloscope.RankError as error:
        caught = f"rank {ctx.rank} RankError {error.rank};"
    ctx.barrier()
print(caught)
"""
    # The lines of several ranks may mix.
    caught = sorted(re.findall(r"rank (\d \w+(?: \d)?);", program(3, text)))
    assert caught == ["0 RankError 1", "1 KeyError", "2 RankError 1"]


def test_jobs_run_on_the_ranks_of_the_launcher() -> None:
    text = """
import haloscope
job = {"measurements": {"phantom": "landscape", "size": [32, 40], "noise": {"gaussian": 0.02}},
       "operators": [{"kind": "blur", "kernel": "gaussian", "sigma": 1.5}, {"kind": "blur", "kernel": "gaussian", "sigma": 1.0}],
       "prior": {"kind": "total-variation", "weight": 0.01}, "solver": {"method": "fista"}, "stop": {"iterations": 3}}
digests = [haloscope.run(job).digest for _ in range(2)]
assert digests[0] == digests[1]
print(digests[0])
"""
    # The lines of several ranks may mix.
    digests = [re.findall("[0-9a-f]{16}", program(ranks, text)) for ranks in (1, 3)]
    assert [len(found) for found in digests] == [1, 3] and len({*digests[0], *digests[1]}) == 1


def test_the_command_runs_on_the_ranks_of_the_launcher() -> None:
    digests = []
    for ranks in (1, 3):
        done = mpirun(ranks, "-m", "haloscope", "demo", "--problem", "deblur", "--size", "48", "--iterations", "2", "--json")
        assert done.returncode == 0, done.stderr
        digests.append(re.findall(r'"(?:bits|digest)": *"([0-9a-f]+)"', done.stdout))
    assert digests[0] and digests[0] == digests[1]
