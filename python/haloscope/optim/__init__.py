"""Data fidelities, priors and methods."""

from ._fidelity import L1, L2, AmplitudeLoss, DataFidelity, DistributedDataFidelity, IndicatorL2, PoissonLikelihood
from ._method import Optim
from ._methods import ADMM, CG, DRS, FISTA, HQS, MLEM, OSEM, OSSART, PDCP, PGD, SIRT, Landweber, REDFixedPoint, REDGradient
from ._prior import RED, PnP, Prior, TVPrior
from ._reconstruct import reconstruct
from ._result import Record, Result

__all__ = [
    "ADMM",
    "CG",
    "DRS",
    "FISTA",
    "HQS",
    "L1",
    "L2",
    "MLEM",
    "OSEM",
    "OSSART",
    "PDCP",
    "PGD",
    "RED",
    "SIRT",
    "AmplitudeLoss",
    "DataFidelity",
    "DistributedDataFidelity",
    "IndicatorL2",
    "Landweber",
    "Optim",
    "PnP",
    "PoissonLikelihood",
    "Prior",
    "REDFixedPoint",
    "REDGradient",
    "Record",
    "Result",
    "TVPrior",
    "reconstruct",
]
