//! Arrays of a state that are on some ranks only, brought to the first rank, which writes them.

use std::borrow::Cow;

use haloscope_comm::{Collectives, Context};
use ndarray::IxDyn;

use crate::array::{Array, slice_mut};
use crate::error::Result;
use crate::image::Image;
use crate::solve::State;

/// The state with the arrays of all ranks, on the first rank; on the others it stays as it is. All ranks call it.
pub(super) fn complete<'a>(ctx: &Context, state: &'a State) -> Result<Cow<'a, State>> {
    if ctx.size() == 1 {
        return Ok(Cow::Borrowed(state));
    }
    let names: Vec<&str> = state.arrays.keys().map(String::as_str).collect();
    let lists = ctx.comm().all_gather(names.join("\0").as_bytes())?;
    let names = |list: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(list).into_owned();
        text.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let mut completed = Cow::Borrowed(state);
    let mut known = names(&lists[0]);
    for (rank, list) in lists.iter().enumerate().skip(1) {
        for name in names(list) {
            if known.contains(&name) {
                continue;
            }
            let array = bring(ctx, rank, state.arrays.get(&name).map(Image::local))?;
            if ctx.is_root() {
                completed.to_mut().arrays.insert(name.clone(), array.into());
            }
            known.push(name);
        }
    }
    Ok(completed)
}

/// The array that `owner` has.
fn bring(ctx: &Context, owner: usize, array: Option<&Array>) -> Result<Array> {
    let shape = array.map(|array| array.shape().iter().map(|size| *size as u64).collect());
    let mut shape: Vec<u64> = shape.unwrap_or_default();
    ctx.comm().broadcast_list(owner, &mut shape)?;
    let shape: Vec<usize> = shape.into_iter().map(|size| size as usize).collect();
    let mut array = match array {
        Some(array) if ctx.rank() == owner => array.as_standard_layout().into_owned(),
        _ => Array::zeros(IxDyn(&shape)),
    };
    ctx.comm().broadcast(owner, slice_mut(&mut array))?;
    Ok(array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn the_first_rank_gets_what_it_lacks_and_keeps_what_it_has() {
        let states = Context::threads(3, |ctx| {
            let mut state = State::new(Array::zeros(vec![1, 1, 2]));
            let of_rank = |rank: usize| Array::from_elem(vec![1, rank + 1], rank as f32);
            state.arrays.insert("common".into(), of_rank(7).into());
            for part in [ctx.rank(), ctx.rank() + 3] {
                state.arrays.insert(format!("part {part}"), of_rank(part).into());
            }
            Ok::<_, Error>((state.clone(), complete(ctx, &state)?.into_owned()))
        });
        let states = states.expect("no rank fails");
        let (_, first) = &states[0];
        assert_eq!(first.arrays.len(), 7);
        assert_eq!(first.arrays["part 5"].local(), Array::from_elem(vec![1, 6], 5.0));
        assert!(states[1..].iter().all(|(before, after)| before == after));
    }
}
