//! How much ranks slow each other down on the cores of one node, which share memory, caches and clock.
//!
//! It is measured by independent problems side by side ([`Mode::Contention`]): every rank has all of the problem, and no word is
//! spoken. How many times longer an iteration takes than on one rank alone is the machine's own limit. It is not communication, and
//! no way to divide the work avoids it. Ranks that share one problem have smaller arrays each, so it is an estimate for them.

use crate::figures::Summary;
use crate::row::{Backend, Configuration, Mode};

/// How many times longer the parts of an iteration take while other ranks of the node compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown {
    /// The data term.
    pub data: f64,
    /// The denoiser.
    pub prior: f64,
    /// The whole iteration, which stands for the rest of it.
    pub total: f64,
}

impl Slowdown {
    /// The same for all parts.
    #[must_use]
    pub fn same(factor: f64) -> Self {
        Self { data: factor, prior: factor, total: factor }
    }

    /// The larger factors of two.
    fn max(self, other: Self) -> Self {
        let max = f64::max;
        Self {
            data: max(self.data, other.data),
            prior: max(self.prior, other.prior),
            total: max(self.total, other.total),
        }
    }
}

/// What was measured side by side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contention {
    measured: Vec<(Configuration, Slowdown)>,
}

/// A slowdown, and whether the same problem was measured side by side on as many ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub slowdown: Slowdown,
    pub is_own: bool,
}

impl Contention {
    /// Of all problems that were measured side by side and on one rank, on a machine with so many cores. Ranks that had to share
    /// a core are left out. The rank alone is that of the same layout and distribution, where it was measured.
    #[must_use]
    pub fn of(summaries: &[Summary], cores: usize) -> Self {
        let is_alone = |one: &&Summary| {
            !one.predicted
                && one.configuration.ranks == 1
                && one.configuration.mode == Some(Mode::Strong)
        };
        let measured = summaries.iter().filter(|one| {
            let of = &one.configuration;
            !one.predicted
                && of.mode == Some(Mode::Contention)
                && of.ranks.saturating_mul(of.threads) <= cores
        });
        let slowdown = |beside: &Summary| {
            let alone = summaries
                .iter()
                .filter(is_alone)
                .filter(|one| subject(&one.configuration) == subject(&beside.configuration))
                .min_by_key(|one| {
                    let (one, beside) = (&one.configuration, &beside.configuration);
                    let is_other =
                        (one.layout != beside.layout, one.distribute != beside.distribute);
                    (is_other, one.backend)
                })?;
            let times = |of: fn(&Summary) -> Option<f64>| {
                let ratio = of(beside).zip(of(alone)).map(|(many, one)| many / one);
                ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0)
            };
            let total = times(|one| Some(one.total.value))?;
            let data = times(|one| one.data.map(|median| median.value)).unwrap_or(total);
            let prior = times(|one| one.prior.map(|median| median.value)).unwrap_or(total);
            Some((beside.configuration.clone(), Slowdown { data, prior, total }))
        };
        Self { measured: measured.filter_map(slowdown).collect() }
    }

    /// What was measured, by configuration.
    #[must_use]
    pub fn measured(&self) -> &[(Configuration, Slowdown)] {
        &self.measured
    }

    /// The slowdown of so many ranks on a node: that of the most similar problem that was measured, on the nearest number of ranks.
    /// Nothing slows down one rank, or if nothing was measured.
    pub(super) fn of_ranks(&self, of: &Configuration, here: usize) -> Found {
        let none = Found { slowdown: Slowdown::same(1.0), is_own: false };
        if here < 2 {
            return Found { is_own: true, ..none };
        }
        let distance = |other: &Configuration| {
            let is_other = [
                other.ranks != here,
                other.problem != of.problem,
                other.model != of.model,
                other.patch.is_some() != of.patch.is_some(),
                other.sides() != of.sides(),
            ];
            let weight = is_other.iter().fold(0, |sum, is_other| 2 * sum + usize::from(*is_other));
            (other.ranks.abs_diff(here), weight)
        };
        let nearest = self.measured.iter().min_by_key(|(other, _)| distance(other));
        nearest.map_or(none, |(other, slowdown)| Found {
            slowdown: *slowdown,
            is_own: distance(other) == (0, 0),
        })
    }

    /// The worst of all that was measured on so many ranks or fewer, of any problem; if none was, of all that was measured.
    pub(super) fn worst(&self, here: usize) -> Slowdown {
        let one = Slowdown::same(1.0);
        if here < 2 {
            return one;
        }
        let has_fewer = self.measured.iter().any(|(other, _)| other.ranks <= here);
        let counted = self.measured.iter().filter(|(other, _)| other.ranks <= here || !has_fewer);
        counted.fold(one, |worst, (_, slowdown)| worst.max(*slowdown))
    }
}

/// What must be the same to compare problems side by side with one alone.
fn subject(of: &Configuration) -> Configuration {
    Configuration {
        mode: None,
        ranks: 1,
        backend: Backend::Solo,
        distribute: None,
        layout: None,
        ..of.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::summarise;
    use crate::row::Row;
    use crate::row::tests::configuration;

    fn row(mode: Mode, ranks: usize, rank: usize, seconds: [f64; 3]) -> Row {
        let of = Configuration { mode: Some(mode), ..configuration(ranks) };
        Row {
            iteration: Some(1),
            data_seconds: Some(seconds[1]),
            prior_seconds: Some(seconds[2]),
            ..of.row(0, rank, seconds[0])
        }
    }

    #[test]
    fn slowdowns_are_ratios_to_one_rank_alone() {
        let rows = [
            row(Mode::Strong, 1, 0, [10.0, 4.0, 5.0]),
            row(Mode::Contention, 2, 0, [11.0, 6.0, 5.0]),
            // The slower rank counts.
            row(Mode::Contention, 2, 1, [12.0, 5.0, 5.0]),
        ];
        let contention = Contention::of(&summarise(&rows), 2);
        let expected = Slowdown { data: 1.5, prior: 1.0, total: 1.2 };
        assert_eq!(contention.of_ranks(&configuration(2), 2).slowdown, expected);
        assert!(contention.of_ranks(&configuration(2), 2).is_own);
        // More ranks than were measured are slowed down at least as much.
        let four = contention.of_ranks(&configuration(4), 4);
        assert_eq!((four.slowdown, four.is_own), (expected, false));
        assert_eq!(contention.of_ranks(&configuration(1), 1).slowdown, Slowdown::same(1.0));
        assert_eq!(contention.worst(2), expected);
        assert_eq!(Contention::default().worst(2), Slowdown::same(1.0));
    }

    #[test]
    fn the_worst_is_of_as_many_ranks_or_fewer_and_of_ranks_with_cores_of_their_own() {
        let rows = [
            row(Mode::Strong, 1, 0, [10.0, 5.0, 5.0]),
            row(Mode::Contention, 2, 0, [11.0, 5.5, 5.5]),
            row(Mode::Contention, 4, 0, [15.0, 7.5, 7.5]),
            row(Mode::Contention, 16, 0, [80.0, 40.0, 40.0]),
        ];
        let worst = |cores: usize, ranks: usize| {
            Contention::of(&summarise(&rows), cores).worst(ranks).total
        };
        assert_eq!([1, 2, 3, 4, 8].map(|ranks| worst(8, ranks)), [1.0, 1.1, 1.1, 1.5, 1.5]);
        assert_eq!([worst(16, 16), worst(2, 16), worst(1, 16)], [8.0, 1.1, 1.0]);
        // Nothing was measured on so few.
        let later = Contention::of(&summarise(&[rows[0].clone(), rows[2].clone()]), 8);
        assert_eq!(later.worst(2).total, 1.5);
    }

    #[test]
    fn one_rank_alone_is_that_of_the_same_layout() {
        let sharded = |row: Row| {
            let layout = Some(crate::row::Layout::Sharded);
            Row { configuration: Configuration { layout, ..row.configuration }, ..row }
        };
        let rows = [
            sharded(row(Mode::Strong, 1, 0, [20.0, 10.0, 10.0])),
            row(Mode::Strong, 1, 0, [10.0, 5.0, 5.0]),
            row(Mode::Contention, 2, 0, [12.0, 6.0, 6.0]),
        ];
        let slowdown = |rows: &[Row]| Contention::of(&summarise(rows), 2).measured()[0].1.total;
        assert_eq!(slowdown(&rows), 1.2);
        assert_eq!(slowdown(&[rows[0].clone(), rows[2].clone()]), 0.6, "where there is no other");
    }

    #[test]
    fn the_most_similar_problem_counts() {
        let other = |row: Row| {
            let configuration = Configuration { model: "dncnn".into(), ..row.configuration };
            Row { configuration, ..row }
        };
        let rows = [
            row(Mode::Strong, 1, 0, [10.0, 5.0, 5.0]),
            row(Mode::Contention, 2, 0, [11.0, 5.5, 5.5]),
            other(row(Mode::Strong, 1, 0, [10.0, 5.0, 5.0])),
            other(row(Mode::Contention, 2, 0, [20.0, 10.0, 10.0])),
        ];
        let contention = Contention::of(&summarise(&rows), 2);
        let dncnn = Configuration { model: "dncnn".into(), ..configuration(2) };
        let larger = dncnn.clone().with_sides(&[128, 128]);
        assert_eq!(contention.of_ranks(&configuration(2), 2).slowdown.total, 1.1);
        assert_eq!(contention.of_ranks(&dncnn, 2).slowdown.total, 2.0);
        let found = contention.of_ranks(&larger, 2);
        assert_eq!((found.slowdown.total, found.is_own), (2.0, false));
    }
}
