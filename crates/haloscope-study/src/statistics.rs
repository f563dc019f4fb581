//! Medians, and intervals for them that assume nothing about the distribution.

/// A median with an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The median.
    pub value: f64,
    /// From here,
    pub low: f64,
    /// to here is the true median, in 95 of 100 cases; with fewer than six values the interval is their range, and
    /// says less.
    pub high: f64,
}

impl Median {
    /// Of some values; of none there is no median.
    ///
    /// The number of values below the true median is binomial, so the order statistics between which it lies with a
    /// given probability follow from their number alone.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let last = count.checked_sub(1)?;
        let value = f64::midpoint(values[last / 2], values[count / 2]);
        let skipped = skipped(count);
        Some(Self { value, low: values[skipped], high: values[last - skipped] })
    }
}

/// The most values that can be left out at either end so that the median is between the others in 95 of 100 cases.
fn skipped(count: usize) -> usize {
    if count > 1000 {
        // The powers of ½ below would vanish; the binomial distribution is a normal one here.
        return (count as f64 / 2.0 - 0.98 * (count as f64).sqrt()) as usize;
    }
    // The largest k for which at most k values are below the median in at most 2.5 of 100 cases, with the binomial
    // coefficients as products of ratios.
    let mut probability = 0.5_f64.powi(count as i32);
    let mut sum = probability;
    let mut skipped = 0;
    while sum <= 0.025 {
        skipped += 1;
        probability *= (count - skipped + 1) as f64 / skipped as f64;
        sum += probability;
    }
    skipped.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        let median = |values: &[f64]| Median::of(values.iter().copied()).map(|median| median.value);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    /// The intervals that textbooks tabulate: for 10 values from the 2nd to the 9th, for 20 from the 6th to the 15th.
    #[test]
    fn intervals_are_those_of_the_sign_test() {
        for (count, low, high) in
            [(1, 1, 1), (5, 1, 5), (6, 1, 6), (10, 2, 9), (20, 6, 15), (30, 10, 21)]
        {
            let median = Median::of((1..=count).map(f64::from)).expect("values");
            assert_eq!((median.low, median.high), (f64::from(low), f64::from(high)), "{count}");
        }
    }
}
