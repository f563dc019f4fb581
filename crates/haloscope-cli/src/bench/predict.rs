//! `haloscope bench predict`: rows for ranks that are not there, from rows for those that are.

use std::path::PathBuf;

use anyhow::Result;
use haloscope_study::figures::summarise;
use haloscope_study::model::{Cluster, Contention, Validation, predicted_rows};
use haloscope_study::problem::{Problem, Size};
use haloscope_study::results::Results;
use haloscope_study::tables;

use super::problem::{StudiedProblem, chosen};
use super::run::{cores, validate};
use crate::exit::{Misuse, Preparation};
use haloscope_job::words::count;

/// The options of `haloscope bench predict`.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Folder with results of `bench scaling`. The predicted rows are added to it and replace earlier predictions of the
    /// same problem, size and network
    results: PathBuf,

    /// Folder for the predicted rows, without the measured ones; by default they are added to the results
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// File that describes the cluster
    #[arg(long, value_name = "FILE")]
    cluster: PathBuf,

    /// Numbers of ranks to predict
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,8,16,32,64,128,256,512,1024"
    )]
    ranks: Vec<usize>,

    /// Problems; by default all measured ones
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    problem: Vec<StudiedProblem>,

    /// Sizes of images, as of `bench scaling`; by default the measured ones
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    sizes: Vec<Size>,
}

/// Predicts, and says how far the model is off where it can be compared.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let cluster = Cluster::read(&arguments.cluster).or_misuse()?;
    let folder = &arguments.results;
    let results = Results::reopen(folder).or_misuse()?;
    let validations = validate(&results)?;
    if !results.provenance().has_current_problems() {
        let words = "the rows were measured by an earlier version with other problems: the times are those of its problems, \
                     the messages of an image in shards those of the current ones";
        crate::log::message(log::Level::Warn, words);
    }
    let ranks: Vec<usize> =
        arguments.ranks.iter().copied().filter(|ranks| *ranks <= cluster.most_ranks()).collect();
    if ranks.len() < arguments.ranks.len() {
        let words = format!(
            "{} has {}; more are left out",
            cluster.name,
            count(cluster.most_ranks(), "rank")
        );
        crate::log::message(log::Level::Warn, &words);
    }
    let wanted = chosen(&arguments.problem);
    let is_wanted = |problem: Problem| wanted.is_empty() || wanted.contains(&problem);
    let measured: Vec<_> = results
        .rows()
        .iter()
        .filter(|row| row.configuration.problem.is_some_and(is_wanted))
        .cloned()
        .collect();
    // Problems that are not asked for say how ranks slow each other down, too.
    let contention = Contention::of(&summarise(results.rows()), cores(results.provenance()));
    let ranks_per_node = cluster.ranks_per_node;
    if cluster.slowdown.is_none() && ranks_per_node > 1 {
        let most = contention.measured().iter().map(|(of, _)| of.ranks).max();
        let words = match most {
            None => Some("nothing was measured side by side (`bench scaling --mode contention`), so ranks of a node are taken \
                          not to slow each other down".to_owned()),
            Some(most) if most < ranks_per_node => Some(format!(
                "{ranks_per_node} ranks of a node are taken to slow each other down like the {most} that were measured side by side"
            )),
            Some(_) => None,
        };
        if let Some(words) = words {
            crate::log::message(log::Level::Warn, &words);
        }
    }
    let rows =
        predicted_rows(&measured, &contention, &cluster, &ranks, &arguments.sizes).or_misuse()?;
    if rows.is_empty() {
        return Err(Misuse::error(format!(
            "{}: there are no rows of `bench scaling` in strong mode to predict from",
            folder.display()
        )));
    }
    let text = tables::describe(&rows);
    let mut all = match &arguments.out {
        Some(folder) => results.beside(folder).or_misuse()?,
        None => results,
    };
    all.predict(rows)?;
    all.save()?;
    crate::print(&format!("Predictions for {}\n\n{text}", cluster.name))?;
    if validations.is_empty() {
        return crate::print(
            "Nothing was measured on more ranks that the model could be compared with.\n",
        );
    }
    let worst = validations.iter().map(Validation::error).fold(0.0, f64::max);
    crate::print(&format!(
        "The model on what was measured: off by at most {:.1} %\n\n{}",
        100.0 * worst,
        tables::describe_validation(&validations)
    ))
}
