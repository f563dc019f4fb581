"""Methods, jobs, checkpoints, and what notebooks show."""

import os
import subprocess
import sys

import haloscope
import numpy as np
import pytest
from haloscope import models, optim, physics

IMAGE = haloscope.io.phantom.landscape(32, 40)


@pytest.fixture
def blur() -> physics.Blur:
    return physics.Blur(haloscope.kernels.gaussian(1.2), "circular", img_size=(3, 32, 40))


METHODS = [
    optim.PGD(prior=models.TV(n_it_max=5), sigma_denoiser=0.01, max_iter=3),
    optim.PGD(prior=models.Wavelet("sara", n_it_max=5), sigma_denoiser=0.01, max_iter=3),
    optim.FISTA(prior=optim.TVPrior(n_it_max=5), lambda_reg=1e-3, max_iter=3),
    optim.ADMM(prior=optim.TVPrior(n_it_max=5), lambda_reg=1e-3, max_iter=3),
    optim.DRS(prior=optim.TVPrior(n_it_max=5), lambda_reg=1e-3, max_iter=3),
    optim.HQS(prior=models.TV(n_it_max=5), sigma_denoiser=(0.1, 0.01), noise=0.01, max_iter=3),
    optim.REDGradient(prior=models.TV(n_it_max=5), lambda_reg=0.1, max_iter=3),
    optim.REDFixedPoint(prior=models.TV(n_it_max=5), lambda_reg=0.1, max_iter=3),
    optim.PDCP(prior=optim.TVPrior(), lambda_reg=1e-3, max_iter=3),
    optim.CG(max_iter=3),
    optim.Landweber(max_iter=3),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_methods_come_nearer_to_the_image(method: optim.Optim, blur: physics.Blur) -> None:
    y = blur.A(IMAGE)
    result = method(y, blur, x_gt=IMAGE)
    assert len(result.records) == 3 and result.reason == "max_iter"
    assert result.records[-1].psnr > haloscope.metrics.psnr(blur.A_adjoint(y), IMAGE)[0]
    assert result.records[-1].psnr == pytest.approx(haloscope.metrics.psnr(result.image, IMAGE)[0])


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_methods_know_the_keywords_that_their_job_files_do(method: optim.Optim) -> None:
    from haloscope import _haloscope

    known, told = _haloscope.method_keys(method._method), method._keys()
    assert set(told) <= set(known)
    assert ("weight" in told, "levels" in told) == ("weight" in known, "levels" in known)


def test_records_compare_with_the_image_by_both_measures(blur: physics.Blur) -> None:
    result = optim.CG(max_iter=3)(blur.A(IMAGE), blur, x_gt=IMAGE)
    assert result.records[-1].ssim == pytest.approx(haloscope.metrics.ssim(result.image, IMAGE)[0])
    assert result.records[-1].ssim > result.records[0].ssim
    long = optim.Landweber(max_iter=31)(blur.A(IMAGE), blur, x_gt=IMAGE).records
    assert [record.iteration for record in long if record.ssim is not None] == [*range(2, 31, 2), 31]
    assert all(record.psnr is not None for record in long)
    without = optim.CG(max_iter=1)(blur.A(IMAGE), blur).records[0]
    assert without.psnr is None and without.ssim is None
    # The window of the similarity reaches five pixels to either side.
    thin = physics.Denoising(img_size=(3, 5, 40))
    short = optim.CG(max_iter=1)(IMAGE[:, :, :5], thin, x_gt=IMAGE[:, :, :5]).records[0]
    assert short.psnr is not None and short.ssim is None
    other = optim.CG(max_iter=1)(blur.A(IMAGE), blur, x_gt=IMAGE, max_pixel=2.0).records[0]
    assert other.psnr == pytest.approx(result.records[0].psnr + 20 * np.log10(2))
    with pytest.raises(haloscope.ShapeError):
        optim.CG(max_iter=1)(blur.A(IMAGE), blur, x_gt=IMAGE[:, :, :16])


@pytest.mark.parametrize("sides", [(24, 24), (8, 16, 16)])
@pytest.mark.parametrize("groups", [1, 3])
def test_scans_start_from_their_filtered_back_projection(sides: tuple[int, ...], groups: int) -> None:
    image = haloscope.io.phantom.shepp_logan(sides)
    scan = physics.Tomography((1, *sides), angles=20)
    views = scan.split(groups)
    # A step of nothing leaves the start as it is.
    stays = optim.Landweber(stepsize=1e-30, max_iter=1)
    expected = scan.fbp(scan.A(image))
    np.testing.assert_array_equal(stays(views.A(image), views, x_init="fbp").image, expected)
    np.testing.assert_array_equal(stays(scan.A(image), scan, x_init="fbp").image, expected)

    def body(ctx: haloscope.Context) -> np.ndarray:
        shared = haloscope.distribute(views, ctx)
        return stays(shared.A(image, gather=False), shared, x_init="fbp").image

    np.testing.assert_array_equal(haloscope.testing.assert_same_bits(body, (1, 2, 3)), expected)


def test_what_is_no_whole_scan_has_no_filtered_back_projection(blur: physics.Blur) -> None:
    scan = physics.Tomography((1, 24, 24), angles=20)
    views = scan.split(4)
    one = physics.Stack([views[0]])
    mixed = physics.Stack([*views[1:], views[0]])
    for operators in (blur, one, mixed, scan.split(4, "contiguous"), scan.T * scan):
        y = operators.A(np.ones((1, *operators.img_size), np.float32))
        with pytest.raises(haloscope.ArgumentError, match="interleaved groups"):
            optim.CG(max_iter=1)(y, operators, x_init="fbp")


def test_a_gradient_step_is_what_it_says(blur: physics.Blur) -> None:
    y, x = blur.A(IMAGE), np.zeros_like(IMAGE)
    found = optim.PGD(prior=lambda x, sigma: x, stepsize=0.5, max_iter=1)(y, blur, x_init=x).image
    np.testing.assert_allclose(found, x - 0.5 * blur.A_adjoint(blur.A(x) - y), atol=1e-6)
    np.testing.assert_allclose(optim.L2().grad(IMAGE, 2 * y, blur), blur.A_adjoint(y - 2 * y), atol=1e-6)


def test_callbacks_see_the_image_and_end_the_run(blur: physics.Blur) -> None:
    seen: list[np.ndarray] = []
    kept: list[optim.Record] = []

    def callback(record: optim.Record) -> bool:
        seen.append(record.image)
        kept.append(record)
        return record.iteration == 2

    result = optim.Landweber(max_iter=10)(blur.A(IMAGE), blur, callback=callback)
    assert result.reason == "callback" and len(seen) == 2
    np.testing.assert_array_equal(seen[-1], result.image)
    with pytest.raises(haloscope.ArgumentError, match="while its callback runs"):
        _ = kept[0].image


def test_a_loop_over_iterations_is_the_run(blur: physics.Blur) -> None:
    y, method = blur.A(IMAGE), optim.Landweber(max_iter=4)
    images = [record.image for record in method.iterate(y, blur)]
    assert len(images) == 4
    np.testing.assert_array_equal(images[-1], method(y, blur).image)
    for record in method.iterate(y, blur):
        break
    assert record.iteration == 1
    with pytest.raises(haloscope.ShapeError):
        list(method.iterate(y[:, :, :4], blur))


def test_an_exception_of_a_callback_comes_back(blur: physics.Blur) -> None:
    def callback(record: optim.Record) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        optim.Landweber(max_iter=3)(blur.A(IMAGE), blur, callback=callback)


def test_a_run_that_resumes_has_the_bits_of_one_that_never_stopped(blur: physics.Blur, tmp_path: object) -> None:
    y = blur.A(IMAGE)
    method = optim.FISTA(prior=optim.TVPrior(n_it_max=5), lambda_reg=1e-3, max_iter=6)

    def fail(record: optim.Record) -> None:
        if record.iteration == 4:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        method(y, blur, callback=fail, checkpoint=f"{tmp_path}/c", checkpoint_every=100)
    resumed = method(y, blur, checkpoint=f"{tmp_path}/c", resume=True)
    assert [record.iteration for record in resumed.records] == [5, 6]
    assert resumed.digest == method(y, blur).digest


def test_what_a_method_cannot_take_is_said(blur: physics.Blur) -> None:
    with pytest.raises(haloscope.ArgumentError, match="l1"):
        optim.HQS(optim.L1(), models.TV(), sigma_denoiser=(0.1, 0.01), noise=0.1)(blur.A(IMAGE), blur)
    with pytest.raises(haloscope.ArgumentError, match="speed"):
        optim.PGD(speed=3.0)(blur.A(IMAGE), blur)
    with pytest.raises(haloscope.ArgumentError, match="adjoint"):
        optim.CG()(blur.A(IMAGE), blur, x_init="guess")  # type: ignore[arg-type]


@pytest.mark.parametrize("time", [-1.0, float("nan"), float("inf")])
def test_times_that_are_none_are_refused(time: float, blur: physics.Blur, tmp_path: object) -> None:
    with pytest.raises(haloscope.ArgumentError, match="time_limit"):
        optim.CG(time_limit=time)(blur.A(IMAGE), blur)
    with pytest.raises(haloscope.ArgumentError, match="checkpoint_every"):
        optim.CG()(blur.A(IMAGE), blur, checkpoint=str(tmp_path), checkpoint_every=time)


def test_weights_and_steps_count_or_are_refused(blur: physics.Blur) -> None:
    y = blur.A(IMAGE)

    def hqs(**options: float) -> str:
        return optim.HQS(prior=models.TV(n_it_max=5), sigma_denoiser=(0.1, 0.05), noise=0.1, max_iter=2, **options)(y, blur).digest

    assert hqs() == hqs(lambda_reg=0.23) != hqs(lambda_reg=2.0) == hqs(weight=2.0)
    steps = [optim.PDCP(prior=optim.TVPrior(), stepsize=step, lambda_reg=0.1, max_iter=2)(y, blur).digest for step in (None, 0.1)]
    assert steps[0] != steps[1]
    for method in (optim.HQS, optim.REDFixedPoint, optim.CG):
        with pytest.raises(haloscope.ArgumentError, match="stepsize: 0.5"):
            method(stepsize=0.5)
    with pytest.raises(haloscope.ArgumentError, match="sigma: 0.1 is given for pgd"):
        haloscope.reconstruct(y, blur, method="pgd", sigma=0.1)


def test_a_run_of_something_else_does_not_resume(blur: physics.Blur, tmp_path: object) -> None:
    def run(operator: physics.Blur = blur, prior: object = optim.TVPrior(n_it_max=5), start: str = "zeros", **options: object) -> int:
        method = optim.FISTA(prior=prior, lambda_reg=0.01, max_iter=options.pop("max_iter", 3))
        result = method(blur.A(IMAGE), operator, x_init=start, checkpoint=f"{tmp_path}/c", checkpoint_every=1, **options)
        return result.records[0].iteration

    def schedule(iterations: int, **options: object) -> int:
        method = optim.HQS(prior=models.TV(n_it_max=5), sigma_denoiser=(0.1, 0.05), noise=0.1, max_iter=iterations)
        result = method(blur.A(IMAGE), blur, checkpoint=f"{tmp_path}/hqs", checkpoint_every=1, **options)
        return result.records[0].iteration

    wider = physics.Blur(haloscope.kernels.gaussian(2.0), "circular", img_size=(3, 32, 40))
    assert run() == 1
    others = [{"operator": wider}, {"prior": models.TV(n_it_max=5)}, {"prior": lambda x, sigma: x}, {"start": "adjoint"}]
    for other in others:
        with pytest.raises(haloscope.Error, match="another job"):
            run(resume=True, **other)
    assert run(resume=True, max_iter=5) == 4
    assert schedule(3) == 1
    with pytest.raises(haloscope.Error, match="another job"):
        schedule(5, resume=True)


def test_reconstruct_does_all_of_it_and_ranks_change_nothing(blur: physics.Blur) -> None:
    y = [blur.A(IMAGE), blur.A(IMAGE)]
    options = {"sigma": 0.01, "max_iter": 2, "patch_size": 24, "overlap": 8, "x_gt": IMAGE}
    one = haloscope.reconstruct(y, [blur, blur], **options)
    two = haloscope.reconstruct(y, [blur, blur], ranks=2, **options)
    assert one.digest == two.digest and one.records[-1].psnr > 25


def test_reconstruct_has_the_bits_of_the_whole_image_on_any_number_of_ranks() -> None:
    image = haloscope.io.phantom.landscape(264, 272)
    blur = physics.Blur(haloscope.kernels.gaussian(1.2), "circular", img_size=(3, 264, 272))
    results = [haloscope.reconstruct(blur.A(image), blur, sigma=0.02, max_iter=1, ranks=ranks) for ranks in (1, 3)]
    assert results[0].digest == results[1].digest


def job(**more: object) -> dict[str, object]:
    return {
        "measurements": {"phantom": "landscape", "size": [32, 32], "noise": {"gaussian": 0.02}},
        "operators": [{"kind": "blur", "kernel": "gaussian", "sigma": width} for width in (1.0, 2.0)],
        "prior": {"kind": "total-variation", "weight": 0.01},
        "solver": {"method": "fista"},
        "stop": {"iterations": 3},
        **more,
    }


def test_jobs_run_on_any_number_of_ranks() -> None:
    plan = haloscope.check(job(), ranks=2)
    assert plan.image_shape == (1, 3, 32, 32) and len(plan.measurement_shapes) == 2 and "memory" in str(plan)
    assert "<table>" in plan._repr_html_()
    results = [haloscope.run(job(), ranks=ranks) for ranks in (1, 3)]
    assert results[0].digest == results[1].digest and len(results[0].records) == 3
    last = results[1].records[-1]
    assert last.psnr > 20 and 0 < last.ssim < 1
    with pytest.raises(haloscope.Error, match="methd"):
        haloscope.run(job(solver={"methd": "fista"}))


def test_job_files_and_templates_are_those_of_the_command(tmp_path: object) -> None:
    path = f"{tmp_path}/job.toml"
    with open(path, "w") as file:
        file.write(haloscope.init("denoise", size=32, model="tv"))
    assert haloscope.run(path, out=f"{tmp_path}/out").image.shape == (1, 3, 32, 32)
    assert any(name.endswith(".html") for name in os.listdir(f"{tmp_path}/out"))
    found = subprocess.run([sys.executable, "-m", "haloscope", "check", path], capture_output=True, text=True, check=True)
    assert "iterations" in found.stdout
    wrong = subprocess.run([sys.executable, "-m", "haloscope", "check", "absent.toml"], capture_output=True, check=False)
    assert wrong.returncode == 2 and b"absent.toml" in wrong.stderr


def test_results_and_plans_show_themselves(blur: physics.Blur, tmp_path: object) -> None:
    result = optim.CG(max_iter=3)(blur.A(IMAGE), blur, x_gt=IMAGE)
    shown = result._repr_html_()
    assert "data:image/png;base64," in shown and "<polyline" in shown and "http" not in shown.replace("www.w3.org", "")
    assert np.asarray(result).shape == IMAGE.shape and np.from_dlpack(result).shape == IMAGE.shape
    result.save(f"{tmp_path}/image.npy")
    np.testing.assert_array_equal(haloscope.io.read(f"{tmp_path}/image.npy"), result.image)
    with haloscope.Context() as ctx:
        plan = haloscope.distribute(models.TV(), ctx, patch_size=16, overlap=4).plan((1, 3, 32, 40))
    assert plan._repr_html_().count("<rect") == len(plan) == 4


def test_methods_and_noise_say_what_they_are() -> None:
    assert repr(optim.FISTA(prior=optim.TVPrior(), max_iter=5)) == "FISTA(L2, prior=TVPrior, max_iter=5)"
    assert repr(physics.GaussianNoise(0.1)) == "GaussianNoise(sigma=0.1)"


def test_progress_is_shown_by_tqdm(blur: physics.Blur, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    optim.CG(max_iter=3)(blur.A(IMAGE), blur, progress=True)
    assert "3/3" in capsys.readouterr().err


def test_scipy_solves_with_our_operators(blur: physics.Blur) -> None:
    linalg = pytest.importorskip("scipy.sparse.linalg")
    y = blur.A(IMAGE)
    found = linalg.lsqr(blur.as_linear_operator(), y.ravel(), iter_lim=20)[0].reshape(IMAGE.shape)
    assert np.linalg.norm(blur.A(found) - y) < 1e-2 * np.linalg.norm(y)


def test_the_noise_level_is_a_number_a_list_or_a_map() -> None:
    net = models.Network("builtin:color", threads=1)
    both = np.concatenate([IMAGE, IMAGE])
    each = net(both, [0.05, 0.2])
    np.testing.assert_allclose(each[1:], net(IMAGE, 0.2), atol=1e-5)
    mapped = net(IMAGE, np.full((1, 1, 32, 40), 0.2, np.float32))
    np.testing.assert_allclose(mapped, net(IMAGE, 0.2), atol=1e-5)
    assert net.memory((1, 3, 32, 40)) > 0
    with pytest.raises(haloscope.ArgumentError):
        net(both, [0.1, 0.1, 0.1])


def test_the_built_in_network_is_that_of_the_image() -> None:
    for name, size in [("color", (3, 16, 24)), ("gray", (1, 16, 24)), ("volume", (1, 8, 16, 16))]:
        image = np.linspace(0, 1, int(np.prod(size)), dtype=np.float32).reshape(1, *size)
        known = haloscope.models.Network(f"builtin:{name}")(image, 0.1)
        np.testing.assert_array_equal(haloscope.models.denoiser_for("builtin", size)(image, 0.1), known)
