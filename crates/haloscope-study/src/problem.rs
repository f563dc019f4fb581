//! The problems of studies: those of `haloscope init` and `haloscope demo` that have several operators, at any size.

use std::fmt;
use std::str::FromStr;

pub use haloscope_job::Problem;

use crate::error::{Error, Result};

/// The size of an image: one number for all of its sides, or each of them, the depth of a volume first.
///
/// ```
/// use haloscope_study::problem::{Problem, Size, sides};
///
/// let photograph: Size = "2048x1366".parse()?;
/// assert_eq!(sides(Problem::Deblur, &photograph, 1)?, [2048, 1366]);
/// assert_eq!(sides(Problem::Deblur, &64.into(), 1)?, [64, 64]);
/// # Ok::<(), haloscope_study::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Size(Vec<usize>);

impl Size {
    /// Of an image with these sides.
    #[must_use]
    pub fn of_sides(sides: Vec<usize>) -> Self {
        Self(sides)
    }
}

impl From<usize> for Size {
    fn from(side: usize) -> Self {
        Self(vec![side])
    }
}

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let sides: Option<Vec<usize>> = text.split('x').map(|side| side.parse().ok()).collect();
        match sides {
            Some(sides) if sides.len() <= 3 && !sides.contains(&0) => Ok(Self(sides)),
            _ => Err(Error::argument(
                "size",
                format!("`{text}`; one number or each side is accepted, as in 512 or 2048x1366"),
            )),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&haloscope_job::words::sides(&self.0))
    }
}

/// The problems that studies reconstruct.
pub const PROBLEMS: [Problem; 4] =
    [Problem::Deblur, Problem::Tomography2d, Problem::Tomography3d, Problem::SuperResolution];

/// How often the problems have been defined anew. Rows of different definitions are not for one folder.
pub(crate) const DEFINITION: u32 = 2;

/// The same of problems that are compared with other systems, which start from zeros since the third.
pub(crate) const COMPARED: u32 = 3;

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
pub fn sides(problem: Problem, size: &Size, stretch: usize) -> Result<Vec<usize>> {
    let mut sides = match &size.0[..] {
        [side] => problem.sides(*side),
        sides => sides.to_vec(),
    };
    let axes = problem.sides(1).len();
    if sides.len() != axes {
        let reason = format!("{size}; {problem} takes one number or {axes} sides");
        return Err(Error::argument("size", reason));
    }
    let longer = if axes == 3 { 0 } else { axes - 1 };
    sides[longer] = sides[longer].saturating_mul(stretch);
    Ok(sides)
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
    fn sizes_are_one_number_or_all_sides() {
        let of =
            |problem, text: &str| text.parse::<Size>().and_then(|size| sides(problem, &size, 2));
        assert_eq!(of(Problem::Deblur, "2048x1366").expect("sides"), [2048, 2732]);
        assert_eq!(of(Problem::Tomography3d, "16x8x8").expect("sides"), [32, 8, 8]);
        assert_eq!("2048x1366".parse::<Size>().expect("a size").to_string(), "2048x1366");
        for (text, words) in [("64x", "`64x`"), ("0", "`0`"), ("8x8x8", "takes one number or 2")] {
            let error = of(Problem::Deblur, text).expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
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
