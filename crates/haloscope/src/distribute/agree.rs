//! One outcome for all ranks.
//!
//! Where a rank may fail on its own (an operator that does not fit, a file that is not there), the ranks
//! tell each other before anyone waits for it. It costs a message of a byte, and each rank returns an
//! error then, instead of all but one waiting for a deadline.

use haloscope_comm::{Collectives, Context};

use crate::error::{Error, Result};

/// `outcome`, if all ranks have succeeded; else the error of this rank, or of the first that failed. All ranks call it.
///
/// ```
/// use haloscope::Error;
/// use haloscope::distribute::agree;
/// use haloscope_comm::Context;
///
/// let errors = Context::threads(2, |ctx| {
///     let file = if ctx.rank() == 1 { Err(Error::argument("file", "not there")) } else { Ok(()) };
///     Ok::<_, Error>(agree(ctx, file).expect_err("on both").to_string())
/// })?;
/// assert_eq!(errors, ["rank 1: file: not there", "file: not there"]);
/// # Ok::<(), Error>(())
/// ```
pub fn agree<T>(ctx: &Context, outcome: Result<T>) -> Result<T> {
    if ctx.size() == 1 {
        return outcome;
    }
    // A failed call between ranks is known to all of them already.
    if let Err(Error::Ranks(_)) = &outcome {
        return outcome;
    }
    let mut failed = vec![0_u8; ctx.size()];
    let mine = [u8::from(outcome.is_err())];
    // Ranks that know of the failure may be gone before this one has heard of theirs; its own error is the one that says why.
    if let Err(error) = ctx.comm().all_gather_into(&mine, &vec![1; ctx.size()], &mut failed) {
        return outcome.and(Err(error.into()));
    }
    let Some(first) = failed.iter().position(|failed| *failed != 0) else {
        return outcome;
    };
    let mut message = match &outcome {
        Err(error) => error.to_string().into_bytes(),
        Ok(_) => Vec::new(),
    };
    if let Err(error) = ctx.comm().broadcast_list(first, &mut message) {
        return outcome.and(Err(error.into()));
    }
    let reason = String::from_utf8_lossy(&message).into_owned();
    outcome.and(Err(Error::OnRank { rank: first, reason }))
}

/// Runs `work` on rank 0, for as long as it takes, while the other ranks wait; if it fails, all ranks get the error. All ranks
/// call it. Rank 0 gets what the work returns, the others get `None`.
///
/// ```
/// use haloscope::Error;
/// use haloscope::distribute::agree_on_root;
/// use haloscope_comm::Context;
///
/// let errors = Context::threads(2, |ctx| {
///     let write = || Err::<(), _>(Error::argument("file", "the disk is full"));
///     Ok::<_, Error>(agree_on_root(ctx, write).expect_err("on both").to_string())
/// })?;
/// assert_eq!(errors, ["file: the disk is full", "rank 0: file: the disk is full"]);
/// # Ok::<(), Error>(())
/// ```
pub fn agree_on_root<T>(ctx: &Context, work: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
    let outcome = ctx.comm().on_root(work)?;
    agree(ctx, outcome.transpose())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_that_fails_fails_all_with_its_reason() {
        let errors = Context::threads(3, |ctx| {
            let outcome = match ctx.rank() {
                1 => Err(Error::argument("blur", "no kernel")),
                _ => Ok(ctx.rank()),
            };
            let error = agree(ctx, outcome).expect_err("rank 1 has failed").to_string();
            // Communication goes on.
            assert_eq!(agree(ctx, Ok(7)), Ok(7));
            Ok::<_, Error>(error)
        });
        let errors = errors.expect("no rank fails");
        assert_eq!(
            errors,
            ["rank 1: blur: no kernel", "blur: no kernel", "rank 1: blur: no kernel"]
        );
    }
}
