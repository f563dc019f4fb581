"""torch, deepinv, PyLops and ASTRA: values of the same definitions, and each other's parts in place of one's own."""

import warnings

import haloscope
import numpy as np
import pytest
from haloscope import models, optim, physics
from test_examples import load

pytestmark = pytest.mark.interop
torch = pytest.importorskip("torch")
deepinv = pytest.importorskip("deepinv")
bridge = pytest.importorskip("haloscope.deepinv")

torch.manual_seed(0)
IMAGE = torch.from_numpy(haloscope.io.phantom.landscape(48, 64))


def near(found: object, expected: object, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=0, atol=tolerance * float(np.abs(np.asarray(expected)).max()))


def test_tensors_are_read_where_they_lie_and_come_back_as_tensors() -> None:
    from haloscope import _haloscope
    from haloscope._arrays import as_input

    assert _haloscope.address(as_input(IMAGE)) == IMAGE.data_ptr()
    blur = physics.Blur(haloscope.kernels.gaussian(1.0), "circular", img_size=(3, 48, 64))
    y = blur.A(IMAGE)
    assert isinstance(y, torch.Tensor) and isinstance(physics.stack(blur, blur).A(IMAGE)[0], torch.Tensor)
    assert isinstance(optim.CG(max_iter=1)(y, blur).image, torch.Tensor)
    with pytest.raises(haloscope.ArgumentError, match="requires grad"):
        blur.A(IMAGE.clone().requires_grad_())
    with pytest.raises(haloscope.ArgumentError, match="complex"):
        blur.A(IMAGE.to(torch.complex64))
    with pytest.raises(haloscope.ArgumentError, match="to_dense"):
        blur.A(IMAGE.to_sparse())
    near(blur.A(torch._neg_view(-IMAGE)), y)
    near(blur.A(IMAGE.bfloat16()), y, 1e-2)
    with pytest.raises(haloscope.ArgumentError, match="uint8"):
        models.Network("builtin:color")((255 * IMAGE).to(torch.uint8), 0.1)
    with pytest.raises(haloscope.ArgumentError, match="meta"):
        blur.A(IMAGE.to("meta"))


@pytest.mark.parametrize("padding", ["valid", "circular", "reflect", "replicate", "constant"])
def test_blurs_are_deepinvs(padding: str) -> None:
    kernel = torch.rand(1, 1, 5, 7)
    theirs = deepinv.physics.Blur(kernel, padding=padding)
    ours = physics.Blur(kernel, padding, img_size=(3, 48, 64))  # type: ignore[arg-type]
    y = theirs.A(IMAGE)
    near(ours.A(IMAGE), y)
    near(ours.A_adjoint(y), theirs.A_adjoint(y))
    near(bridge.from_deepinv(theirs, img_size=(3, 48, 64)).A(IMAGE), y)


def test_blurs_by_fourier_are_deepinvs() -> None:
    theirs = deepinv.physics.BlurFFT((3, 48, 64), torch.rand(1, 1, 5, 7))
    ours = bridge.from_deepinv(theirs)
    near(ours.A(IMAGE), theirs.A(IMAGE))
    near(ours.A_dagger(theirs.A(IMAGE)), theirs.A_dagger(theirs.A(IMAGE)), 1e-2)
    z = torch.rand_like(IMAGE)
    near(ours.prox_l2(z, theirs.A(IMAGE), 2.0, tol=1e-7), theirs.prox_l2(z, theirs.A(IMAGE), 2.0), 1e-4)


@pytest.mark.parametrize("name", ["gaussian", "bilinear", "bicubic", "sinc"])
def test_downsampling_is_deepinvs(name: str) -> None:
    theirs = deepinv.physics.Downsampling(img_size=(3, 48, 64), filter=name, factor=2, padding="circular")
    ours = physics.Downsampling((3, 48, 64), name, 2)
    taken = bridge.from_deepinv(theirs)
    y = theirs.A(IMAGE)
    near(taken.A(IMAGE), y)
    near(taken.A_adjoint(y), theirs.A_adjoint(y))
    near(ours.A(IMAGE), y)


def test_inpainting_and_gray_are_deepinvs() -> None:
    theirs = deepinv.physics.Inpainting(img_size=(3, 48, 64), mask=0.5)
    near(bridge.from_deepinv(theirs).A(IMAGE), theirs.A(IMAGE))
    gray = deepinv.physics.Decolorize()
    weights = [float(gray.A(IMAGE.new_tensor([[[[float(c == k)]] for c in range(3)]])).squeeze()) for k in range(3)]
    near(physics.Decolorize((3, 48, 64), weights).A(IMAGE), gray.A(IMAGE))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near(bridge.from_deepinv(gray, img_size=(3, 48, 64)).A(IMAGE), gray.A(IMAGE))


def test_noise_goes_with_operators_in_both_directions() -> None:
    kernel = torch.from_numpy(haloscope.kernels.gaussian(1.0))
    pairs = [
        (physics.GaussianNoise(0.25), deepinv.physics.GaussianNoise(0.25)),
        (physics.PoissonNoise(0.5), deepinv.physics.PoissonNoise(0.5)),
        (physics.PoissonGaussianNoise(0.5, 0.25), deepinv.physics.PoissonGaussianNoise(0.5, 0.25)),
        (physics.UniformNoise(0.5), deepinv.physics.UniformNoise(0.5)),
    ]
    for our, their in pairs:
        taken = bridge.from_deepinv(deepinv.physics.BlurFFT((3, 48, 64), kernel, noise_model=their))
        assert type(taken.noise_model) is type(our) and vars(taken.noise_model) == vars(our)
        given = bridge.to_deepinv(physics.Blur(kernel, "circular", img_size=(3, 48, 64), noise_model=our))
        assert type(given.noise_model) is type(their)
        clean, noisy = given.A(IMAGE), given(IMAGE)
        assert clean.shape == noisy.shape and not torch.equal(clean, noisy)
    with pytest.warns(UserWarning, match="LaplaceNoise is left out"):
        other = deepinv.physics.BlurFFT((3, 48, 64), kernel, noise_model=deepinv.physics.LaplaceNoise(0.1))
        assert bridge.from_deepinv(other).noise_model is None


def test_fidelities_are_deepinvs() -> None:
    kernel = torch.rand(1, 1, 3, 3)
    blur = deepinv.physics.Blur(kernel, padding="circular")
    ours = physics.Blur(kernel, "circular", img_size=(3, 48, 64))
    y = blur.A(IMAGE) + 0.1
    pairs = [
        (optim.L2(0.5), deepinv.optim.L2(sigma=0.5)),
        (optim.L1(), deepinv.optim.L1()),
        (optim.PoissonLikelihood(0.1, 0.5), deepinv.optim.PoissonLikelihood(gain=0.1, bkg=0.5)),
    ]
    for our, their in pairs:
        x = IMAGE + 0.05
        taken = bridge.from_deepinv(their)
        assert type(taken) is type(our) and taken.fn(x, y, ours) == pytest.approx(our.fn(x, y, ours), rel=1e-6)
        # deepinv sums in the type of its arrays.
        exact = deepinv.physics.Blur(kernel.double(), padding="circular")
        near(our.fn(x, y, ours), their.fn(x.double(), y.double(), exact).sum(), 1e-5)
        # deepinv's gradient for Poisson noise is that of its value times the squared gain.
        factor = 0.1**2 if isinstance(our, optim.PoissonLikelihood) else 1.0
        near(factor * our.grad(x, y, ours), their.grad(x, y, blur), 2e-5)


def test_metrics_are_deepinvs() -> None:
    noisy = IMAGE + 0.1 * torch.randn_like(IMAGE)
    near(haloscope.metrics.psnr(noisy, IMAGE), deepinv.metric.PSNR()(noisy, IMAGE))
    near(haloscope.metrics.mse(noisy, IMAGE), deepinv.metric.MSE()(noisy, IMAGE))


def test_parallel_tomography_has_the_angles_axes_and_scale_of_deepinvs() -> None:
    """deepinv rotates the image and interpolates, so that values differ by parts of a thousand; its views are columns."""
    rows, columns = np.mgrid[:64, :64] - 31.5
    blobs = [np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * width**2)) for x, y, width in ((8, -5, 4), (-10, 12, 5))]
    image = torch.from_numpy((blobs[0] + 0.6 * blobs[1]).astype(np.float32)[None, None])
    angles = [0.0, 30.0, 75.0, 120.0]
    theirs = deepinv.physics.Tomography(angles=angles, img_width=64, circle=True, normalize=False)
    ours = physics.Tomography((1, 64, 64), angles)
    near(ours.A(image), theirs.A(image).transpose(-1, -2), 2e-3)
    # What is smeared back differs from pixel to pixel by the interpolation. deepinv masks what is outside of the circle.
    inside = rows**2 + columns**2 < 30**2
    back = ours.A_adjoint(theirs.A(image).transpose(-1, -2).contiguous())[0, 0].numpy()[inside]
    assert np.corrcoef(back, theirs.A_adjoint(theirs.A(image))[0, 0].numpy()[inside])[0, 1] > 0.99


def test_astra_projects_the_same() -> None:
    astra = pytest.importorskip("astra")
    image = np.abs(np.random.default_rng(3).standard_normal((32, 40))).astype(np.float32)
    angles = np.linspace(0, np.pi, 9, endpoint=False)
    volume = astra.create_vol_geom(32, 40)
    for geometry in (
        astra.create_proj_geom("parallel", 1.0, 60, angles),
        astra.create_proj_geom("fanflat", 1.0, 90, angles, 100.0, 40.0),
    ):
        kind = "strip" if geometry["type"] == "parallel" else "strip_fanflat"
        projector = astra.create_projector(kind, geometry, volume)
        _, expected = astra.create_sino(image, projector)
        ours = physics.Tomography.from_astra(volume, geometry)
        found = ours.A(image[None, None])[0, 0]
        gap = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert gap < 0.03, f"{kind}: {gap}"


def test_networks_of_deepinv_load_and_give_its_values() -> None:
    for network in (
        deepinv.models.DRUNet(3, 3, nc=[8, 16, 16, 16], nb=1, pretrained=None),
        deepinv.models.DnCNN(3, 3, depth=6, nf=16, pretrained=None),
    ):
        network.eval()
        with torch.no_grad():
            expected = network(IMAGE, 0.1)
        for accuracy in ("fast", "strict"):
            near(models.Network(network, accuracy=accuracy)(IMAGE, 0.1), expected)
        assert type(bridge.from_deepinv(network)).__name__ == "Network"


def test_total_variation_is_deepinvs() -> None:
    """Of gray images: deepinv's variation of a colour image is that of each channel, ours that of all together."""
    noisy = (IMAGE + 0.1 * torch.randn_like(IMAGE))[:, :1].contiguous()
    theirs = deepinv.models.TVDenoiser(n_it_max=300, crit=1e-8)
    near(models.TV(n_it_max=300, crit=1e-8)(noisy, 0.1), theirs(noisy, 0.1), 2e-3)


def test_derivatives_go_through_the_adjoint_and_twice() -> None:
    scan = bridge.HaloscopePhysics(physics.Tomography((1, 12, 12), angles=5))
    x = torch.rand(1, 1, 12, 12, requires_grad=True)
    assert scan.adjointness_test(x.detach()).abs() < 1e-2
    loss = scan.A(x).pow(3).sum()
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    y = scan.A(x.detach())
    near(first.detach(), scan.A_adjoint(3 * y**2), 1e-4)
    near(second, scan.A_adjoint(6 * y * scan.A(torch.ones_like(x).detach())), 1e-4)


def test_gradients_through_a_denoiser_are_what_was_asked_for() -> None:
    x = torch.rand(1, 3, 16, 16, requires_grad=True)
    with pytest.raises(haloscope.ArgumentError, match="straight_through"):
        bridge.HaloscopeDenoiser("builtin:color")(x, 0.1)
    denoised = bridge.HaloscopeDenoiser("builtin:color", backward="straight_through")(x, 0.1)
    denoised.sum().backward()
    near(x.grad, torch.ones_like(x))
    near(denoised.detach(), models.Network("builtin:color")(x.detach(), 0.1))


def test_methods_of_deepinv_run_with_our_parts() -> None:
    kernel = torch.from_numpy(haloscope.kernels.gaussian(1.5))
    theirs = deepinv.physics.BlurFFT((3, 48, 64), kernel)
    ours = bridge.to_deepinv(physics.Blur(kernel, "circular", img_size=(3, 48, 64)))
    network = deepinv.models.DRUNet(3, 3, nc=[8, 16, 16, 16], nb=1, pretrained=None).eval()
    y = theirs.A(IMAGE)
    images = []
    for blur, denoiser in ((theirs, network), (ours, bridge.HaloscopeDenoiser(models.Network(network)))):
        pgd = deepinv.optim.PGD(
            data_fidelity=deepinv.optim.L2(), prior=deepinv.optim.PnP(denoiser), stepsize=0.5, sigma_denoiser=0.05, max_iter=3
        )
        with torch.no_grad():
            images.append(pgd(y, blur))
    near(images[1], images[0], 1e-4)
    restored = []
    for blur, denoiser in ((theirs, network), (ours, bridge.HaloscopeDenoiser(models.Network(network)))):
        with torch.no_grad():
            restored.append(deepinv.optim.DPIR(sigma=0.02, denoiser=denoiser)(y, blur))
    near(restored[1], restored[0], 1e-3)


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_quick_start_has_the_values_of_deepinvs(ranks: int) -> None:
    gaps = load("quickstart_deepinv").main(ranks)
    assert set(gaps) == {"measurements", "adjoint", "denoised", "loss", "gradient"}
    assert max(gaps.values()) < 1e-5, gaps


def test_parts_of_deepinv_run_in_our_distribute() -> None:
    network = deepinv.models.DnCNN(3, 3, depth=4, nf=8, pretrained=None).eval()
    theirs = deepinv.physics.MRI(img_size=(2, 48, 64))
    with torch.no_grad():
        whole = network(IMAGE, 0.1)

    def body(ctx: haloscope.Context) -> np.ndarray:
        shared = haloscope.distribute(models.as_denoiser(network), ctx, patch_size=24, overlap=8)
        return np.asarray(shared(IMAGE, 0.1))

    near(haloscope.testing.assert_same_bits(body, (1, 3)), whole, 1e-4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        taken = bridge.from_deepinv(theirs)
    assert "MRI" in str(caught[0].message)
    haloscope.testing.assert_adjoint(taken)


def test_operators_and_fidelities_of_deepinv_are_distributed_as_ours() -> None:
    kernel = torch.from_numpy(haloscope.kernels.gaussian(1.0))
    blur = deepinv.physics.BlurFFT((3, 48, 64), kernel)
    y = [blur.A(IMAGE) + 0.1] * 3

    def body(ctx: haloscope.Context) -> np.ndarray:
        shared = haloscope.distribute([blur] * 3, ctx)
        assert type(shared) is physics.DistributedStack
        fidelity = haloscope.distribute(deepinv.optim.L2(), ctx)
        return np.asarray(fidelity.grad(IMAGE, y, shared))

    expected = 3 * deepinv.optim.L2().grad(IMAGE, y[0], blur)
    near(haloscope.testing.assert_same_bits(body, (1, 2)), expected)
    stacked = deepinv.physics.StackedLinearPhysics([blur, blur])
    with haloscope.Context() as ctx:
        assert len(haloscope.distribute(stacked, ctx)) == 2
    with pytest.raises(haloscope.ArgumentError, match="from_deepinv"):
        optim.CG(max_iter=1)(y[0], blur)


def test_other_fidelities_of_deepinv_are_called_in_python() -> None:
    their = deepinv.optim.data_fidelity.LogPoissonLikelihood(N0=10.0, mu=1.0)
    with pytest.warns(UserWarning, match="LogPoissonLikelihood"):
        taken = bridge.from_deepinv(their)
    frame = physics.Denoising(img_size=(3, 48, 64))
    near(taken.fn(IMAGE, IMAGE, frame), their.d(IMAGE, IMAGE).sum(), 1e-4)
    near(taken.grad(IMAGE + 0.1, IMAGE, frame), their.grad_d(IMAGE + 0.1, IMAGE).detach(), 1e-4)


def test_pylops_and_scipy_take_our_operators() -> None:
    pylops = pytest.importorskip("pylops")
    scan = physics.Tomography((1, 16, 16), angles=8)
    operator = pylops.aslinearoperator(scan.as_linear_operator())
    assert pylops.utils.dottest(operator, *operator.shape, rtol=1e-4, raiseerror=True)
    from haloscope.pylops import PyLopsPhysics

    derivative = PyLopsPhysics(pylops.FirstDerivative((16, 16), axis=0, dtype="float32"), (1, 16, 16), (1, 16, 16))
    haloscope.testing.assert_adjoint(derivative)


def test_examples_of_the_bridge_run() -> None:
    import doctest

    assert doctest.testmod(bridge).failed == 0
