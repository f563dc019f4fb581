//! Where an array of antennas measures as the Earth turns, for simulations.

use std::f64::consts::{PI, TAU};

/// Antennas that follow a source for some hours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// The number of antennas, on a spiral of three arms.
    pub antennas: usize,
    /// For how long, around the source's highest point.
    pub hours: f64,
    /// How often in that time.
    pub times: usize,
    /// The source's height above the equator, in degrees; the antennas are at −30.7°.
    pub declination: f64,
    /// The longest distance between antennas, in wavelengths.
    pub longest: f64,
}

impl Coverage {
    /// (u, v, w) in wavelengths of every pair of antennas, time after time.
    #[must_use]
    pub fn uvw(&self) -> Vec<[f64; 3]> {
        const LATITUDE: f64 = -30.7 * PI / 180.0;
        let places: Vec<[f64; 2]> = (0..self.antennas).map(|antenna| self.place(antenna)).collect();
        let declination = self.declination.to_radians();
        let mut uvw = Vec::new();
        for time in 0..self.times {
            let part = (time as f64 + 0.5) / self.times as f64 - 0.5;
            let (hour_sine, hour_cosine) = (TAU * self.hours * part / 24.0).sin_cos();
            for (second, to) in places.iter().enumerate() {
                for from in &places[..second] {
                    let (east, north) = (to[0] - from[0], to[1] - from[1]);
                    // The equatorial frame: x to the meridian, y to the east, z to the pole.
                    let (x, y, z) = (-north * LATITUDE.sin(), east, north * LATITUDE.cos());
                    let radial = hour_cosine * x - hour_sine * y;
                    uvw.push([
                        hour_sine * x + hour_cosine * y,
                        -declination.sin() * radial + declination.cos() * z,
                        declination.cos() * radial + declination.sin() * z,
                    ]);
                }
            }
        }
        uvw
    }

    /// East and north of an antenna, in wavelengths.
    fn place(&self, antenna: usize) -> [f64; 2] {
        const ARMS: usize = 3;
        let along = (antenna / ARMS + 1) as f64 / self.antennas.div_ceil(ARMS) as f64;
        let angle = TAU * (antenna % ARMS) as f64 / ARMS as f64 + 1.9 * along;
        // The ends of arms are √3 times as far from each other as from the middle.
        let radius = self.longest / 3.0_f64.sqrt() * along.powf(1.6);
        [radius * angle.cos(), radius * angle.sin()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_stay_while_the_earth_turns() {
        let coverage =
            Coverage { antennas: 9, hours: 8.0, times: 5, declination: -40.0, longest: 1000.0 };
        let uvw = coverage.uvw();
        assert_eq!(uvw.len(), 5 * 36);
        let length = |uvw: &[f64; 3]| uvw.iter().map(|x| x * x).sum::<f64>().sqrt();
        for pair in 0..36 {
            for time in 1..5 {
                assert!((length(&uvw[time * 36 + pair]) - length(&uvw[pair])).abs() < 1e-9);
            }
        }
        let longest = uvw.iter().map(length).fold(0.0, f64::max);
        assert!((longest - 1000.0).abs() < 1e-6, "{longest}");
    }

    #[test]
    fn a_source_at_the_pole_is_seen_without_a_change_of_w() {
        let coverage =
            Coverage { antennas: 4, hours: 6.0, times: 3, declination: -90.0, longest: 1.0 };
        let uvw = coverage.uvw();
        for pair in 0..6 {
            assert!((uvw[pair][2] - uvw[6 + pair][2]).abs() < 1e-12);
        }
    }
}
