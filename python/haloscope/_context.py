"""Ranks: the context of this process, and threads that are ranks."""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import traceback as tracebacks
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

from . import _haloscope
from ._arrays import ArrayLike, as_input, restore
from ._errors import ArgumentError

__all__ = ["Context", "launch"]

T = TypeVar("T")

#: Those that are not closed; left at the end of the interpreter, before mpi4py finalises MPI.
_open: dict[_haloscope.Context, None] = {}


class Context:
    """A rank and its surroundings: MPI under mpirun or srun, else one rank.

    Under a launcher, a package without MPI raises here rather than running as many independent copies. MPI is initialised by the
    first context, unless mpi4py has; whoever initialised it finalises it when the process exits. Several contexts may be open at a
    time, or one after the other; all ranks make and close them in the same order.

    >>> import haloscope
    >>> with haloscope.Context() as ctx:
    ...     print(ctx.rank, ctx.size, ctx.is_root)
    0 1 True
    """

    #: As in deepinv, so that ``x.to(ctx.device)`` runs.
    device: Literal["cpu"] = "cpu"

    def __init__(
        self,
        *,
        backend: Literal["auto", "solo", "mpi"] = "auto",
        seed: int = 0,
        threads: int | None = None,
        deadline: float = 300.0,
    ) -> None:
        self._native = _haloscope.Context(backend, seed, threads, deadline)
        _open[self._native] = None

    @classmethod
    def _of(cls, native: _haloscope.Context) -> Self:
        context = cls.__new__(cls)
        context._native = native
        return context

    @classmethod
    def from_mpi4py(
        cls, comm: Any = None, *, seed: int = 0, threads: int | None = None, deadline: float = 300.0
    ) -> Self:
        """The ranks of a communicator of mpi4py, by default ``COMM_WORLD``, which all of its processes pass.

        The context has a duplicate of the communicator, so that messages do not meet; mpi4py finalises MPI. haloscope must be built
        with mpi4py's MPI library, which must allow threads to call it (``MPI_THREAD_SERIALIZED``, or mpi4py's default,
        ``MPI_THREAD_MULTIPLE``, which several communicators at a time need).

        >>> import haloscope
        >>> from mpi4py import MPI  # doctest: +SKIP
        >>> with haloscope.Context.from_mpi4py(MPI.COMM_WORLD) as ctx:  # doctest: +SKIP
        ...     ctx.size == MPI.COMM_WORLD.size
        True
        """
        from mpi4py import MPI

        comm = MPI.COMM_WORLD if comm is None else comm
        if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
            raise ArgumentError(f"comm: {comm!r} is given; an intracommunicator of mpi4py is accepted, such as MPI.COMM_WORLD")
        library = MPI.Get_library_version()
        native = _haloscope.Context.of_mpi4py(MPI._addressof(comm), library, seed, threads, deadline)
        _open[native] = None
        return cls._of(native)

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self._native.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._native.size

    @property
    def world_size(self) -> int:
        """How many ranks there are, by deepinv's name."""
        return self._native.size

    @property
    def local_rank(self) -> int:
        """The number of this rank among those of its machine."""
        return self._native.local_rank

    @property
    def local_size(self) -> int:
        """How many ranks this machine has."""
        return self._native.local_size

    @property
    def threads_per_rank(self) -> int:
        """The threads that this rank may use."""
        return self._native.threads_per_rank

    @property
    def is_root(self) -> bool:
        """Whether this is rank 0, which prints for all."""
        return self._native.rank == 0

    def local_indices(self, num_items: int) -> list[int]:
        """The items of this rank, dealt round-robin.

        >>> import haloscope
        >>> haloscope.launch(lambda ctx: ctx.local_indices(5), ranks=2)
        [[0, 2, 4], [1, 3]]
        """
        return self._native.local_indices(num_items)

    def barrier(self) -> None:
        """Waits for all ranks, no longer than the deadline."""
        self._native.barrier()

    def broadcast(self, x: ArrayLike, src: int = 0) -> Any:
        """The array of rank ``src`` on all ranks; the others pass one of the same shape."""
        return restore(x)(self._native.broadcast(as_input(x), src))

    def all_reduce(self, x: ArrayLike, op: Literal["sum", "min", "max"] = "sum") -> Any:
        """The sum over ranks (or ``min``, ``max``), with the same bits on all of them.

        >>> import haloscope, numpy
        >>> total = lambda ctx: float(ctx.all_reduce(numpy.float32([ctx.rank]))[0])
        >>> haloscope.launch(total, ranks=3)
        [3.0, 3.0, 3.0]
        """
        return restore(x)(self._native.all_reduce(as_input(x), op))

    def all_gather(self, x: Any) -> list[Any]:
        """What each rank passes, on all ranks; anything that can be pickled.

        >>> import haloscope
        >>> haloscope.launch(lambda ctx: ctx.all_gather(ctx.rank ** 2), ranks=3)[0]
        [0, 1, 4]
        """
        return [pickle.loads(bytes(part)) for part in self._native.all_gather_bytes(pickle.dumps(x))]

    def abort(self, reason: str) -> NoReturn:
        """Ends the job on all ranks and says why."""
        self._native.abort(reason)
        raise AssertionError("abort raises")

    def statistics(self) -> dict[str, float]:
        """Calls, bytes sent and received, and seconds of transfer and of waiting."""
        return self._native.statistics()

    def close(self) -> None:
        """Leaves the ranks, together with the others. At the end of the interpreter it is called for you."""
        _open.pop(self._native, None)
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if value is not None and self._native.size > 1:
            # Others would wait for this rank until their deadline. Ending the job ends this process, too.
            tracebacks.print_exception(kind, value, traceback)
            sys.stderr.flush()
            sys.stdout.flush()
            try:
                self._native.abort(f"{type(value).__name__}: {value}")
            except Exception:  # noqa: BLE001  (the exception of the block is the one that counts)
                pass
        self.close()

    def __repr__(self) -> str:
        return f"Context(rank={self.rank}, size={self.size})"


@atexit.register
def _close_all() -> None:
    while _open:
        _open.popitem()[0].close()


def launch(
    body: Callable[[Context], T],
    ranks: int | None = None,
    *,
    seed: int = 0,
    threads: int | None = None,
    deadline: float = 300.0,
) -> list[T]:
    """Runs ``body`` on ``ranks`` threads and returns what each returned.

    Under mpirun or srun it runs on this process's rank and returns a list with its result. An exception on a rank is raised here as
    itself, with a note of the rank; the other ranks end.

    Threads share one interpreter: haloscope's operators, networks and solvers run at the same time, Python code does not, except
    inside of torch and numpy. For denoisers that are written in Python, start processes with mpirun.

    >>> import haloscope
    >>> haloscope.launch(lambda ctx: (ctx.rank, ctx.size), ranks=2)
    [(0, 2), (1, 2)]
    """
    if _haloscope.is_launched():
        with Context(seed=seed, threads=threads, deadline=deadline) as context:
            return [body(context)]
    if ranks is not None and ranks < 1:
        raise ArgumentError(f"ranks: {ranks} is given; at least 1 is needed")
    return _haloscope.launch(
        lambda native: body(Context._of(native)), ranks or os.cpu_count() or 1, seed, threads, deadline
    )
