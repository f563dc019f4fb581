"""Fidelities that a class of Python defines, on ranks."""

import sys
import traceback
from typing import Any

import haloscope
import numpy as np
import pytest
from haloscope import Context, distribute, launch, optim, physics

IMAGE = haloscope.io.phantom.landscape(24, 32)
RANKS = (1, 2, 3, 5, 8)


def blurs(count: int) -> list[physics.Physics]:
    kernels = [haloscope.kernels.gaussian((2.0, 1.0), 60.0 * index) for index in range(count)]
    return [physics.Blur(kernel, "circular", img_size=(3, 24, 32)) for kernel in kernels]


class Squares(optim.DataFidelity):
    """What :class:`haloscope.optim.L2` is, written down again."""

    def d(self, u: Any, y: Any) -> float:
        return float(0.5 * ((u.astype(np.float64) - y) ** 2).sum())

    def grad_d(self, u: Any, y: Any) -> Any:
        return u - y

    def prox_d(self, u: Any, y: Any, *, gamma: float = 1.0) -> Any:
        return ((u + gamma * y) / (1 + gamma)).astype(np.float32)


def test_values_gradients_and_proxes_are_those_of_the_library() -> None:
    stack = physics.Stack(blurs(3))
    y = stack(IMAGE)
    x = np.zeros_like(IMAGE)
    for own, known in [(Squares(), optim.L2()), (distribute([Squares()] * 3, Context()), optim.L2())]:
        assert own.fn(x, y, stack) == pytest.approx(known.fn(x, y, stack), rel=1e-6)
        np.testing.assert_allclose(own.grad(x, y, stack), known.grad(x, y, stack), atol=1e-5)
    u = np.ones((1, 3, 8, 8), np.float32)
    np.testing.assert_allclose(Squares().prox_d(u, u * 0, gamma=3.0), optim.L2().prox_d(u, u * 0, gamma=3.0), atol=1e-6)


def test_methods_take_them_with_the_same_bits_on_any_number_of_ranks() -> None:
    y = physics.Stack(blurs(3))(IMAGE)

    def body(ctx: Context) -> np.ndarray:
        by_gradient = optim.FISTA(Squares(), prior=optim.TVPrior(n_it_max=10), lambda_reg=0.01, stepsize=0.3, max_iter=4)
        by_prox = optim.PDCP(Squares(), prior=optim.TVPrior(), lambda_reg=0.01, stepsize=0.3, max_iter=4)
        return np.concatenate([method(y, blurs(3), ctx=ctx).image for method in (by_gradient, by_prox)])

    found = haloscope.testing.assert_same_bits(body, RANKS)
    known = optim.FISTA(prior=optim.TVPrior(n_it_max=10), lambda_reg=0.01, stepsize=0.3, max_iter=4)
    np.testing.assert_allclose(found[:1], known(y, blurs(3)).image, atol=1e-5)


def test_a_subclass_of_a_known_one_may_change_a_part_of_it() -> None:
    class Half(optim.L2):
        def d(self, u: Any, y: Any) -> float:
            return 0.5 * super().d(u, y)

        def grad_d(self, u: Any, y: Any) -> Any:
            return 0.5 * super().grad_d(u, y)

    frame = physics.Denoising(img_size=(3, 24, 32))
    assert Half().fn(IMAGE * 0, IMAGE, frame) == pytest.approx(0.5 * optim.L2().fn(IMAGE * 0, IMAGE, frame))


def test_an_exception_comes_back_as_itself_from_the_rank_that_has_the_measurement() -> None:
    class Mine(Exception):
        pass

    class Failing(Squares):
        def grad_d(self, u: Any, y: Any) -> Any:
            raise Mine("the line of the user")

    def body(ctx: Context) -> None:
        shared = distribute(blurs(3), ctx)
        parts = distribute([Squares(), Squares(), Failing()], ctx)
        assert parts.fn(IMAGE, shared(IMAGE), shared) == 0
        parts.grad(IMAGE, shared(IMAGE), shared)

    for ranks in (1, 3, 5):
        with pytest.raises(Mine, match="the line of the user") as caught:
            launch(body, ranks)
        assert any(frame.name == "grad_d" for frame in traceback.extract_tb(caught.value.__traceback__))
        if sys.version_info >= (3, 11):
            assert any("data fidelity" in note and "Failing" in note for note in caught.value.__notes__)


def test_what_a_subclass_leaves_out_is_named() -> None:
    class Empty(optim.DataFidelity):
        pass

    class OnlyGradient(optim.DataFidelity):
        def grad_d(self, u: Any, y: Any) -> Any:
            return u - y

    class OnlyValue(optim.DataFidelity):
        def d(self, u: Any, y: Any) -> float:
            return 0.0

    class Wide(OnlyValue):
        def grad_d(self, u: Any, y: Any) -> Any:
            return np.zeros((1, 2, 3), np.float32)

    frame = physics.Denoising(img_size=(3, 24, 32))
    for empty in (Empty(), OnlyGradient()):
        with pytest.raises(haloscope.ArgumentError, match=r"defines d\(u, y\)"):
            empty.fn(IMAGE, IMAGE, frame)
    with pytest.raises(haloscope.ArgumentError, match="defines no grad_d"):
        OnlyValue().grad(IMAGE, IMAGE, frame)
    with pytest.raises(haloscope.ShapeError, match="data fidelity"):
        Wide().grad(IMAGE, IMAGE, frame)
