//! What the command does with what a run tells it: progress, messages and events.

use haloscope::Result;
use haloscope_comm::Context;
use haloscope_job::words::{count, sides};
use haloscope_job::{
    Event, Expected, Job, LayoutChoice, Observer, Outcome, Quality, Summary, details, size,
};
use log::Level;
use serde_json::{Value, json};

use super::Printing;
use super::progress::Progress;
use crate::interrupt::{self, Signal};
use crate::log as output;

/// Watches a run on one rank. Only the first has something to print.
pub(super) struct Watch<'a> {
    ctx: &'a Context,
    job: &'a Job,
    printing: Printing,
    progress: Progress,
    /// What the run will take, for people and for programs, until it begins.
    expected: Option<(Vec<String>, Value)>,
    latest: Option<Quality>,
    qualities: Vec<(usize, Quality)>,
    summary: Option<Box<Summary>>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(ctx: &'a Context, job: &'a Job, printing: Printing) -> Self {
        Self {
            ctx,
            job,
            printing,
            progress: Progress::Silent,
            expected: None,
            latest: None,
            qualities: Vec::new(),
            summary: None,
        }
    }

    /// The result, on the first rank.
    pub(super) fn into_summary(self) -> Option<Box<Summary>> {
        self.summary
    }

    /// A message to people who want to hear it.
    fn say(&self, words: &str) {
        if self.ctx.is_root() && !self.printing.quiet {
            output::message(Level::Info, words);
        }
    }

    fn begin(
        &mut self,
        shape: &[usize],
        operators: usize,
        iterations: usize,
        resumed_from: Option<usize>,
    ) {
        output::event(self.ctx, "started", || {
            json!({
                "problem": self.job.name(),
                "shape": shape,
                "operators": operators,
                "ranks": self.ctx.size(),
                "method": self.job.method(),
                "prior": self.job.prior(),
                "iterations": iterations,
                "resumed_from": resumed_from,
            })
        });
        if let Some((words, details)) = self.expected.take() {
            output::event(self.ctx, "plan", || details);
            if !output::is_json() {
                for words in &words {
                    self.say(words);
                }
            }
        }
        let done = resumed_from.unwrap_or(0);
        self.progress = Progress::new(self.ctx, self.printing.quiet, done, iterations);
    }

    /// How a network's image is cut, and what each rank has of it.
    fn say_tiles(&self, expected: &Expected) {
        let words = match (&expected.forecast.tiles, &expected.forecast.shards) {
            (Some(plan), _) => format!(
                "{} ({}) in windows of {}, {} at once, {:.2} pixels computed for each of the image",
                count(plan.len(), "tile"),
                sides(&plan.grid()),
                sides(plan.window()),
                expected.forecast.batch,
                plan.work_multiplier()
            ),
            (None, Some(shards)) => {
                let exchanges = expected.forecast.largest_exchanges();
                format!(
                    "the network runs on the whole image, in {} parts that exchange their borders in {}, {} by a rank at \
                     most",
                    sides(&shards.grid()),
                    count(exchanges.rounds, "round"),
                    size(exchanges.bytes_sent)
                )
            }
            (None, None) => return,
        };
        self.ctx.log(Level::Info, words);
        if let Some(choice) = &expected.forecast.choice {
            let what = if choice.is_exact() { "exact" } else { "tiles" };
            self.ctx.log(Level::Info, format!("{what}, because {}", choice.reason));
            if let Some(band) = expected.forecast.pass.band() {
                let rows = count(band, "row");
                let waves =
                    format!("in waves of {rows}, because a rank would hold too much at once");
                self.ctx.log(Level::Info, waves);
            }
        }
        for (rank, share) in expected.forecast.ranks.iter().enumerate() {
            let (operators, tiles) =
                (count(share.operators, "operator"), count(share.tiles, "tile"));
            let memory = size(share.memory.total() as u64);
            self.ctx.log(Level::Debug, format!("rank {rank}: {operators}, {tiles}, {memory}"));
        }
    }
}

impl Observer for Watch<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Stage { name, seconds } => {
                if name == "iterating" {
                    self.progress.finish();
                }
                self.ctx.log(Level::Info, format!("{name} took {seconds:.2} s"));
            }
            Event::Planned(expected) => {
                self.say_tiles(expected);
                let ranks = self.ctx.size();
                let memory = expected.announce(ranks, self.ctx.process_size());
                // One rank has the whole image and no choice.
                let layout = expected.layout.as_ref().filter(|_| ranks > 1);
                let words = layout.map(LayoutChoice::announce).into_iter().chain([memory]);
                self.expected = Some((words.collect(), expected.details()));
            }
            Event::Started { shape, operators, iterations, resumed_from } => {
                self.begin(shape, operators, iterations, resumed_from);
            }
            Event::Note(words) => self.say(words),
            Event::Warning(words) => self.ctx.log(Level::Warn, words),
            Event::Detail(words) => self.ctx.log(Level::Info, words),
            Event::Iteration { record, quality } if self.ctx.is_root() => {
                self.latest = quality.or(self.latest);
                self.qualities =
                    quality.map(|quality| (record.iteration, quality)).into_iter().collect();
                let term = match record.data_term {
                    Some(term) => format!("data term {term:.4}"),
                    None => format!("change {:.1e}", record.relative_change),
                };
                let facts = match self.latest {
                    Some(quality) => format!("{term}, {:.2} dB", quality.psnr_db),
                    None => term,
                };
                self.progress.show(record, &facts);
                output::event(self.ctx, "iteration", || {
                    details(self.ctx.rank(), record, &self.qualities)
                });
            }
            Event::Checkpoint { iteration } => {
                output::event(self.ctx, "checkpoint", || json!({ "iteration": iteration }));
                self.ctx.log(Level::Debug, format!("checkpoint after iteration {iteration}"));
            }
            _ => (),
        }
    }

    fn stop(&mut self) -> Option<u8> {
        interrupt::requested().map(Signal::number)
    }

    fn conclude(&mut self, outcome: &Outcome) -> Result<()> {
        let summary = Summary::of(outcome);
        output::event(self.ctx, "finished", || {
            json!({
                "reason": summary.reason,
                "iterations": summary.iterations,
                "seconds": summary.seconds,
                "psnr_db": summary.after.map(|quality| quality.psnr_db),
                "files": summary.files,
                "per_rank": summary.per_rank,
            })
        });
        self.summary = Some(Box::new(summary));
        Ok(())
    }
}
