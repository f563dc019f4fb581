//! What the ranks of one process have in common, so that it exists once: large tables, the weights of a network.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A value that exists as long as a rank holds it.
type Slot = Arc<Mutex<Weak<dyn Any + Send + Sync>>>;

/// The ranks of one process and what they share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) ranks: usize,
    slots: Arc<Mutex<HashMap<(TypeId, String), Slot>>>,
}

impl Common {
    pub(crate) fn of(ranks: usize) -> Self {
        Self { ranks, slots: Arc::default() }
    }

    /// The value of this name and type, made by the first that asks while the others wait for it.
    pub(crate) fn get<T: Any + Send + Sync, E>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let key = (TypeId::of::<T>(), name.to_owned());
        let slot = lock(&self.slots).entry(key).or_insert_with(empty::<T>).clone();
        let mut slot = lock(&slot);
        if let Some(value) = slot.upgrade() {
            return Ok(value.downcast().expect("the type is part of the key"));
        }
        let value = Arc::new(make()?);
        let weak: Weak<T> = Arc::downgrade(&value);
        *slot = weak;
        Ok(value)
    }
}

fn empty<T: Any + Send + Sync>() -> Slot {
    let nothing: Weak<T> = Weak::new();
    Arc::new(Mutex::new(nothing))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::{Collectives, Context, Error};

    #[test]
    fn thread_ranks_make_a_value_once_and_again_when_nobody_has_it() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let make = |ctx: &Context| {
            ctx.share("table", || Ok::<_, Error>(MADE.fetch_add(1, Ordering::SeqCst)))
        };
        let values = Context::threads(4, move |ctx| {
            assert_eq!(ctx.process_size(), 4);
            let first = make(ctx)?;
            ctx.comm().barrier()?;
            let other = ctx.share("table", || Ok::<_, Error>(true))?;
            assert!(*other, "another type is another value");
            let seen = *first;
            drop(first);
            ctx.comm().barrier()?;
            let second = make(ctx)?;
            ctx.comm().barrier()?;
            Ok::<_, Error>((seen, *second))
        })
        .expect("no rank fails");
        assert_eq!(values, [(0, 1); 4]);
    }

    #[test]
    fn a_value_that_cannot_be_made_is_an_error_where_it_was_tried() {
        let ctx = Context::solo();
        assert_eq!(ctx.share("table", || Err::<u8, _>("no file")), Err("no file"));
        assert_eq!(ctx.share("table", || Ok::<u8, &str>(3)).as_deref(), Ok(&3));
        assert_eq!(ctx.process_size(), 1);
    }
}
