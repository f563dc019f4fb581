"""Operators of frequencies against the sums that define them, and reconstructions with them."""

import pathlib

import haloscope
import numpy as np
import pytest
from haloscope import physics
from haloscope.physics import fourier

FIXTURES = pathlib.Path(__file__).parents[2] / "crates/haloscope/fixtures/ismrmrd"
RANDOM = np.random.default_rng(5)


def noise(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape) + 1j * RANDOM.standard_normal(shape)


def places(*sides: int) -> np.ndarray:
    """(pixel, side), from 0 in the middle."""
    grids = np.meshgrid(*[np.arange(side) - side // 2 for side in sides], indexing="ij")
    return np.stack([grid.ravel() for grid in grids], axis=-1)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("sides", [(12, 9), (4, 6, 5)])
def test_adjoints_are_exact(channels: int, sides: tuple[int, ...]) -> None:
    coil, mask = noise(*sides), RANDOM.integers(0, 2, sides)
    points = RANDOM.uniform(-np.pi, np.pi, (70, len(sides)))
    density = RANDOM.uniform(0.5, 2, 70)
    for operator in (
        fourier.Cartesian((channels, *sides), coil=coil, mask=mask),
        fourier.Trajectory((channels, *sides), points, coil=coil, density=density),
    ):
        haloscope.testing.assert_adjoint(operator)


def test_the_transform_is_the_sum_that_defines_it() -> None:
    for sides in ((9, 8), (4, 5, 6)):
        points = RANDOM.uniform(-np.pi, np.pi, (40, len(sides)))
        waves = np.exp(-1j * points @ places(*sides).T)
        image, samples = noise(*sides), noise(40)
        transform = fourier.Nufft(sides, points, accuracy=1e-10)
        expected = waves @ image.ravel()
        assert np.linalg.norm(transform.forward(image) - expected) < 1e-8 * np.linalg.norm(expected)
        expected = waves.conj().T @ samples
        assert np.linalg.norm(transform.adjoint(samples).ravel() - expected) < 1e-8 * np.linalg.norm(expected)
    with pytest.raises(haloscope.ArgumentError, match=r"\(4, 5, 6\) is accepted"):
        transform.forward(np.ones((4, 5)))
    with pytest.raises(haloscope.ArgumentError, match=r"\(sample, 2\) is accepted"):
        fourier.Nufft((4, 4), np.zeros((3, 3)))


def test_a_scan_on_a_grid_is_a_masked_transform() -> None:
    image, coil = noise(2, 8, 7), noise(8, 7)
    mask = RANDOM.integers(0, 2, (8, 7))
    scan = fourier.Cartesian((2, 8, 7), coil=coil, mask=mask)
    shifted = np.fft.ifftshift(coil * image, axes=(1, 2))
    expected = mask * np.fft.fftshift(np.fft.fft2(shifted, norm="ortho"), axes=(1, 2))
    found = scan.A(image)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.complex64
    # Two channels are the same.
    parts = np.stack([image.real, image.imag], axis=1).astype(np.float32)
    np.testing.assert_array_equal(scan.A(parts)[:, 0], found.real)
    np.testing.assert_array_equal(scan.A_adjoint(found)[0].imag, scan.A_adjoint(scan.A(parts))[0, 1])
    # And one image has no batch.
    np.testing.assert_array_equal(scan.A(image[0]), found[0])


def test_samples_along_a_trajectory_are_the_sum_that_defines_them() -> None:
    points, image = RANDOM.uniform(-np.pi, np.pi, (30, 2)), noise(8, 7)
    waves = np.exp(-1j * points @ places(8, 7).T) / np.sqrt(56)
    weights = RANDOM.uniform(0.5, 2, 30)
    scan = fourier.Trajectory((2, 8, 7), points, density=weights, accuracy=1e-6)
    expected = waves @ image.ravel()
    np.testing.assert_allclose(scan.A(image), np.sqrt(weights) * expected, atol=1e-4)
    np.testing.assert_allclose(scan.weighted(expected), np.sqrt(weights) * expected, rtol=1e-6)
    with pytest.raises(haloscope.ArgumentError, match="π"):
        fourier.Trajectory((2, 8, 7), points * 2)


def test_visibilities_are_the_sum_that_defines_them() -> None:
    cell, sky = 0.01, RANDOM.uniform(0, 1, (1, 1, 12, 10)).astype(np.float32)
    uvw = RANDOM.uniform(-20, 20, (25, 3))
    m, l = (places(12, 10) * cell).T
    n = np.sqrt(1 - l**2 - m**2)
    u, v, w = uvw.T[:, :, None]
    waves = np.exp(-2j * np.pi * (u * l + v * m - w * (n - 1))) / n
    weights = RANDOM.uniform(0, 3, 25)
    telescope = fourier.Visibilities((1, 12, 10), uvw, cell, weights=weights, accuracy=1e-6)
    haloscope.testing.assert_adjoint(telescope)
    found = telescope.A(sky)
    expected = np.sqrt(weights) * (waves @ sky.ravel())
    np.testing.assert_allclose(found[0, 0] + 1j * found[0, 1], expected, atol=1e-4)
    assert telescope.A_adjoint(expected[None]).shape == (1, 1, 12, 10)


def test_least_squares_of_coils_find_the_image() -> None:
    sides = (32, 32)
    image = haloscope.io.phantom.shepp_logan(sides)
    mask = np.ones(sides)
    mask[1::2] = 0
    maps = fourier.birdcage(sides, 6)
    scan = physics.Stack([fourier.Cartesian((1, *sides), coil=coil, mask=mask) for coil in maps])
    found = scan.A_dagger(scan.A(image), solver="cg", max_iter=200, tol=1e-7)
    assert np.linalg.norm(found - image) < 1e-2 * np.linalg.norm(image)


def test_least_squares_of_a_spiral_find_the_image() -> None:
    sides = (32, 32)
    blob = np.exp(-np.hypot(*np.mgrid[-16:16, -16:16]) ** 2 / 40).astype(np.float32)[None, None]
    points = fourier.spiral(sides, 6)
    scan = fourier.Trajectory((1, *sides), points, density=fourier.density(sides, points))
    found = scan.A_dagger(scan.A(blob), solver="cg", max_iter=50)
    assert np.linalg.norm(found - blob) < 1e-2 * np.linalg.norm(blob)
    golden = fourier.spiral(sides, 6, golden=True, turns=4, samples=100, power=2)
    assert golden.shape == (600, 2) and abs(golden).max() <= np.pi * (1 + 1e-12)


def test_sensitivities_are_found() -> None:
    sides = (16, 18, 20)
    maps = fourier.birdcage(sides, 2)
    ball = (((places(*sides) / np.array(sides)) ** 2).sum(axis=1) < 0.15).reshape(sides)
    transform = fourier.Cartesian((2, *sides))
    measured = np.stack([transform.A(coil * ball) for coil in maps])
    found = fourier.sensitivities(measured, width=12, kernel=3)
    turned = maps * np.exp(-1j * np.angle(maps[0]))
    middle = (slice(None), slice(6, 10), slice(7, 11), slice(8, 12))
    assert abs(found[middle] - turned[middle]).max() < 0.05
    with pytest.raises(haloscope.ArgumentError, match="complex numbers"):
        fourier.sensitivities(np.ones((2, 8, 8)))
    with pytest.raises(haloscope.ArgumentError, match="windows of 6"):
        fourier.sensitivities(np.ones((2, 8, 8), np.complex64))


@pytest.mark.skipif("hdf5" not in haloscope.info().features, reason="needs a build with hdf5")
def test_scans_of_ismrmrd_are_complex_arrays() -> None:
    scan = haloscope.io.read_ismrmrd(FIXTURES / "cartesian.h5")
    np.testing.assert_allclose(scan.coils, np.load(FIXTURES / "cartesian.npy"), atol=2e-6)
    assert scan.mask is not None and scan.mask.sum() == 6 * 16 and scan.points is None
    assert scan.calibration is not None and scan.noise is not None and abs(scan.noise - 0.25) < 0.03
    wide = haloscope.io.read_ismrmrd(FIXTURES / "cartesian.h5", keep_oversampling=True)
    assert wide.sides == (12, 32)
    radial = haloscope.io.read_ismrmrd(FIXTURES / "radial.h5")
    assert radial.points is not None and radial.sides == (8, 8)
    np.testing.assert_allclose(radial.points, np.load(FIXTURES / "radial-points.npy"), atol=1e-12)
    np.testing.assert_array_equal(radial.coils, np.load(FIXTURES / "radial.npy"))
