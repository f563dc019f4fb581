"""The methods."""

from __future__ import annotations

from ._method import Optim


class PGD(Optim):
    """Proximal gradient descent; plug-and-play with a denoiser.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> pgd = haloscope.optim.PGD(prior=haloscope.optim.PnP(lambda x, sigma: x), max_iter=2)
    >>> pgd(haloscope.io.phantom.landscape(16, 16), frame).reason
    'max_iter'
    """

    _method = "pgd"


class FISTA(Optim):
    """Proximal gradient descent with momentum.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> len(haloscope.optim.FISTA(max_iter=3)(haloscope.io.phantom.landscape(16, 16), frame).records)
    3
    """

    _method = "fista"


class ADMM(Optim):
    """The alternating direction method of multipliers.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> admm = haloscope.optim.ADMM(prior=haloscope.models.TV(), stepsize=1.0, max_iter=2)
    >>> len(admm(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "admm"
    _step = 1.0


class DRS(ADMM):
    """Douglas-Rachford splitting; ``relaxation=1.0`` is its ``beta``.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> drs = haloscope.optim.DRS(prior=haloscope.models.TV(), stepsize=1.0, max_iter=2)
    >>> len(drs(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "drs"


class HQS(Optim):
    """Half-quadratic splitting with falling levels: DPIR, when ``sigma_denoiser`` is (first, last).

    ``noise`` is the standard deviation of the measurements' noise, by default estimated from them, and ``lambda_reg``, 0.23 by default,
    the weight of the prior: the step of the data term at a level is ``level^2 / (noise^2 lambda_reg)``.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 32, 32))
    >>> net = haloscope.models.Network("builtin:color")
    >>> dpir = haloscope.optim.HQS(prior=net, sigma_denoiser=(0.2, 0.05), noise=0.05, max_iter=2)
    >>> dpir(haloscope.io.phantom.landscape(32, 32), frame).image.shape
    (1, 3, 32, 32)
    """

    _method = "hqs"
    _lambda_reg = 0.23


class REDGradient(Optim):
    """Gradient descent on the data term and on what a denoiser removes.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> red = haloscope.optim.REDGradient(prior=haloscope.models.TV(), lambda_reg=0.1, max_iter=2)
    >>> len(red(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "red"


class REDFixedPoint(Optim):
    """The fixed point of the same.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> red = haloscope.optim.REDFixedPoint(prior=haloscope.models.TV(), lambda_reg=0.1, max_iter=2)
    >>> len(red(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "red-fixed-point"


class PDCP(Optim):
    """Chambolle and Pock's primal-dual method: total variation without an inner loop.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> pdcp = haloscope.optim.PDCP(prior=haloscope.optim.TVPrior(), lambda_reg=0.1, max_iter=2)
    >>> len(pdcp(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "primal-dual"
    # Fidelities without a gradient have steps of their own.
    _step = None


class CG(Optim):
    """Conjugate gradients for least squares, without a prior.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> len(haloscope.optim.CG(max_iter=2)(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "cg"


class Landweber(Optim):
    """Gradient descent for least squares, without a prior.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> len(haloscope.optim.Landweber(max_iter=2)(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "landweber"


class SIRT(Optim):
    """Simultaneous iterative reconstruction: residuals over the sums of rows, corrections over the sums of columns.

    ``relaxation=1.0`` is the part of a correction that is applied.

    >>> import haloscope
    >>> scan = haloscope.physics.Tomography((1, 16, 16), angles=30)
    >>> y = scan.A(haloscope.io.phantom.shepp_logan((16, 16)))
    >>> len(haloscope.optim.SIRT(max_iter=3)(y, scan, x_init="zeros").records)
    3
    """

    _method = "sirt"


class OSSART(SIRT):
    """SIRT with ordered subsets: every n-th operator of a stack in turn, such as the groups of :meth:`Tomography.split`.

    ``subsets`` is their number, by default that of the operators.

    >>> import haloscope
    >>> scan = haloscope.physics.Tomography((1, 16, 16), angles=30)
    >>> groups = scan.split(5)
    >>> y = groups.A(haloscope.io.phantom.shepp_logan((16, 16)))
    >>> len(haloscope.optim.OSSART(max_iter=2, subsets=5)(y, groups, x_init="zeros").records)
    2
    """

    _method = "os-sart"


class MLEM(Optim):
    """Expectation maximisation for counts, also known as the method of Richardson and Lucy; it takes a Poisson fidelity.

    >>> import haloscope
    >>> blur = haloscope.physics.Blur(haloscope.kernels.gaussian(1.0), "circular", img_size=(3, 16, 16))
    >>> y = blur.A(haloscope.io.phantom.landscape(16, 16)) * 100
    >>> lucy = haloscope.optim.MLEM(haloscope.optim.PoissonLikelihood(), max_iter=3)
    >>> len(lucy(y, blur).records)
    3
    """

    _method = "mlem"


class OSEM(MLEM):
    """Expectation maximisation with ordered subsets; ``subsets`` is their number, by default that of the operators.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(1, 8, 8))
    >>> y = [haloscope.io.phantom.shepp_logan((8, 8)) + 1.0] * 2
    >>> osem = haloscope.optim.OSEM(haloscope.optim.PoissonLikelihood(), max_iter=2)
    >>> len(osem(y, [frame, frame]).records)
    2
    """

    _method = "osem"


#: Methods that take no prior.
PRIORLESS: tuple[type[Optim], ...] = (CG, Landweber, SIRT, OSSART, MLEM, OSEM)

_WITH_PRIOR: tuple[type[Optim], ...] = (PGD, FISTA, ADMM, DRS, HQS, REDGradient, REDFixedPoint, PDCP)

#: By their names in job files.
METHODS: dict[str, type[Optim]] = {method._method: method for method in _WITH_PRIOR + PRIORLESS}
