//! The names of problems on the command line.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use haloscope_job::Problem;

/// A problem as an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProblemArgument(pub Problem);

impl ValueEnum for ProblemArgument {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [ProblemArgument; Problem::ALL.len()] = {
            let mut all = [ProblemArgument(Problem::Deblur); Problem::ALL.len()];
            let mut index = 0;
            while index < all.len() {
                all[index] = ProblemArgument(Problem::ALL[index]);
                index += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.describe()))
    }
}
