//! Which weights exist already: plans of one network share those that they use in the same form.
//!
//! Nothing is kept alive from here: weights go with the last plan that uses them, and a network's entry with the network.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::cost::Method;
use super::weights::{Shared, Weights};
use crate::network::{Network, Node};

/// The weights of all networks that an engine has planned.
#[derive(Default)]
pub(crate) struct Stock {
    /// A weak pointer keeps its address from being used again, so equal addresses mean the same network.
    shelves: Mutex<Vec<(Weak<[Node]>, Shelf)>>,
}

/// The weights of one network.
#[derive(Clone, Default)]
pub(crate) struct Shelf(Arc<Mutex<HashMap<(String, Method), Shared>>>);

impl Stock {
    /// The weights of this network. Networks that are gone are forgotten.
    pub(crate) fn shelf(&self, network: &Network) -> Shelf {
        let wanted = Arc::downgrade(&network.nodes);
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.retain(|(network, _)| network.strong_count() > 0);
        if let Some((_, shelf)) = shelves.iter().find(|(network, _)| network.ptr_eq(&wanted)) {
            return shelf.clone();
        }
        let shelf = Shelf::default();
        shelves.push((wanted, shelf.clone()));
        shelf
    }
}

impl fmt::Debug for Stock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stock").finish_non_exhaustive()
    }
}

impl Shelf {
    /// Nobody else plans the network meanwhile, so that two who want the same weights do not both make them.
    pub(crate) fn open(&self) -> OpenShelf<'_> {
        OpenShelf(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A shelf that one planner uses.
pub(crate) struct OpenShelf<'a>(MutexGuard<'a, HashMap<(String, Method), Shared>>);

impl OpenShelf<'_> {
    /// The weights of a step for a method.
    pub(crate) fn get(&self, step: &str, method: Method) -> Option<Weights> {
        self.0.get(&(step.to_owned(), method))?.get()
    }

    /// Offers weights, which are filled before the shelf is closed, to others.
    pub(crate) fn put(&mut self, step: &str, method: Method, weights: &Weights) {
        self.0.insert((step.to_owned(), method), weights.into());
    }

    /// Forgets what is gone.
    pub(crate) fn tidy(&mut self) {
        self.0.retain(|_, weights| weights.is_alive());
    }
}
