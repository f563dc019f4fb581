//! Plots as inline SVG: a line over iterations, and stacked bars of seconds.
//!
//! Colours and fonts are the page's, by class; positions and numbers are made here. A column over each iteration
//! shows its numbers when the pointer is on it, without a script.

use std::fmt::Write;

use super::escape;

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 270.0;
/// Where the axes are: left, right, top, bottom.
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 12.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = HEIGHT - 44.0;
/// More bars than this could not be told apart.
const MOST_BARS: usize = 80;

/// How values are placed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// In proportion.
    Linear,
    /// By their logarithm; values of zero and less are left out.
    Logarithmic,
}

/// A line through (iteration, value), or `None` if there is nothing to show.
pub(super) fn line(
    label: &str,
    unit: &str,
    points: &[(usize, f64)],
    scale: Scale,
) -> Option<String> {
    let shown = |value: f64| value.is_finite() && (scale == Scale::Linear || value > 0.0);
    let points: Vec<(usize, f64)> =
        points.iter().copied().filter(|(_, value)| shown(*value)).collect();
    let (first, last) = (points.first()?.0, points.last()?.0);
    let axis = Axis::around(points.iter().map(|(_, value)| *value), scale);
    let across = Across::new(first, last);
    let mut svg = open(label, first, last, &across);
    axis.draw(&mut svg);
    let mut path = String::new();
    for (index, (iteration, value)) in points.iter().enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        let (x, y) = (across.place(*iteration), axis.place(*value));
        let _ = write!(path, "{command}{x:.1} {y:.1}");
    }
    let _ = write!(svg, r#"<path class="line" d="{path}"/>"#);
    // Single points are dots; so is the last one, with its value.
    let (x, y) = (across.place(last), axis.place(points[points.len() - 1].1));
    let _ = write!(svg, r#"<circle class="dot" cx="{x:.1}" cy="{y:.1}" r="3.5"/>"#);
    let width = across.column(points.len());
    for (iteration, value) in &points {
        let x = across.place(*iteration) - width / 2.0;
        let text = escape(&format!("iteration {iteration}: {}{unit}", short(*value)));
        column(&mut svg, x, width, &text);
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// Bars of seconds, stacked by component, or `None` if there is nothing to show. Many iterations share a bar, which
/// shows their mean then.
pub(super) fn stacked(label: &str, names: &[String], rows: &[(usize, Vec<f64>)]) -> Option<String> {
    let (first, last) = (rows.first()?.0, rows.last()?.0);
    let per_bar = rows.len().div_ceil(MOST_BARS);
    let bars: Vec<(usize, usize, Vec<f64>)> = rows.chunks(per_bar).map(mean).collect();
    let total = |seconds: &[f64]| seconds.iter().sum::<f64>();
    let tallest = bars.iter().map(|(_, _, seconds)| total(seconds)).fold(0.0, f64::max);
    if tallest <= 0.0 {
        return None;
    }
    let axis = Axis::around([0.0, tallest], Scale::Linear);
    let across = Across::new(first, last);
    let mut svg = open(label, first, last, &across);
    axis.draw(&mut svg);
    let slot = (RIGHT - LEFT) / bars.len() as f64;
    // A hair of the background between bars, where there is room for it.
    let width = (slot - 1.5).max(slot * 0.88).min(40.0);
    for (index, (from, to, seconds)) in bars.iter().enumerate() {
        let x = LEFT + (index as f64 + 0.5) * slot - width / 2.0;
        let mut below = 0.0;
        let mut text = if from == to {
            format!("iteration {from}")
        } else {
            format!("iterations {from} to {to}, each")
        };
        for (series, (name, seconds)) in names.iter().zip(seconds).enumerate() {
            let (top, bottom) = (axis.place(below + seconds), axis.place(below));
            below += seconds;
            let _ = write!(text, "\n{name}: {} s", short(*seconds));
            if *seconds > 0.0 {
                let _ = write!(
                    svg,
                    r#"<rect class="fill s{series}" x="{x:.2}" y="{top:.2}" width="{width:.2}" height="{:.2}"/>"#,
                    bottom - top
                );
            }
        }
        column(&mut svg, x - (slot - width) / 2.0, slot, &escape(&text));
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// The first and last iteration of a bar, and their mean seconds. Times that are no numbers count as nothing.
fn mean(rows: &[(usize, Vec<f64>)]) -> (usize, usize, Vec<f64>) {
    let components = rows.iter().map(|(_, seconds)| seconds.len()).max().unwrap_or(0);
    let mut sums = vec![0.0; components];
    for (_, seconds) in rows {
        for (sum, seconds) in sums.iter_mut().zip(seconds) {
            *sum += if seconds.is_finite() { seconds.max(0.0) } else { 0.0 };
        }
    }
    for sum in &mut sums {
        *sum /= rows.len() as f64;
    }
    (rows[0].0, rows[rows.len() - 1].0, sums)
}

fn open(label: &str, first: usize, last: usize, across: &Across) -> String {
    let label = escape(label);
    let mut svg = format!(
        r#"<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">"#
    );
    let _ = write!(
        svg,
        r#"<text class="axis" x="{:.1}" y="{:.1}" text-anchor="middle">iteration</text>"#,
        f64::midpoint(LEFT, RIGHT),
        HEIGHT - 6.0
    );
    for iteration in across.ticks(first, last) {
        let x = across.place(iteration);
        let y = BOTTOM + 19.0;
        let _ =
            write!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle">{iteration}</text>"#);
    }
    svg
}

fn column(svg: &mut String, x: f64, width: f64, text: &str) {
    let height = BOTTOM - TOP;
    let _ = write!(
        svg,
        r#"<rect class="hit" x="{x:.2}" y="{TOP}" width="{width:.2}" height="{height}"><title>{text}</title></rect>"#
    );
}

/// Iterations from left to right.
struct Across {
    first: f64,
    span: f64,
}

impl Across {
    fn new(first: usize, last: usize) -> Self {
        Self { first: first as f64, span: last.saturating_sub(first) as f64 }
    }

    /// Half a step away from both ends, so that dots and bars are inside.
    fn place(&self, iteration: usize) -> f64 {
        LEFT + (iteration as f64 - self.first + 0.5) / (self.span + 1.0) * (RIGHT - LEFT)
    }

    fn column(&self, points: usize) -> f64 {
        (RIGHT - LEFT) / (self.span + 1.0).min(points as f64).max(1.0)
    }

    fn ticks(&self, first: usize, last: usize) -> Vec<usize> {
        let step = nice_step(self.span / 5.0).max(1.0) as usize;
        let mut ticks: Vec<usize> =
            (first..=last).filter(|iteration| iteration % step == 0).collect();
        // The first one has a label of its own, unless another is too near.
        if ticks.first().is_none_or(|tick| (tick - first) * 2 > step) {
            ticks.insert(0, first);
        }
        ticks
    }
}

/// Values from bottom to top.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Axis {
    /// An axis that holds the values, and has ticks at round numbers.
    fn around(values: impl IntoIterator<Item = f64>, scale: Scale) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            (low, high) = (low.min(value), high.max(value));
        }
        match scale {
            Scale::Linear => {
                if high - low < 1e-9 * high.abs().max(1e-300) {
                    let room = if high == 0.0 { 1.0 } else { high.abs() * 0.1 };
                    (low, high) = (low - room, high + room);
                }
                let step = nice_step((high - low) / 4.0);
                let (from, to) = ((low / step).floor(), (high / step - 1e-9).ceil());
                let ticks = (0..=(to - from) as usize).map(|tick| (from + tick as f64) * step);
                let ticks: Vec<f64> = ticks.collect();
                Self { scale, low: from * step, high: to * step, ticks }
            }
            Scale::Logarithmic => {
                let decade = |value: f64| 10_f64.powf(value);
                let decades: Vec<f64> = {
                    let (from, to) = (low.log10().floor() as i32, high.log10().ceil() as i32);
                    let every = ((to - from) as usize).div_ceil(6).max(1);
                    (from..=to).step_by(every).map(|power| decade(f64::from(power))).collect()
                };
                // Within few decades, 2 and 5 are needed to read a value.
                let few = high / low < 50.0;
                let factors: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let all: Vec<f64> = decades
                    .iter()
                    .flat_map(|decade| factors.iter().map(move |factor| decade * factor))
                    .collect();
                // From the tick below all values to the one above.
                let below = all.iter().copied().rfind(|tick| *tick <= low * 1.0001);
                let above = all.iter().copied().find(|tick| *tick >= high * 0.9999);
                let (low, high) = (below.unwrap_or(low), above.unwrap_or(high));
                let high = if high > low { high } else { low * 10.0 };
                let inside = |tick: &f64| *tick >= low * 0.9999 && *tick <= high * 1.0001;
                let ticks = all.into_iter().filter(inside).collect();
                Self { scale, low, high, ticks }
            }
        }
    }

    fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        BOTTOM - share * (BOTTOM - TOP)
    }

    fn draw(&self, svg: &mut String) {
        for tick in &self.ticks {
            let y = self.place(*tick);
            let (label_x, label_y, text) = (LEFT - 8.0, y + 4.5, short(*tick));
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{LEFT}" y1="{y:.1}" x2="{RIGHT}" y2="{y:.1}"/><text x="{label_x}" y="{label_y:.1}" text-anchor="end">{text}</text>"#
            );
        }
    }
}

/// The step of 1, 2 or 5 times a power of ten that is not below the given one.
fn nice_step(step: f64) -> f64 {
    if !step.is_finite() || step <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(step.log10().floor());
    let factor =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| step <= factor * power * 1.000_001);
    factor.unwrap_or(10.0) * power
}

/// Four digits, and an exponent only where it is shorter.
fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    let text = if (-3..6).contains(&magnitude) {
        format!("{value:.*}", (3 - magnitude).max(0) as usize)
    } else {
        format!("{value:.3e}")
    };
    // 2.500 is 2.5, and 1.000e7 is 1e7.
    let (digits, exponent) = text.split_once('e').map_or((&text[..], ""), |(d, e)| (d, e));
    let digits = if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    };
    let separator = if exponent.is_empty() { "" } else { "e" };
    format!("{digits}{separator}{exponent}").replace('-', "\u{2212}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let expected = [
            (2.5, "2.5"),
            (1e7, "1e7"),
            (0.001_234_56, "0.001235"),
            (-3.0, "\u{2212}3"),
            (1.5e-5, "1.5e\u{2212}5"),
            (100.0, "100"),
            (123_456.0, "123456"),
            (0.0, "0"),
        ];
        for (value, text) in expected {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn axes_hold_all_values_between_round_numbers() {
        for (low, high) in [(0.0, 7.3), (23.1, 31.9), (-4e-9, 5e-9), (5.0, 5.0), (0.0, 0.0)] {
            let axis = Axis::around([low, high], Scale::Linear);
            assert!(axis.low <= low && axis.high >= high && axis.low < axis.high);
            assert!((2..=8).contains(&axis.ticks.len()), "{:?}", axis.ticks);
        }
        for (low, high) in [(1e-8, 3e5), (0.02, 0.5), (1.0, 1.0), (3.0, 4.0), (9.0, 11.0)] {
            let axis = Axis::around([low, high], Scale::Logarithmic);
            assert!(axis.low <= low * 1.001 && axis.high >= high * 0.999, "{low} {high}");
            assert!((2..=9).contains(&axis.ticks.len()), "{low} {high}: {:?}", axis.ticks);
            assert!(axis.place(low) <= BOTTOM + 0.1 && axis.place(high) >= TOP - 0.1);
        }
    }

    #[test]
    fn values_that_cannot_be_shown_are_left_out() {
        let points = [(1, f64::NAN), (2, 0.0), (3, -1.0), (4, f64::INFINITY)];
        assert!(line("data term", "", &points, Scale::Logarithmic).is_none());
        assert!(line("data term", "", &[], Scale::Linear).is_none());
        let svg = line("data term", "", &[(1, f64::NAN), (2, 5.0)], Scale::Logarithmic);
        let svg = svg.expect("one point");
        assert!(!svg.contains("NaN") && svg.contains("iteration 2: 5"));
        assert!(stacked("time", &["data".into()], &[(1, vec![f64::NAN])]).is_none());
        assert!(stacked("time", &["data".into()], &[]).is_none());
    }

    #[test]
    fn many_iterations_share_bars() {
        let rows: Vec<(usize, Vec<f64>)> =
            (1..=1000).map(|iteration| (iteration, vec![1.0, 0.5])).collect();
        let svg = stacked("time", &["data".into(), "prior".into()], &rows).expect("bars");
        let bars = svg.matches("<title>").count();
        assert!((40..=MOST_BARS).contains(&bars), "{bars}");
        assert!(svg.contains("iterations 1 to 13, each\ndata: 1 s\nprior: 0.5 s"));
    }
}
