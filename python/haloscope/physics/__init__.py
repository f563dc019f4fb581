"""Measurement operators: what an instrument does to an image.

Names and keywords are deepinv's where it has them.
"""

from . import fourier
from ._base import LinearPhysics, Physics
from ._noise import GaussianNoise, NoiseModel, PoissonGaussianNoise, PoissonNoise, UniformNoise
from ._operators import Affine, Blur, Decolorize, Denoising, Downsampling, Inpainting, Matrix, Saturation, VaryingBlur
from ._stacks import DistributedStack, Stack, stack
from ._tomography import Tomography
from .fourier import Cartesian, Trajectory, Visibilities

__all__ = [
    "Affine",
    "Blur",
    "Cartesian",
    "Decolorize",
    "Denoising",
    "DistributedStack",
    "Downsampling",
    "GaussianNoise",
    "Inpainting",
    "LinearPhysics",
    "Matrix",
    "NoiseModel",
    "Physics",
    "PoissonGaussianNoise",
    "PoissonNoise",
    "Saturation",
    "Stack",
    "Tomography",
    "Trajectory",
    "UniformNoise",
    "VaryingBlur",
    "Visibilities",
    "fourier",
    "stack",
]
