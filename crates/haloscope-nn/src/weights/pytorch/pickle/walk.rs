//! Finds the tensors in what a pickle made, and names each by the path to it.
//!
//! Containers and keys may be shared, so that a small pickle can hold many paths and long ones: what
//! is visited and what is written are both limited.

use std::sync::Arc;

use super::too_many;
use super::value::{Container, Layout, Value};
use crate::weights::fault::Outcome;
use crate::weights::limits::Limits;

/// A walk along all paths.
pub(super) struct Walk<'a> {
    arena: &'a [Container],
    limits: &'a Limits,
    path: String,
    visits: usize,
    /// Bytes of paths so far.
    written: u64,
    pub(super) found: Vec<(String, Arc<Layout>)>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(arena: &'a [Container], limits: &'a Limits) -> Self {
        Self { arena, limits, path: String::new(), visits: 0, written: 0, found: Vec::new() }
    }

    /// Looks for tensors in a value that is inside of `depth` containers.
    pub(super) fn visit(&mut self, value: &Value, depth: usize) -> Outcome<()> {
        self.visits += 1;
        if self.visits > self.limits.objects {
            return Err(too_many("objects", self.limits.objects));
        }
        match value {
            Value::Tensor(layout) => {
                if self.found.len() >= self.limits.tensors {
                    return Err(too_many("tensors", self.limits.tensors));
                }
                self.write(self.path.len())?;
                let name = if self.path.is_empty() { "tensor" } else { self.path.as_str() };
                self.found.push((name.to_owned(), layout.clone()));
            }
            Value::Container(place) => {
                if depth >= self.limits.depth {
                    return Err(too_many("containers within containers", self.limits.depth));
                }
                let arena = self.arena;
                match &arena[*place] {
                    Container::Sequence(items) => {
                        for (index, item) in items.iter().enumerate() {
                            self.enter(&index.to_string(), item, depth)?;
                        }
                    }
                    Container::Dictionary(items) => {
                        for (key, item) in items {
                            match key {
                                Value::Text(key) => self.enter(key, item, depth)?,
                                Value::Int(key) => self.enter(&key.to_string(), item, depth)?,
                                _ => {}
                            }
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self, key: &str, value: &Value, depth: usize) -> Outcome<()> {
        self.write(key.len())?;
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        let result = self.visit(value, depth + 1);
        self.path.truncate(length);
        result
    }

    /// Counts bytes of a path before they are written.
    fn write(&mut self, bytes: usize) -> Outcome<()> {
        self.written += bytes as u64;
        if self.written > self.limits.header_bytes {
            let most = usize::try_from(self.limits.header_bytes).unwrap_or(usize::MAX);
            return Err(too_many("bytes in the names of its tensors", most));
        }
        Ok(())
    }
}
