"""Ranks: the same bits on any number of them, exceptions that come back as themselves, and nobody who hangs."""

import logging
import sys
import threading
import traceback

import haloscope
import numpy as np
import pytest
from haloscope import Context, distribute, launch, optim, physics

RANKS = (1, 2, 3, 5, 8)
IMAGE = haloscope.io.phantom.landscape(40, 56)


def blurs(count: int) -> list[physics.Physics]:
    def blur(index: int) -> physics.Physics:
        noise = physics.GaussianNoise(0.01 * (index + 1))
        kernel = haloscope.kernels.gaussian((2.0, 1.0), 60.0 * index)
        return physics.Blur(kernel, "circular", img_size=(3, 40, 56), noise_model=noise)

    return [blur(index) for index in range(count)]


def test_stacks_have_the_same_bits_on_any_number_of_ranks() -> None:
    def body(ctx: Context) -> np.ndarray:
        shared = distribute(blurs(3), ctx)
        y = shared(IMAGE, seed=4)
        assert y.is_complete and len(y) == 3
        fidelity = distribute(optim.L2(), ctx)
        gradient = fidelity.grad(IMAGE, y, shared)
        return np.concatenate([shared.A_adjoint(y), gradient, *y], axis=1)

    found = haloscope.testing.assert_same_bits(body, RANKS)
    plain = physics.Stack(blurs(3))
    np.testing.assert_array_equal(found[:, :3], plain.A_adjoint(plain(IMAGE, seed=4)))


def test_parts_can_stay_on_their_ranks() -> None:
    def body(ctx: Context) -> tuple[list[int], float]:
        shared = distribute(blurs(3), ctx)
        y = shared.A(IMAGE, gather=False)
        own = sorted(y.local())
        assert own == shared.local_indices() == ctx.local_indices(3)
        if own != [0, 1, 2]:
            with pytest.raises(haloscope.ArgumentError, match="another rank"):
                list(y)
        return own, float(shared.A_adjoint(y).sum())

    results = launch(body, 4)
    assert [own for own, _ in results] == [[0], [1], [2], []]
    assert len({total for _, total in results}) == 1


def test_factories_are_called_where_their_operators_are() -> None:
    def body(ctx: Context) -> np.ndarray:
        made = []

        def make(index: int, context: Context, shared: dict[str, float]) -> physics.Physics:
            made.append(index)
            return physics.Blur(haloscope.kernels.gaussian(shared["width"] + index), "circular", img_size=(3, 40, 56))

        options = {"width": 1.0} if ctx.is_root else None
        shared = distribute(make, ctx, num_operators=4, factory_kwargs=options)
        assert made == ctx.local_indices(4)
        return shared.A_adjoint_A(IMAGE)

    haloscope.testing.assert_same_bits(body, (1, 3, 5))


@pytest.mark.parametrize("strategy", [None, "blend", "basic", "exact"])
def test_denoisers_have_the_same_bits_on_any_number_of_ranks(strategy: str | None) -> None:
    def body(ctx: Context) -> np.ndarray:
        net = haloscope.models.Network("builtin:color", threads=1)
        tiles = {} if strategy == "exact" else {"patch_size": 24, "overlap": 8}
        shared = distribute(net, ctx, tiling_strategy=strategy, **tiles)
        return shared(IMAGE, 0.1)

    found = haloscope.testing.assert_same_bits(body, (1, 3))
    if strategy == "exact":
        np.testing.assert_array_equal(found, haloscope.models.Network("builtin:color", threads=1)(IMAGE, 0.1))


def test_a_network_without_lengths_of_tiles_has_the_bits_of_the_whole_image() -> None:
    image = haloscope.io.phantom.landscape(48, 272)
    net = haloscope.models.Network("builtin:color", threads=1)

    def body(ctx: Context) -> np.ndarray:
        shared = distribute(net, ctx, patch_size=None, overlap=None)
        with pytest.raises(haloscope.ArgumentError, match="no tiles"):
            shared.plan(image.shape)
        return shared(image, 0.1)

    np.testing.assert_array_equal(haloscope.testing.assert_same_bits(body, (1, 3)), net(image, 0.1))


def test_callables_denoise_tiles() -> None:
    def body(ctx: Context) -> np.ndarray:
        shared = distribute(lambda x, sigma: x * sigma, ctx, patch_size=16, overlap=4, tiling_strategy="overlap")
        return shared(IMAGE, 0.5)

    np.testing.assert_allclose(haloscope.testing.assert_same_bits(body, RANKS), IMAGE * 0.5, rtol=1e-6)


def test_methods_have_the_same_bits_on_any_number_of_ranks() -> None:
    y = physics.Stack(blurs(3))(IMAGE, seed=1)

    def body(ctx: Context) -> np.ndarray:
        method = optim.FISTA(prior=optim.TVPrior(n_it_max=10), lambda_reg=0.01, max_iter=4)
        return method(y, blurs(3), ctx=ctx).image

    haloscope.testing.assert_same_bits(body, (1, 2, 5))


def failing(x: np.ndarray, sigma: float) -> np.ndarray:
    raise KeyError("the line of the user")


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_exception_of_a_callable_comes_back_as_itself(ranks: int) -> None:
    def body(ctx: Context) -> None:
        shared = distribute(failing, ctx, patch_size=16, overlap=4)
        shared(IMAGE, 0.1)

    with pytest.raises(KeyError, match="the line of the user") as caught:
        launch(body, ranks)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert any(frame.name == "failing" for frame in frames)
    if sys.version_info >= (3, 11):
        notes = caught.value.__notes__
        assert any("denoiser" in note and "failing" in note for note in notes)
        assert any("on rank" in note for note in notes)


def test_an_exception_on_rank_2_of_3_ends_all() -> None:
    class Mine(Exception):
        pass

    errors: dict[int, BaseException] = {}

    def body(ctx: Context) -> None:
        if ctx.rank == 2:
            raise Mine("rank 2 has had enough")
        try:
            ctx.barrier()
        except haloscope.RankError as error:
            errors[ctx.rank] = error
            raise

    with pytest.raises(Mine, match="had enough") as caught:
        launch(body, 3)
    assert any(frame.name == "body" for frame in traceback.extract_tb(caught.value.__traceback__))
    assert sorted(errors) == [0, 1]
    assert {error.rank for error in errors.values()} == {2}  # type: ignore[attr-defined]


def test_nested_calls_and_threads_of_ranks_do_not_wait_for_each_other() -> None:
    tv = haloscope.models.TV(n_it_max=5)

    def nested(x: np.ndarray, sigma: float) -> np.ndarray:
        return tv(x, sigma)

    def work() -> None:
        launch(lambda ctx: distribute(nested, ctx, patch_size=16, overlap=4)(IMAGE, 0.1), 2)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)


def test_collectives_agree() -> None:
    def body(ctx: Context) -> tuple[float, list[int], list[int]]:
        values = np.array([ctx.rank, 1.0], np.float32)
        total, last = ctx.all_reduce(values), ctx.broadcast(values, src=ctx.size - 1)
        assert ctx.statistics()["calls"] >= 2
        return float(total[0]), [int(value) for value in last], ctx.all_gather(ctx.rank)

    for ranks in RANKS:
        for total, last, all_ranks in launch(body, ranks):
            assert total == sum(range(ranks)) and last == [ranks - 1, 1] and all_ranks == list(range(ranks))


def test_ranks_that_disagree_are_told() -> None:
    def body(ctx: Context) -> None:
        ctx.barrier() if ctx.rank else ctx.all_reduce(np.zeros(2))

    with pytest.raises(haloscope.RankError, match="disagree"):
        launch(body, 2)


def test_a_closed_context_says_so() -> None:
    with Context() as ctx:
        pass
    with pytest.raises(haloscope.ArgumentError, match="closed"):
        ctx.barrier()
    assert launch(lambda ctx: ctx, 1)[0] is not None


def test_a_launcher_without_mpi_is_an_error_and_not_many_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    if "mpi" in haloscope.info().features:
        pytest.skip("this build has MPI")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    with pytest.raises(haloscope.Error, match="MPI|mpi"):
        launch(lambda ctx: ctx.rank, 2)


def test_a_batch_script_before_srun_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    assert launch(lambda ctx: ctx.size, 2) == [2, 2]


def test_messages_of_rust_go_to_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        haloscope.run(
            {
                "measurements": {"phantom": "landscape", "size": [24, 24]},
                "operators": [{"kind": "blur", "kernel": "gaussian", "sigma": 1.0}],
                "prior": {"kind": "network", "model": "builtin:color"},
                "solver": {"method": "hqs", "levels": [0.1, 0.05]},
                "stop": {"iterations": 1},
            }
        )
    assert any(record.name.startswith("haloscope") for record in caplog.records)
