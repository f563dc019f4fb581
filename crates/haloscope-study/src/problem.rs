//! The problems of studies: those of `haloscope init` and `haloscope demo` that have several operators, at any size.

pub use haloscope_job::Problem;

use crate::error::{Error, Result};

/// The problems that studies reconstruct.
pub const PROBLEMS: [Problem; 4] =
    [Problem::Deblur, Problem::Tomography2d, Problem::Tomography3d, Problem::SuperResolution];

/// How often the problems have been defined anew. Rows of different definitions are not for one folder.
pub(crate) const DEFINITION: u32 = 2;

/// The problem of a name, or of what it was called before.
pub fn named(name: &str) -> Result<Problem> {
    let problem = Problem::named(name).filter(|problem| PROBLEMS.contains(problem));
    problem.ok_or_else(|| {
        let names: Vec<&str> = PROBLEMS.iter().map(|problem| problem.name()).collect();
        let what = match Problem::named(name) {
            Some(Problem::Mri | Problem::Radio) => "is not measured by studies",
            Some(_) => "has one operator, which ranks cannot share",
            None => "is unknown",
        };
        Error::argument("problem", format!("`{name}` {what}; there are {}", names.join(", ")))
    })
}

/// The sides of a problem's image at a size. In a weak study one of them is as many times longer as there are ranks: the
/// rows of a picture, and the axis of a scan's rotation.
#[must_use]
pub fn sides(problem: Problem, size: usize, stretch: usize) -> Vec<usize> {
    let mut sides = problem.sides(size);
    let longer = if sides.len() == 3 { 0 } else { sides.len() - 1 };
    sides[longer] *= stretch;
    sides
}

/// Refuses sizes and numbers of operators that a problem does not have.
pub(crate) fn check(problem: Problem, sides: &[usize], operators: usize) -> Result<()> {
    let axes = problem.sides(1).len();
    if sides.len() != axes || sides.iter().any(|side| !(8..=1 << 20).contains(side)) {
        let reason = format!("sides of {sides:?}; {problem} takes {axes} from 8 to 1048576");
        return Err(Error::argument("size", reason));
    }
    let most = problem.most_operators();
    if !(1..=most).contains(&operators) {
        let reason = format!("{operators} were asked for; {problem} can have 1 to {most}");
        return Err(Error::argument("operators", reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_jobs_and_old_ones_are_known() {
        for problem in PROBLEMS {
            assert_eq!(named(problem.name()).expect("a problem"), problem);
        }
        assert_eq!(named("highres-color").expect("its old name"), Problem::Deblur);
        for (name, words) in [
            ("sonar", "`sonar` is unknown"),
            ("denoise", "has one operator"),
            ("mri", "is not measured by studies"),
        ] {
            let error = named(name).expect_err("refused").to_string();
            assert!(error.contains(words) && error.contains("tomography-3d"), "{error}");
        }
    }

    #[test]
    fn bad_sizes_and_counts_say_what_would_be_accepted() {
        for (sides, operators, words) in
            [(&[4, 4][..], 8, "from 8"), (&[8, 8, 8], 8, "takes 2"), (&[64, 64], 61, "1 to 60")]
        {
            let error = check(Problem::Tomography2d, sides, operators).expect_err("refused");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
