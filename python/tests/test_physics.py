"""Operators against definitions written with numpy, and their adjoints."""

import contextlib
import pathlib
import time

import haloscope
import numpy as np
import pytest
from haloscope import physics
from haloscope.physics._stacks import as_stack

RANDOM = np.random.default_rng(1)


def random(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape, dtype=np.float32)


def operators() -> list[physics.LinearPhysics]:
    kernel = np.abs(random(1, 1, 5, 3))
    blurs = [physics.Blur(kernel, padding, img_size=(2, 12, 14)) for padding in
             ("valid", "circular", "reflect", "replicate", "constant")]
    scans = [
        physics.Tomography((1, 16, 16), angles=7),
        physics.Tomography((1, 16, 16), [0.0, 31.0], geometry_type="fanbeam", source_radius=40, detector_radius=20),
        physics.Tomography((1, 6, 8, 8), angles=5),
        physics.Tomography((1, 6, 8, 8), 5, geometry_type="conebeam", source_radius=40, detector_radius=9),
    ]
    return [
        *blurs,
        physics.Blur(np.abs(random(1, 1, 3, 3, 3)), "circular", img_size=(1, 6, 7, 8)),
        physics.VaryingBlur((2, 12, 14), np.abs(random(6, 5, 3)), grid=(2, 3), padding="reflect"),
        physics.Affine((2, 12, 14), [[0.9, 0.3, 1.5], [-0.2, 1.1, -0.5]], size=(10, 9)),
        physics.Affine((1, 5, 6, 7), np.hstack([np.eye(3), np.full((3, 1), 0.25)])),
        physics.Downsampling((3, 12, 12), factor=3, phase=(1, 2)),
        physics.Inpainting((3, 9, 9), 0.5),
        physics.Decolorize((3, 7, 9)),
        physics.Denoising(img_size=(1, 5, 5)),
        physics.Matrix(random(6, 20), (1, 4, 5)),
        *scans,
        scans[0].T,
        2.0 * blurs[1],  # type: ignore[list-item]
        physics.Decolorize((3, 12, 14)) * physics.Inpainting((3, 12, 14), 0.7),  # type: ignore[list-item]
    ]


@pytest.mark.parametrize("operator", operators(), ids=lambda operator: type(operator).__name__)
def test_adjoints_are_exact(operator: physics.LinearPhysics) -> None:
    haloscope.testing.assert_adjoint(operator)


def test_a_blur_is_a_convolution() -> None:
    kernel, x = random(1, 1, 3, 5), random(1, 1, 9, 11)
    padded = np.pad(x[0, 0], ((1, 1), (2, 2)), mode="wrap")
    flipped = kernel[0, 0, ::-1, ::-1]
    expected = np.array([[(padded[i : i + 3, j : j + 5] * flipped).sum() for j in range(11)] for i in range(9)])
    for fft in (True, False):
        found = physics.Blur(kernel, "circular", use_fft=fft).A(x)[0, 0]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_a_subclass_forgets_is_said() -> None:
    class Nothing(physics.Physics):
        pass

    class Forward(physics.Physics):
        def A(self, x: np.ndarray) -> np.ndarray:
            return x

    class OneWay(physics.LinearPhysics):
        def A(self, x: np.ndarray) -> np.ndarray:
            return x

    x = np.ones((1, 1, 4, 4), np.float32)
    with pytest.raises(haloscope.ArgumentError, match="Nothing defines no A;"):
        Nothing((1, 4, 4)).A(x)
    with pytest.raises(haloscope.ArgumentError, match="A_vjp"):
        Forward((1, 4, 4)).A_vjp(x, x)
    np.testing.assert_array_equal(physics.stack(Forward((1, 4, 4))).A(x)[0], x)
    for call in (OneWay((1, 4, 4)).A_adjoint, OneWay((1, 4, 4)).A_adjoint_A, lambda x: OneWay((1, 4, 4)).A_vjp(x, x)):
        with pytest.raises(haloscope.ArgumentError, match="OneWay defines no A_adjoint"):
            call(x)


@pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="needs Linux's list of threads")
def test_stacks_have_the_threads_that_were_set_and_fidelities_start_none() -> None:
    def workers() -> set[str]:
        found = set()
        for task in pathlib.Path("/proc/self/task").iterdir():
            # A thread may end while it is looked at.
            with contextlib.suppress(OSError):
                if "worker" in (task / "comm").read_text():
                    found.add(task.name)
        return found

    blur = physics.Blur(haloscope.kernels.gaussian(1.0), "circular", img_size=(1, 8, 8))
    before, cores = workers(), haloscope.get_num_threads()
    try:
        haloscope.set_num_threads(3)
        alone = as_stack(blur)
        assert as_stack(blur)._native is alone._native
        haloscope.set_num_threads(5)
        assert as_stack(blur)._native is not alone._native
        # Threads name themselves when they start to run.
        end = time.monotonic() + 60
        while len(workers() - before) < 3 + 5 and time.monotonic() < end:
            time.sleep(0.01)
        assert len(workers() - before) == 3 + 5 and len(alone) == 1
    finally:
        haloscope.set_num_threads(cores)


def test_a_blur_without_a_shape_takes_any() -> None:
    blur = physics.Blur(haloscope.kernels.uniform(3), "valid")
    assert blur.A(np.ones((1, 1, 8, 9))).shape == (1, 1, 6, 7)
    assert blur.A(np.ones((2, 3, 5, 5))).shape == (2, 3, 3, 3)
    assert blur.A_adjoint(np.ones((1, 3, 4, 4))).shape == (1, 3, 6, 6)
    with pytest.raises(haloscope.ArgumentError, match="img_size"):
        physics.Blur(haloscope.kernels.uniform(3)).compute_sqnorm()


def test_parallel_projections_are_sums() -> None:
    x = np.abs(random(1, 1, 16, 16))
    y = physics.Tomography((1, 16, 16), [0.0, 90.0]).A(x)
    np.testing.assert_allclose(y[0, 0, 0], x[0, 0].sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(np.sort(y[0, 0, 1]), np.sort(x[0, 0].sum(axis=1)), rtol=1e-5)


def test_back_projection_finds_the_image() -> None:
    image = haloscope.io.phantom.shepp_logan((64, 64))
    scan = physics.Tomography((1, 64, 64), angles=120)
    assert haloscope.metrics.psnr(scan.fbp(scan.A(image)), image)[0] > 20


def test_pseudo_inverses_and_proxes_are_those_of_the_matrix() -> None:
    matrix, y, z = random(6, 20), random(1, 6), random(1, 1, 4, 5)
    operator = physics.Matrix(matrix, (1, 4, 5))
    dagger = operator.A_dagger(y, max_iter=200, tol=1e-8)
    np.testing.assert_allclose(dagger.ravel(), np.linalg.pinv(matrix) @ y[0], atol=1e-4)
    system = 2.0 * matrix.T @ matrix + np.eye(20)
    expected = np.linalg.solve(system, 2.0 * matrix.T @ y[0] + z.ravel())
    np.testing.assert_allclose(operator.prox_l2(z, y, 2.0, tol=1e-8).ravel(), expected, atol=1e-4)
    assert operator.compute_sqnorm(max_iter=500, tol=1e-6) == pytest.approx(np.linalg.norm(matrix, 2) ** 2, rel=1e-3)


def test_groups_of_views_are_those_of_the_scan() -> None:
    scan = physics.Tomography((1, 12, 12), angles=10)
    x = np.abs(random(1, 1, 12, 12))
    parts = scan.split(3)
    whole = scan.A(x)
    for group, part in enumerate(parts.A(x)):
        np.testing.assert_array_equal(part, whole[:, :, group::3])
    np.testing.assert_allclose(parts.A_adjoint(parts.A(x)), scan.A_adjoint_A(x), rtol=1e-4)


def test_geometries_of_astra_are_taken_as_they_are() -> None:
    angles = np.linspace(0, np.pi, 7, endpoint=False)
    volume = {"GridRowCount": 16, "GridColCount": 20, "option": {}}
    flat = {"type": "parallel", "DetectorCount": 24, "DetectorWidth": 1.5, "ProjectionAngles": angles}
    x = np.abs(random(1, 1, 16, 20))
    expected = physics.Tomography((1, 16, 20), np.degrees(angles), n_detector_pixels=24, detector_spacing=1.5).A(x)
    np.testing.assert_allclose(physics.Tomography.from_astra(volume, flat).A(x), expected, atol=1e-4)
    vectors = [[np.sin(a), -np.cos(a), 0, 0, 1.5 * np.cos(a), 1.5 * np.sin(a)] for a in angles]
    listed = {"type": "parallel_vec", "DetectorCount": 24, "Vectors": vectors}
    np.testing.assert_allclose(physics.Tomography.from_astra(volume, listed).A(x), expected, atol=1e-4)
    views = physics.Tomography.from_views((1, 16, 20), np.asarray(vectors), 24)
    np.testing.assert_array_equal(views.A(x), physics.Tomography.from_astra(volume, listed).A(x))
    with pytest.raises(haloscope.ArgumentError, match=r"\(7, 5\).*\(views, 6\)"):
        physics.Tomography.from_views((1, 16, 20), np.ones((7, 5)), 24)
    with pytest.raises(haloscope.ArgumentError, match="parallel or fanbeam"):
        physics.Tomography.from_views((1, 16, 20), vectors, 24, geometry_type="conebeam")
    with pytest.raises(haloscope.ArgumentError, match="spiral"):
        physics.Tomography.from_astra(volume, {"type": "spiral", "DetectorCount": 1})


def test_views_of_a_cone_are_those_of_its_circle() -> None:
    angles = np.linspace(0, 2 * np.pi, 5, endpoint=False)
    sizes = {"n_detector_pixels": (6, 12), "geometry_type": "conebeam"}
    circle = physics.Tomography((1, 6, 8, 10), np.degrees(angles), source_radius=30, detector_radius=12, **sizes)  # type: ignore[arg-type]
    ray = [np.array([np.sin(a), -np.cos(a), 0]) for a in angles]
    views = [[*(30 * r), *(-12 * r), np.cos(a), np.sin(a), 0, 0, 0, 1] for a, r in zip(angles, ray)]
    x = np.abs(random(1, 1, 6, 8, 10))
    listed = physics.Tomography.from_views((1, 6, 8, 10), views, **sizes)  # type: ignore[arg-type]
    np.testing.assert_allclose(listed.A(x), circle.A(x), atol=1e-4)


def test_operators_written_in_python_are_operators() -> None:
    class Twice(physics.LinearPhysics):
        def A(self, x: np.ndarray) -> np.ndarray:
            return 2.0 * x

        def A_adjoint(self, y: np.ndarray) -> np.ndarray:
            return 2.0 * y

    frames = physics.stack(Twice((1, 4, 4)), physics.Denoising(img_size=(1, 4, 4)))
    x = random(1, 1, 4, 4)
    np.testing.assert_allclose(frames.A_adjoint_A(x), 5.0 * x, rtol=1e-6)
    assert frames.compute_sqnorm() == pytest.approx(5.0, rel=1e-3)

    class Wrong(Twice):
        def A(self, x: np.ndarray) -> np.ndarray:
            return x[..., :2]

    with pytest.raises(haloscope.ShapeError, match="Wrong"):
        physics.stack(Wrong((1, 4, 4))).A(x)


def test_noise_is_that_of_its_seed_and_level() -> None:
    y = np.full((1, 1, 100, 100), 4.0, np.float32)
    for noise, deviation in [(physics.GaussianNoise(0.3), 0.3), (physics.PoissonNoise(0.5), 2.0**0.5)]:
        noisy = noise(y, seed=5)
        assert noisy.std() == pytest.approx(deviation, rel=0.05) and noisy.mean() == pytest.approx(4.0, rel=0.02)
        np.testing.assert_array_equal(noisy, noise(y, seed=5))
        assert (noisy != noise(y, seed=6)).any()


def test_files_keep_their_values(tmp_path: object) -> None:
    image = haloscope.io.phantom.landscape(24, 32)
    for name, tolerance in [("a.npy", 0.0), ("a.tif", 1e-3), ("a.png", 3e-3), ("a.fits", 1e-6)]:
        path = f"{tmp_path}/{name}"
        haloscope.io.write(path, image, **({"dtype": "float32"} if name == "a.fits" else {}))
        np.testing.assert_allclose(haloscope.io.read(path).reshape(image.shape), image, atol=tolerance)


def test_metrics_are_their_definitions() -> None:
    x, y = random(2, 3, 16, 16), random(2, 3, 16, 16)
    squares = ((x - y) ** 2).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(haloscope.metrics.mse(x, y), squares, rtol=1e-5)
    np.testing.assert_allclose(haloscope.metrics.psnr(x, y, max_pixel=2.0), 10 * np.log10(4.0 / squares), rtol=1e-5)
