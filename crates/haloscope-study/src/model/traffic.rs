//! What the collective calls cost on a cluster: bytes and seconds of the rank that has the most to send or receive.

use std::ops::Add;

use haloscope::denoise::Exchanges;
use haloscope::tiling::ShardPlan;

use super::Cluster;

/// Ranks on as few nodes as hold them.
pub(super) struct Traffic<'a> {
    /// The machine.
    pub cluster: &'a Cluster,
    /// The ranks.
    pub ranks: usize,
}

/// What a rank sends in a call, and how long the call takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Call {
    pub bytes: f64,
    pub seconds: f64,
}

impl Add for Call {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, seconds: self.seconds + other.seconds }
    }
}

impl Traffic<'_> {
    /// A sum of `operators` images of `bytes` each, which all ranks get. The image is cut into a segment per rank;
    /// ranks send the segments of their terms to the owners, who send the sums to all.
    pub(super) fn ordered_sum(&self, bytes: f64, operators: usize) -> Call {
        let ranks = self.ranks as f64;
        let own = operators.div_ceil(self.ranks) as f64;
        let others = (ranks - 1.0) / ranks;
        let sent = own * bytes * others;
        // The owner of a segment receives every term of it that is not its own.
        let received = (operators as f64 - own.min(operators as f64 / ranks)) * bytes / ranks;
        let terms = self.to_all(sent.max(received), 1);
        let sums = self.to_all(bytes * others, 1);
        Call {
            bytes: if self.ranks > 1 { sent + bytes * others } else { 0.0 },
            seconds: terms.seconds + sums.seconds + self.agreement(),
        }
    }

    /// The tiles of an image of `bytes`, on all ranks, where each puts all of them into their places.
    pub(super) fn assembly(&self, bytes: f64) -> Call {
        if self.ranks == 1 {
            return Call::default();
        }
        let ranks = self.ranks as f64;
        let call = self.to_all(bytes * (ranks - 1.0) / ranks, 1);
        let placing = bytes / self.cluster.within.bytes_per_second;
        Call { seconds: call.seconds + placing + self.agreement(), ..call }
    }

    /// Sums of measurements to which ranks send `bytes` each, and parts of which they get back, in so many rounds.
    pub(super) fn sums(&self, bytes: f64, rounds: usize) -> Call {
        let call = self.to_all(bytes, rounds);
        Call { seconds: call.seconds + self.agreement(), ..call }
    }

    /// Borders that are exchanged with the neighbours of a shard. Half of them are taken to be on other nodes as soon as
    /// there are any.
    pub(super) fn neighbours(&self, exchanges: Exchanges) -> Call {
        if self.ranks == 1 {
            return Call::default();
        }
        let (bytes, rounds) = (exchanges.bytes_sent as f64, exchanges.rounds);
        let outside = if self.nodes() > 1.0 { 0.5 } else { 0.0 };
        Call { bytes, seconds: self.seconds(bytes, outside, rounds as f64) }
    }

    /// A rank sends `bytes`, evenly to all others.
    fn to_all(&self, bytes: f64, rounds: usize) -> Call {
        if self.ranks == 1 {
            return Call::default();
        }
        let ranks = self.ranks as f64;
        let here = ranks / self.nodes();
        let outside = (ranks - here) / (ranks - 1.0);
        Call { bytes, seconds: self.seconds(bytes, outside, rounds as f64) }
    }

    /// Seconds for `bytes`, a share of which goes to other nodes; both kinds of link work at the same time, and the
    /// ranks of a node share the one to the others.
    fn seconds(&self, bytes: f64, outside: f64, rounds: f64) -> f64 {
        let (within, between) = (&self.cluster.within, &self.cluster.between);
        let here = (self.ranks as f64 / self.nodes()).max(1.0);
        let inner = bytes * (1.0 - outside) / within.bytes_per_second;
        let outer = bytes * outside * here / between.bytes_per_second;
        let latency = if outside > 0.0 { between.latency_seconds } else { within.latency_seconds };
        rounds * latency + inner.max(outer)
    }

    /// The word before and after a call with which ranks agree that none has failed: logarithmic in their number.
    fn agreement(&self) -> f64 {
        let rounds = (self.ranks as f64).log2().ceil();
        let latency = if self.nodes() > 1.0 {
            self.cluster.between.latency_seconds
        } else {
            self.cluster.within.latency_seconds
        };
        2.0 * rounds * latency
    }

    fn nodes(&self) -> f64 {
        self.ranks.div_ceil(self.cluster.ranks_per_node) as f64
    }
}

/// The largest part of an image on some ranks.
pub(super) struct Shard {
    sides: Vec<f64>,
    /// The neighbours along each side, of a part that has the most.
    neighbours: Vec<usize>,
    exchanges: Exchanges,
}

impl Shard {
    /// That of a plan, whose parts exchange so much.
    pub(super) fn new(plan: &ShardPlan, exchanges: &[Exchanges]) -> Self {
        let most = |of: fn(&Exchanges) -> u64| exchanges.iter().map(of).max().unwrap_or(0);
        let exchanges = Exchanges {
            rounds: most(|part| part.rounds as u64) as usize,
            messages: most(|part| part.messages as u64) as usize,
            bytes_sent: most(|part| part.bytes_sent),
        };
        Self {
            sides: plan.longest().into_iter().map(|side| side as f64).collect(),
            neighbours: plan.grid().into_iter().map(|parts| (parts - 1).min(2)).collect(),
            exchanges,
        }
    }

    /// Its pixels.
    pub(super) fn pixels(&self) -> f64 {
        self.sides.iter().product()
    }

    /// What a network that runs on the parts exchanges.
    pub(super) fn exchanges(&self) -> Exchanges {
        self.exchanges
    }

    /// The pixels within `radius` around the shard, on the sides where there are others.
    pub(super) fn border(&self, radius: usize) -> f64 {
        let sides = self.sides.iter().zip(&self.neighbours);
        let grown = sides.map(|(side, neighbours)| side + (neighbours * radius) as f64);
        grown.product::<f64>() - self.pixels()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::LinkSpeed;

    fn link(latency_seconds: f64, bytes_per_second: f64) -> LinkSpeed {
        LinkSpeed { latency_seconds, bytes_per_second }
    }

    #[test]
    fn two_ranks_of_a_node_send_what_the_library_says() {
        let cluster = Cluster::one_node("two", 2, link(0.0, 1e9));
        let traffic = Traffic { cluster: &cluster, ranks: 2 };
        // Four operators each: half of each of the four images, then half of the sum.
        let sum = traffic.ordered_sum(1e9, 8);
        assert_eq!(sum.bytes, 2.5e9);
        assert_eq!(sum.seconds, 2.5);
        let tiles = traffic.assembly(1e9);
        assert_eq!((tiles.bytes, tiles.seconds), (0.5e9, 1.5));
        assert_eq!(traffic.sums(1e9, 2).bytes, 1e9);
    }

    #[test]
    fn one_rank_sends_nothing() {
        let cluster = Cluster::one_node("one", 1, link(1.0, 1.0));
        let traffic = Traffic { cluster: &cluster, ranks: 1 };
        for call in [
            traffic.ordered_sum(1e9, 8),
            traffic.assembly(1e9),
            traffic.sums(1e9, 2),
            traffic.neighbours(Exchanges { rounds: 2, messages: 2, bytes_sent: 1 << 30 }),
        ] {
            assert_eq!(call, Call::default());
        }
    }

    #[test]
    fn ranks_of_a_node_share_its_link() {
        let one = link(0.0, 1e9);
        let cluster = Cluster { nodes: 2, ranks_per_node: 4, ..Cluster::one_node("eight", 4, one) };
        let traffic = Traffic { cluster: &cluster, ranks: 8 };
        // 7/8 of the bytes leave the rank; four of seven parts of that leave the node, for each of its four ranks.
        // Then the whole image is copied.
        let tiles = traffic.assembly(8e9);
        assert!((tiles.seconds - 16.0 - 8.0).abs() < 1e-9, "{tiles:?}");
    }

    #[test]
    fn borders_are_where_there_are_neighbours() {
        let grain = haloscope_nn::engine::Grain { step: 8, last: 1 };
        let shard = |sides: [usize; 2], ranks: usize| {
            let plan = ShardPlan::new(&[1, 1, sides[0], sides[1]], &[grain, grain], ranks);
            Shard::new(&plan.expect("it fits"), &[])
        };
        assert_eq!(shard([64, 64], 4).sides, [32.0, 32.0]);
        assert_eq!(shard([64, 64], 4).border(1), 33.0 * 33.0 - 32.0 * 32.0);
        assert_eq!(shard([64, 64], 16).border(1), 18.0 * 18.0 - 16.0 * 16.0);
        let strip = shard([64, 256], 2);
        assert_eq!((strip.sides.clone(), strip.border(2)), (vec![64.0, 128.0], 64.0 * 2.0));
        assert_eq!(shard([64, 64], 1).border(10), 0.0);
    }
}
