//! Interprets the pickle of a checkpoint without running any of it.
//!
//! A pickle is a program for a stack machine that may call any function of Python. This machine
//! knows `OrderedDict`, `torch.Size` and the functions that rebuild tensors and parameters; every
//! other call, and every object of another class, becomes [`Value::Opaque`], which absorbs what is
//! done to it. Containers live in an arena and refer to each other by index, so that a pickle can
//! tie knots but not leak or exhaust the call stack. Each instruction makes at most one object, and
//! their number is limited.

mod bytes;
mod calls;
mod machine;
#[cfg(test)]
mod tests;
mod value;
mod walk;

use std::collections::HashMap;
use std::sync::Arc;

use crate::weights::fault::{Fault, Outcome};
use crate::weights::limits::Limits;
use machine::Machine;
pub(super) use value::{Claim, Layout, Storage, element_bytes};
use value::{Container, Value};
use walk::Walk;

/// Bytes with a pickle in them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code<'a> {
    pub bytes: &'a [u8],
    /// Where the pickle begins.
    pub start: usize,
    /// Whether the file goes on after these bytes, which are as many as are allowed.
    pub more: bool,
}

impl<'a> Code<'a> {
    /// Bytes that are a pickle.
    pub(super) fn whole(bytes: &'a [u8]) -> Self {
        Self { bytes, start: 0, more: false }
    }
}

/// What a pickle made.
#[derive(Debug)]
pub(super) struct Pickle {
    arena: Vec<Container>,
    root: Value,
    claims: HashMap<Arc<str>, Claim>,
    end: usize,
}

impl Pickle {
    /// Interprets a pickle of protocol 2 to 5.
    pub(super) fn interpret(code: Code<'_>, limits: &Limits) -> Outcome<Self> {
        let mut machine = Machine::new(code, limits.axes);
        let mut steps = 0;
        loop {
            let start = machine.code.at();
            let opcode = machine.code.byte()?;
            if opcode == b'.' {
                let root = machine.pop()?;
                let Machine { arena, claims, code, .. } = machine;
                return Ok(Self { arena, root, claims, end: code.at() });
            }
            machine.step(opcode).map_err(|fault| match fault {
                Fault::Content(reason) => {
                    Fault::Content(format!("its pickle, at byte {start}: {reason}"))
                }
                other => other,
            })?;
            steps += 1;
            if steps > limits.objects {
                return Err(too_many("instructions", limits.objects));
            }
        }
    }

    /// Where the bytes after the pickle begin.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// The whole number that the pickle is, if it is one.
    pub(super) fn number(&self) -> Option<i64> {
        match self.root {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    /// The list of names that the pickle is, if it is one.
    pub(super) fn names(&self) -> Option<Vec<Arc<str>>> {
        let Value::Container(place) = self.root else { return None };
        let Container::Sequence(items) = &self.arena[place] else { return None };
        let name = |item: &Value| match item {
            Value::Text(name) => Some(name.clone()),
            _ => None,
        };
        items.iter().map(name).collect()
    }

    /// What the pickle says about the storage of this name.
    pub(super) fn claim(&self, key: &str) -> Option<&Claim> {
        self.claims.get(key)
    }

    /// All tensors with the path of keys and positions to each, joined by dots.
    pub(super) fn tensors(&self, limits: &Limits) -> Outcome<Vec<(String, Arc<Layout>)>> {
        let mut walk = Walk::new(&self.arena, limits);
        walk.visit(&self.root, 0)?;
        Ok(walk.found)
    }
}

fn too_many(what: &str, most: usize) -> Fault {
    Fault::Limit(format!("its pickle has more than {most} {what}, which is what is allowed"))
}
