//! Which rank owns which operator.

use haloscope_comm::{Context, partition};

use crate::error::{Error, Result};
use crate::words::count as counted;

/// Which rank owns which operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Assignment {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Contiguous blocks, balanced by the costs of the operators as they state them.
    Balanced,
    /// Contiguous blocks, balanced by these costs.
    Costs(Vec<f64>),
    /// The rank of each operator.
    Owners(Vec<usize>),
}

impl Assignment {
    /// The rank of each of `count` operators, whose own costs are needed for one variant only.
    pub(crate) fn owners(
        &self,
        count: usize,
        ctx: &Context,
        costs: impl FnOnce() -> Option<Vec<f64>>,
    ) -> Result<Vec<usize>> {
        let ranks = ctx.size();
        let bad = |reason: String| Error::argument("assignment", reason);
        let owners = match self {
            Self::RoundRobin => (0..count).map(|index| index % ranks).collect(),
            Self::Balanced => {
                let costs = costs().ok_or_else(|| {
                    bad("operators of a factory have no costs before they are made; give them"
                        .into())
                })?;
                blocks(&costs, ranks)?
            }
            Self::Costs(costs) if costs.len() != count => {
                return Err(bad(words(costs.len(), "cost", count)));
            }
            Self::Costs(costs) => blocks(costs, ranks)?,
            Self::Owners(owners) if owners.len() != count => {
                return Err(bad(words(owners.len(), "owner", count)));
            }
            Self::Owners(owners) => match owners.iter().find(|rank| **rank >= ranks) {
                Some(rank) => {
                    return Err(bad(format!(
                        "rank {rank} as an owner; there are ranks 0 to {}",
                        ranks - 1
                    )));
                }
                None => owners.clone(),
            },
        };
        report_idle(&owners, ctx);
        Ok(owners)
    }
}

fn blocks(costs: &[f64], ranks: usize) -> Result<Vec<usize>> {
    let blocks = partition::contiguous(costs, ranks)?;
    let rank_of = |(rank, block): (usize, std::ops::Range<usize>)| vec![rank; block.len()];
    Ok(blocks.into_iter().enumerate().flat_map(rank_of).collect())
}

/// Says once which ranks have nothing to do.
fn report_idle(owners: &[usize], ctx: &Context) {
    let idle: Vec<String> = (0..ctx.size())
        .filter(|rank| !owners.contains(rank))
        .map(|rank| rank.to_string())
        .collect();
    if !idle.is_empty() {
        let who = match idle.as_slice() {
            [rank] => format!("rank {rank} has"),
            ranks => format!("ranks {} have", ranks.join(", ")),
        };
        let (count, ranks) = (owners.len(), ctx.size());
        let message = format!(
            "{who} no operators ({}, {})",
            counted(count, "operator"),
            counted(ranks, "rank")
        );
        ctx.log_once(log::Level::Warn, message);
    }
}

/// That there is another number of something than of operators.
fn words(number: usize, noun: &str, operators: usize) -> String {
    format!("{} for {}", counted(number, noun), counted(operators, "operator"))
}
