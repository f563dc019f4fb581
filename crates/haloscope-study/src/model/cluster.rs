//! The description of a machine that is not at hand: `cluster.toml`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::trial::LinkSpeed;

/// Nodes with ranks, and the links within and between them.
///
/// ```
/// let cluster = haloscope_study::model::Cluster::parse(
///     r#"
///     name = "sixteen nodes on 100 Gb/s"
///     nodes = 16
///     ranks_per_node = 4
///     [within]
///     latency_seconds = 1e-6
///     bytes_per_second = 8e9
///     [between]
///     latency_seconds = 2e-6
///     bytes_per_second = 12.5e9
///     "#,
/// )?;
/// assert_eq!(cluster.most_ranks(), 64);
/// # Ok::<(), haloscope_study::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// What it is called.
    pub name: String,
    /// How many nodes there are.
    pub nodes: usize,
    /// The ranks of each.
    pub ranks_per_node: usize,
    /// How many times slower a rank computes while all ranks of its node do; what was measured side by side if not given.
    #[serde(default)]
    pub slowdown: Option<f64>,
    /// How many times faster a rank computes than one of the machine that was measured; 1 if not given.
    #[serde(default = "one")]
    pub speed: f64,
    /// Messages between ranks of a node; the bandwidth is that of one rank.
    pub within: LinkSpeed,
    /// Messages between nodes; the bandwidth is that of a node, shared by its ranks.
    pub between: LinkSpeed,
}

fn one() -> f64 {
    1.0
}

impl Cluster {
    /// Reads a description.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
        Self::parse(&text).map_err(|error| Error::file(path, error))
    }

    /// Reads the text of a description.
    pub fn parse(text: &str) -> Result<Self> {
        let cluster: Self =
            toml::from_str(text).map_err(|error| Error::argument("cluster", error.to_string()))?;
        cluster.check()?;
        Ok(cluster)
    }

    /// One machine with links as they were measured there.
    #[must_use]
    pub fn one_node(name: &str, ranks: usize, link: LinkSpeed) -> Self {
        Self {
            name: name.to_owned(),
            nodes: 1,
            ranks_per_node: ranks,
            slowdown: None,
            speed: 1.0,
            within: link,
            between: link,
        }
    }

    /// The ranks on the fullest node, of so many.
    #[must_use]
    pub(crate) fn ranks_on_node(&self, ranks: usize) -> usize {
        ranks.min(self.ranks_per_node)
    }

    /// The ranks of all nodes.
    #[must_use]
    pub fn most_ranks(&self) -> usize {
        self.nodes.saturating_mul(self.ranks_per_node)
    }

    fn check(&self) -> Result<()> {
        let bad = |reason: String| Err(Error::argument("cluster", reason));
        if self.nodes == 0 || self.ranks_per_node == 0 {
            return bad(format!(
                "{} nodes of {} ranks; both are at least 1",
                self.nodes, self.ranks_per_node
            ));
        }
        for (name, value) in [
            ("slowdown", self.slowdown.unwrap_or(1.0)),
            ("speed", self.speed),
            ("within.latency_seconds", self.within.latency_seconds),
            ("within.bytes_per_second", self.within.bytes_per_second),
            ("between.latency_seconds", self.between.latency_seconds),
            ("between.bytes_per_second", self.between.bytes_per_second),
        ] {
            if !(value.is_finite() && value > 0.0) {
                return bad(format!("{name} is {value}; a number above 0 is needed"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = 'a'\nnodes = 2\nranks_per_node = 4\n\
        within = { latency_seconds = 1e-6, bytes_per_second = 1e9 }\n\
        between = { latency_seconds = 1e-6, bytes_per_second = 1e9 }\n";

    #[test]
    fn what_is_not_given_is_one_or_left_to_measurements() {
        let cluster = Cluster::parse(TEXT).expect("a cluster");
        assert_eq!((cluster.slowdown, cluster.speed), (None, 1.0));
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, words) in [
            ("nodes = 2", "nodes = 0", "at least 1"),
            ("nodes = 2", "nodes = 2\nnode = 3", "node"),
            ("bytes_per_second = 1e9", "bytes_per_second = -1.0", "above 0"),
            ("ranks_per_node = 4", "", "ranks_per_node"),
        ] {
            let error = Cluster::parse(&TEXT.replace(from, to)).expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
