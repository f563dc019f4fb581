//! A scan in words: its geometry, and what may be wrong with it.

use haloscope::Result;
use haloscope::physics::tomography::MissingArc;

use super::{Projector, Rays, Scan, extent};

impl Scan {
    /// What may be wrong with it, in words.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.listed.is_some() {
            // A circle says nothing of positions that may be anywhere.
            return warnings;
        }
        let [height, width] = self.breadth();
        let (_, seen) = self.field_of_view();
        if seen < 0.5 * height.min(width) || seen > 2.0 * height.max(width) {
            warnings.push(format!(
                "the detector sees a circle of {} and the image is {} x {}; `spacing`, `pixel` and distances are in \
                 one unit",
                rounded(seen),
                rounded(height),
                rounded(width)
            ));
        }
        if let Rays::Fan(source, _) | Rays::Cone(source, _) = self.outline.rays
            && source <= height.hypot(width) / 2.0
        {
            warnings.push(format!(
                "the source is {source} from the rotation axis and passes through the corners of the image, which is \
                 {} x {}",
                rounded(height),
                rounded(width)
            ));
        }
        let (first, last) = extent(&self.outline.angles);
        if self.views() > 1 && last - first < 1e-6 {
            warnings.push(format!(
                "all {} views have one angle, {:.2}°; one for each view is expected",
                self.views(),
                first.to_degrees()
            ));
        }
        warnings.iter().map(|warning| format!("{}: {warning}", self.beam.place)).collect()
    }

    /// What filtered back-projection lacks, in words.
    pub(crate) fn arc_warning(&self) -> Result<Option<String>> {
        let missing = match self.make_all()? {
            Projector::Plane(plane) => plane.missing_arc(),
            Projector::Space(space) => space.missing_arc(),
        };
        Ok(missing.map(|MissingArc { covered, needed }| {
            format!(
                "{}: the views cover {:.1}°, and filtered back-projection needs {:.1}° or a full turn; edges along the \
                 missing rays will be blurred or absent",
                self.beam.place,
                covered.to_degrees(),
                needed.to_degrees()
            )
        }))
    }

    /// The geometry, as names and values.
    pub(crate) fn describe(&self) -> Vec<(&'static str, String)> {
        let (low, high) = extent(&self.outline.angles);
        let views = format!(
            "{}, from {:.2}° to {:.2}° (an arc of {:.2}°)",
            self.views(),
            low.to_degrees(),
            high.to_degrees(),
            (high - low).to_degrees()
        );
        let pixels = self.pixels();
        let is_same = pixels.windows(2).all(|pair| pair[0] == pair[1]);
        let pixel = match (&pixels[..], is_same) {
            ([first, ..], true) => rounded(*first),
            (each, _) => each.iter().map(|side| rounded(*side)).collect::<Vec<_>>().join(" x "),
        };
        let origin = match (&self.beam.pixel, self.outline.rays) {
            (Some(_), _) => "",
            (None, Rays::Parallel) => ", the spacing of bins",
            (None, _) => ", the spacing of bins over the magnification",
        };
        let (all, some) = self.field_of_view();
        let [height, width] = self.breadth();
        let more = if some - all > 1e-9 * some {
            format!(", {} in some views", rounded(some))
        } else {
            String::new()
        };
        let join = |values: &[f64]| {
            values.iter().map(|value| rounded(*value)).collect::<Vec<_>>().join(" x ")
        };
        let bins: Vec<f64> = self.detector.iter().map(|bins| *bins as f64).collect();
        let detector = format!("{} bins, {} apart", join(&bins), join(self.spacing()));
        let field = format!(
            "a circle of {}{more}; the image is {} x {}",
            rounded(all),
            rounded(height),
            rounded(width)
        );
        let names = ["beam", "views", "detector", "centre", "pixel", "field of view"];
        let (beam, centre) = (self.describe_beam(), self.describe_centre());
        names.into_iter().zip([beam, views, detector, centre, pixel + origin, field]).collect()
    }

    fn describe_beam(&self) -> String {
        let rays = match self.outline.rays {
            Rays::Parallel => "parallel".to_owned(),
            Rays::Fan(source, detector) | Rays::Cone(source, detector) => format!(
                "{}, source {} and detector {} from the rotation axis (magnification {})",
                if matches!(self.outline.rays, Rays::Fan(..)) { "fan" } else { "cone" },
                rounded(source),
                rounded(detector),
                rounded(self.magnification())
            ),
        };
        let (pose, vectors) = (&self.beam.pose, self.beam.vectors.as_ref());
        let tilt = pose.tilt.to_degrees();
        [
            Some(rays),
            vectors.map(|it| format!("by the positions of {} in the mean", it.path.display())),
            (pose.pitch != 0.0).then(|| format!("climbing {} a turn", rounded(pose.pitch))),
            (tilt != 0.0).then(|| format!("detector turned by {}°", rounded(tilt))),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
    }

    fn describe_centre(&self) -> String {
        let middle = (self.columns() as f64 - 1.0) / 2.0;
        let column = match self.known_centre {
            None if self.listed.is_some() => "as the positions say".to_owned(),
            None => format!("bin {middle}, the middle of the detector"),
            Some(found) if self.beam.seeks_centre() => format!(
                "bin {found:.2}, found in the measurements; the middle of the detector is {middle}"
            ),
            Some(centre) => format!("bin {centre}; the middle of the detector is {middle}"),
        };
        match &self.beam.pose.row {
            Some((_, row)) => format!("{column}, row {row}"),
            None => column,
        }
    }

    /// The diameters of the circles that all views see, and that some do.
    pub(super) fn field_of_view(&self) -> (f64, f64) {
        let spacing = self.spacing()[self.spacing().len() - 1];
        let (centre, columns) = (self.centre(), self.columns() as f64);
        let diameter = |bins: f64| {
            let distance = bins * spacing;
            2.0 * match self.outline.rays {
                Rays::Parallel => distance,
                Rays::Fan(source, detector) | Rays::Cone(source, detector) => {
                    source * (distance / (source + detector)).atan().sin()
                }
            }
        };
        let (left, right) = (centre + 0.5, columns - 0.5 - centre);
        (diameter(left.min(right)), diameter(left.max(right)))
    }

    /// How long the image is along its last two sides.
    pub(super) fn breadth(&self) -> [f64; 2] {
        let (pixels, sides) = (self.pixels(), &self.image[1..]);
        let length = |from_end: usize| {
            let pixel = pixels.get(pixels.len().wrapping_sub(from_end)).copied().unwrap_or(1.0);
            sides[sides.len() - from_end] as f64 * pixel
        };
        [length(2), length(1)]
    }
}

/// A length with four digits.
pub(super) fn rounded(length: f64) -> String {
    if length == 0.0 || !length.is_finite() {
        return length.to_string();
    }
    let digits = (3 - length.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{length:.digits$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_four_digits() {
        let lengths = [0.0, 0.123_456, 1.0, 75.0, 12_345.6, 0.000_123_456];
        let texts = ["0", "0.1235", "1", "75", "12346", "0.0001235"];
        assert_eq!(lengths.map(rounded), texts);
    }
}
