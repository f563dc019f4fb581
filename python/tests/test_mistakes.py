"""What is wrong is refused with the value that was given and what is accepted, before anything is computed."""

import copy
from collections.abc import Callable

import haloscope
import numpy as np
import pytest
from haloscope import kernels, models, optim, physics

IMAGE = haloscope.io.phantom.landscape(16, 24)
BLUR = physics.Blur(kernels.gaussian(1.0), "circular", img_size=(3, 16, 24))
Y = BLUR.A(IMAGE)

MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "a range upside down": (lambda: optim.PGD(clamp=(1, 0)), r"clamp: \(1.0, 0.0\)"),
    "a range of NaN": (lambda: optim.PGD(clamp=(0, np.nan)), "clamp"),
    "half a range": (lambda: optim.PGD(clamp=1.0), "least and a greatest"),  # type: ignore[arg-type]
    "a range of a prior upside down": (lambda: optim.PnP(models.TV(), range=(1, 0)), "range"),
    "a range of a prior by another name": (lambda: optim.PnP(models.TV(), range="unit"), "normalize"),  # type: ignore[arg-type]
    "less than no iterations": (lambda: optim.PGD(max_iter=-1), "max_iter: -1"),
    "half an iteration": (lambda: optim.PGD(max_iter=2.5), "max_iter: 2.5"),  # type: ignore[arg-type]
    "one length for three axes": (lambda: physics.Blur(kernels.gaussian(1.0), img_size=64), "img_size: 64"),  # type: ignore[arg-type]
    "lengths that are no whole numbers": (lambda: physics.Tomography((1, 16.5, 16)), "whole number"),  # type: ignore[arg-type]
    "a class for a denoiser": (lambda: optim.PGD(prior=models.TV), r"TV\(\) makes one"),
    "a number for a denoiser": (lambda: models.as_denoiser(3), "name or file of weights"),  # type: ignore[arg-type]
    "no measurements": (lambda: optim.CG()(None, BLUR), "measurements: None"),
    "nothing to resume from": (lambda: optim.CG()(Y, BLUR, resume=True), "checkpoint=FOLDER"),
    "parts of ranks": (lambda: haloscope.plan(BLUR, ranks=2.0), "ranks: 2.0"),  # type: ignore[call-overload]
    "numbers for operators": (lambda: haloscope.plan([1, 2], shape=(1, 3, 4, 4)), "1 is no operator"),  # type: ignore[list-item]
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, words = MISTAKES[mistake]
    with pytest.raises(haloscope.ArgumentError, match=words):
        call()


def test_measurements_that_are_not_finite_are_counted() -> None:
    holes = np.array(Y)
    holes[0, 0, 3, :5] = np.nan
    holes[0, 1, 0, 0] = np.inf
    with pytest.raises(haloscope.NumericError, match=r"measurement 1: 6 of 1152 values.*Inpainting"):
        optim.CG(max_iter=1)([Y, holes], [BLUR, BLUR])
    # As it advises.
    mask = np.isfinite(holes[0]).astype(np.float32)
    masked = physics.Inpainting(BLUR.measurement_size, mask) * BLUR
    assert np.isfinite(optim.CG(max_iter=1)(np.where(np.isfinite(holes), holes, 0), masked).image).all()


def test_a_name_of_weights_is_a_prior() -> None:
    named = optim.PGD(prior="builtin:color", max_iter=1)(Y, BLUR)
    assert named.digest == optim.PGD(prior=models.Network("builtin:color"), max_iter=1)(Y, BLUR).digest


def test_deep_copies_share_what_is_never_changed() -> None:
    both = copy.deepcopy({"blur": BLUR, "net": models.Network("builtin:color")})
    np.testing.assert_array_equal(both["blur"].A(IMAGE), Y)
    assert both["net"](IMAGE, 0.1).shape == IMAGE.shape


def test_a_deep_copy_of_a_subclass_has_arrays_of_its_own() -> None:
    class Mask(physics.LinearPhysics):
        def __init__(self) -> None:
            super().__init__(img_size=(1, 4, 4))
            self.mask = np.ones((1, 1, 4, 4), np.float32)

        def A(self, x: np.ndarray) -> np.ndarray:
            return x * self.mask

        def A_adjoint(self, y: np.ndarray) -> np.ndarray:
            return y * self.mask

    original = Mask()
    changed = copy.deepcopy(original)
    changed.mask[:] = 0
    image = np.ones((1, 1, 4, 4), np.float32)
    assert original.A(image).sum() == 16 and changed.A(image).sum() == 0


def test_results_show_themselves_in_a_line() -> None:
    shown = repr(optim.CG(max_iter=1)(Y, BLUR, x_gt=IMAGE))
    assert shown.startswith("Result((1, 3, 16, 24), 1 iteration, max_iter, ") and "dB" in shown and "\n" not in shown
