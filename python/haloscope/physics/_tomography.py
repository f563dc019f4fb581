"""Tomography: parallel rays, fans and cones, and ASTRA's geometries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .. import _haloscope
from .._arrays import ArrayLike, Size, as_input, lengths, per_axis, restore, shape_of
from .._errors import ArgumentError
from ._base import LinearPhysics
from ._noise import NoiseModel
from ._stacks import Stack

if TYPE_CHECKING:
    from typing_extensions import Self


class Tomography(LinearPhysics):
    """X-ray projections of slices or volumes, by parallel rays, fans or cones, with the exact adjoint.

    Keywords are those of deepinv's ``TomographyWithAstra``, and the geometry is ASTRA's; angles are in degrees. A number of angles
    divides ``angular_range``. Measurements are (channel, view, bin) for slices and (channel, view, row, column) for volumes.

    >>> import haloscope
    >>> scan = haloscope.physics.Tomography((1, 32, 32), angles=20)
    >>> scan.measurement_size
    (1, 20, 32)
    >>> cone = haloscope.physics.Tomography((1, 8, 16, 16), 12, angular_range=(0, 360), geometry_type="conebeam",
    ...                                     n_detector_pixels=(12, 24), source_radius=60, detector_radius=20)
    >>> cone.measurement_size
    (1, 12, 12, 24)
    """

    def __init__(
        self,
        img_size: Sequence[int],
        angles: int | ArrayLike = 180,
        *,
        angular_range: tuple[float, float] = (0.0, 180.0),
        geometry_type: Literal["parallel", "fanbeam", "conebeam"] = "parallel",
        n_detector_pixels: Size | None = None,
        detector_spacing: float | Sequence[float] = 1.0,
        pixel_spacing: float | Sequence[float] = 1.0,
        detector_offset: float | Sequence[float] = 0.0,
        source_radius: float | None = None,
        detector_radius: float | None = None,
        normalize: bool = False,
        noise_model: NoiseModel | None = None,
    ) -> None:
        shape = shape_of(img_size)
        axes = len(shape) - 1
        degrees = _degrees(angles, angular_range)
        radians = [float(np.radians(angle)) for angle in degrees]
        distances = _distances(geometry_type, axes, source_radius, detector_radius)
        pixel = per_axis(pixel_spacing, axes, "pixel_spacing")
        if axes == 2:
            bins = _detector(n_detector_pixels if n_detector_pixels is not None else shape[-1], 1)[0]
            spacing = per_axis(detector_spacing, 1, "detector_spacing")[0]
            offset = per_axis(detector_offset, 1, "detector_offset")[0]
            native = _haloscope.Operator.planar_scan(shape, pixel, radians, bins, spacing, offset, distances)
        else:
            detector = _detector(n_detector_pixels if n_detector_pixels is not None else (shape[1], shape[-1]), 2)
            spacings = per_axis(detector_spacing, 2, "detector_spacing")
            offsets = per_axis(detector_offset, 2, "detector_offset")
            native = _haloscope.Operator.spatial_scan(shape, pixel, radians, detector, spacings, offsets, distances)
        self._set(native.normalised() if normalize else native, noise_model)

    @classmethod
    def from_astra(cls, volume_geometry: Mapping[str, Any], projection_geometry: Mapping[str, Any]) -> Self:
        """From ASTRA's geometries as dictionaries, vectors of views included.

        >>> import haloscope
        >>> volume = {"GridRowCount": 32, "GridColCount": 32, "option": {}}
        >>> parallel = {"type": "parallel", "DetectorCount": 40, "DetectorWidth": 1.0, "ProjectionAngles": [0.0, 0.5]}
        >>> haloscope.physics.Tomography.from_astra(volume, parallel).measurement_size
        (1, 2, 40)
        """
        return cls._of(_from_astra(volume_geometry, projection_geometry))

    @classmethod
    def from_views(
        cls,
        img_size: Sequence[int],
        views: ArrayLike,
        n_detector_pixels: Size,
        *,
        geometry_type: Literal["parallel", "fanbeam", "conebeam"] = "parallel",
        pixel_spacing: float | Sequence[float] = 1.0,
        noise_model: NoiseModel | None = None,
    ) -> Self:
        """Any position of source and detector for each view, as in ASTRA's vectors.

        A view has the direction of parallel rays or the place of the source, the middle of the detector, and the steps from one of
        its pixels to the next: 6 numbers for slices, (x, y) each, and 12 for volumes, (x, y, z) each, along columns and then rows.

        >>> import haloscope
        >>> views = [[0, -1, 0, 0, 1, 0], [1, 0, 0, 0, 0, 1]]
        >>> haloscope.physics.Tomography.from_views((1, 16, 16), views, 24).measurement_size
        (1, 2, 24)
        """
        shape = shape_of(img_size)
        axes = len(shape) - 1
        diverges = _diverges(geometry_type, axes)
        pixel = per_axis(pixel_spacing, axes, "pixel_spacing")
        table = np.asarray(views, np.float64)
        numbers = {2: 6, 3: 12}[axes]
        if table.ndim != 2 or table.shape[1] != numbers:
            raise ArgumentError(f"views: an array of shape {table.shape}; (views, {numbers}) is expected for {axes} sides")
        return cls._of(_of_views(shape, pixel, _detector(n_detector_pixels, axes - 1), table.tolist(), diverges), noise_model)

    def fbp(
        self, y: ArrayLike, window: Literal["ram-lak", "shepp-logan", "cosine", "hamming", "hann"] = "ram-lak"
    ) -> Any:
        """Filtered back-projection; FDK for cones.

        >>> import haloscope
        >>> scan = haloscope.physics.Tomography((1, 32, 32), angles=60)
        >>> image = haloscope.io.phantom.shepp_logan((32, 32))
        >>> scan.fbp(scan.A(image)).shape
        (1, 1, 32, 32)
        """
        return restore(y)(self._operator().filtered_back_projection(as_input(y), window))

    def split(self, groups: int, grouping: Literal["interleaved", "contiguous"] = "interleaved") -> Stack:
        """Groups of views, for ranks to share.

        >>> import haloscope
        >>> len(haloscope.physics.Tomography((1, 16, 16), angles=10).split(5))
        5
        """
        if grouping not in ("interleaved", "contiguous"):
            raise ArgumentError(f"grouping: {grouping!r}; interleaved or contiguous is accepted")
        natives = self._operator().split(groups, grouping == "interleaved")
        return Stack([Tomography._of(native, self.noise_model) for native in natives])


def _degrees(angles: int | ArrayLike, angular_range: tuple[float, float]) -> list[float]:
    values = np.asarray(angles)
    if values.ndim > 0:
        return [float(angle) for angle in values.ravel()]
    if values.dtype.kind not in "iu":
        raise ArgumentError(f"angles: {angles!r}; the number of views, an integer, or a list of angles in degrees is accepted")
    first, last = angular_range
    return [first + (last - first) * view / int(values) for view in range(int(values))]


def _detector(size: Size, axes: int) -> list[int]:
    """The pixels of a detector along each axis."""
    given = lengths(size)
    if len(given) not in (1, axes):
        raise ArgumentError(f"n_detector_pixels: {tuple(given)}; {axes} of them, or 1 for all axes, is accepted")
    return given if len(given) == axes else given * axes


def _diverges(kind: str, axes: int) -> bool:
    """Whether rays come from a point; for images that can be scanned in this way."""
    if axes not in (2, 3):
        raise ArgumentError(f"tomography: images of {axes} axes besides channels; img_size is (channel, y, x) or (channel, z, y, x)")
    accepted = "fanbeam" if axes == 2 else "conebeam"
    if kind not in ("parallel", accepted):
        raise ArgumentError(f"geometry_type: {kind!r} with {axes} sides; parallel or {accepted} is accepted")
    return kind != "parallel"


def _of_views(
    shape: list[int], pixel: list[float], detector: list[int], views: list[list[float]], diverges: bool
) -> _haloscope.Operator:
    if len(shape) == 3:
        return _haloscope.Operator.planar_views(shape, pixel, detector[0], views, diverges)
    return _haloscope.Operator.spatial_views(shape, pixel, detector, views, diverges)


def _distances(
    kind: str, axes: int, source: float | None, detector: float | None
) -> tuple[float, float] | None:
    if not _diverges(kind, axes):
        return None
    if source is None or detector is None:
        raise ArgumentError(f"{kind}: source_radius and detector_radius are needed: from the axis to each of them")
    return (source, detector)


def _from_astra(volume: Mapping[str, Any], projection: Mapping[str, Any]) -> _haloscope.Operator:
    rows, columns = int(volume["GridRowCount"]), int(volume["GridColCount"])
    slices = volume.get("GridSliceCount")
    window = volume.get("option", {})

    def pixel(low: str, high: str, count: int) -> float:
        first, last = float(window.get(low, -count / 2)), float(window.get(high, count / 2))
        if abs(first + last) > 1e-6 * (last - first):
            raise ArgumentError(f"{low}={first}, {high}={last}: the middle of the volume must be the origin")
        return (last - first) / count

    plane = [pixel("WindowMinY", "WindowMaxY", rows), pixel("WindowMinX", "WindowMaxX", columns)]
    kind = projection["type"]
    angles = [float(angle) for angle in projection.get("ProjectionAngles", ())]
    make = _haloscope.Operator
    if slices is None:
        shape = [1, rows, columns]
        bins = int(projection["DetectorCount"])
        if kind in ("parallel", "fanflat"):
            distances = None
            if kind == "fanflat":
                distances = (float(projection["DistanceOriginSource"]), float(projection["DistanceOriginDetector"]))
            width = float(projection["DetectorWidth"])
            return make.planar_scan(shape, plane, angles, bins, width, 0.0, distances)
        if kind in ("parallel_vec", "fanflat_vec"):
            return _of_views(shape, plane, [bins], np.asarray(projection["Vectors"], float).tolist(), kind == "fanflat_vec")
    else:
        shape = [1, int(slices), rows, columns]
        voxel = [pixel("WindowMinZ", "WindowMaxZ", int(slices)), *plane]
        detector = [int(projection["DetectorRowCount"]), int(projection["DetectorColCount"])]
        if kind in ("parallel3d", "cone"):
            distances = None
            if kind == "cone":
                distances = (float(projection["DistanceOriginSource"]), float(projection["DistanceOriginDetector"]))
            spacing = [float(projection["DetectorSpacingY"]), float(projection["DetectorSpacingX"])]
            return make.spatial_scan(shape, voxel, angles, detector, spacing, [0.0, 0.0], distances)
        if kind in ("parallel3d_vec", "cone_vec"):
            return _of_views(shape, voxel, detector, np.asarray(projection["Vectors"], float).tolist(), kind == "cone_vec")
    raise ArgumentError(f"projection geometry {kind!r} for a {'slice' if slices is None else 'volume'} is not known")
