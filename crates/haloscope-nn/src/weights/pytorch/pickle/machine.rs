//! The stack machine: one method for each kind of instruction.
//!
//! What the few known functions return is in [`calls`](super::calls).

use std::collections::HashMap;
use std::sync::Arc;

use super::Code;
use super::bytes::Bytes;
use super::value::{Claim, Container, Value};
use crate::weights::fault::{Fault, Outcome};

/// The stack machine.
pub(super) struct Machine<'a> {
    pub(super) code: Bytes<'a>,
    stack: Vec<Value>,
    /// The height of the stack at each mark.
    marks: Vec<usize>,
    memo: HashMap<u64, Value>,
    pub(super) arena: Vec<Container>,
    pub(super) claims: HashMap<Arc<str>, Claim>,
    /// How many axes a tensor may have.
    pub(super) axes: usize,
}

impl<'a> Machine<'a> {
    pub(super) fn new(code: Code<'a>, axes: usize) -> Self {
        Self {
            code: Bytes::new(code),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            arena: Vec::new(),
            claims: HashMap::new(),
            axes,
        }
    }

    /// Follows one instruction.
    pub(super) fn step(&mut self, opcode: u8) -> Outcome<()> {
        match opcode {
            // Protocol and frame: nothing to do.
            0x80 => {
                let protocol = self.code.byte()?;
                if !(2..=5).contains(&protocol) {
                    return Err(Fault::content(format!("protocol {protocol}; 2 to 5 are read")));
                }
            }
            0x95 => {
                self.code.number::<8>()?;
            }

            // The stack.
            b'(' => self.marks.push(self.stack.len()),
            b'0' => {
                self.pop()?;
            }
            // The second adds to a set, which is opaque: sets hold no tensors that have a name.
            b'1' | 0x90 => {
                self.pop_to_mark()?;
            }
            b'2' => {
                let top = self.pop()?;
                self.stack.extend([top.clone(), top]);
            }

            // Plain values.
            b'N' => self.stack.push(Value::None),
            0x88 | 0x89 => self.stack.push(Value::Bool),
            b'K' => self.push_int::<1>()?,
            b'M' => self.push_int::<2>()?,
            b'J' => {
                let raw = self.code.array::<4>()?;
                self.stack.push(Value::Int(i32::from_le_bytes(raw).into()));
            }
            0x8a => self.push_long::<1>()?,
            0x8b => self.push_long::<4>()?,
            b'G' => {
                self.code.array::<8>()?;
                self.stack.push(Value::Opaque);
            }
            // The second of two is a string of Python 2, which the name of a parameter may be.
            0x8c | b'U' => self.push_text::<1>()?,
            b'X' | b'T' => self.push_text::<4>()?,
            0x8d => self.push_text::<8>()?,
            b'C' => self.skip_bytes::<1>()?,
            b'B' => self.skip_bytes::<4>()?,
            0x8e | 0x96 => self.skip_bytes::<8>()?,

            // Containers.
            b']' | b')' => self.push_sequence(Vec::new()),
            b'}' => self.push_dictionary(Vec::new()),
            b'l' | b't' => {
                let items = self.pop_to_mark()?;
                self.push_sequence(items);
            }
            0x85..=0x87 => {
                let count = usize::from(opcode - 0x84);
                let items = self.pop_many(count)?;
                self.push_sequence(items);
            }
            b'd' => {
                let items = self.pop_to_mark()?;
                let items = pairs(items)?;
                self.push_dictionary(items);
            }
            b'a' => {
                let item = self.pop()?;
                self.extend_sequence([item])?;
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.extend_sequence(items)?;
            }
            b's' => {
                let items = self.pop_many(2)?;
                self.extend_dictionary(items)?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.extend_dictionary(items)?;
            }
            0x8f => self.stack.push(Value::Opaque),
            0x91 => {
                self.pop_to_mark()?;
                self.stack.push(Value::Opaque);
            }

            _ => return self.step_memo_and_calls(opcode),
        }
        Ok(())
    }

    fn step_memo_and_calls(&mut self, opcode: u8) -> Outcome<()> {
        match opcode {
            b'h' => self.recall::<1>()?,
            b'j' => self.recall::<4>()?,
            b'q' => {
                let place = self.code.number::<1>()?;
                self.remember(place)?;
            }
            b'r' => {
                let place = self.code.number::<4>()?;
                self.remember(place)?;
            }
            0x94 => self.remember(self.memo.len() as u64)?,

            // Names of classes and functions.
            b'c' => {
                let (module, name) = (self.code.line()?, self.code.line()?);
                self.stack.push(Value::Global(format!("{module}.{name}").into()));
            }
            0x93 => {
                let value = match &self.pop_many(2)?[..] {
                    [Value::Text(module), Value::Text(name)] => {
                        Value::Global(format!("{module}.{name}").into())
                    }
                    _ => Value::Opaque,
                };
                self.stack.push(value);
            }
            0x82..=0x84 => {
                self.code.take(1 << (opcode - 0x82))?;
                self.stack.push(Value::Opaque);
            }

            // Calls and objects.
            b'R' | 0x81 => {
                let arguments = self.pop()?;
                let callee = self.pop()?;
                let value = self.call(&callee, &arguments);
                self.stack.push(value);
            }
            0x92 => {
                self.pop_many(3)?;
                self.stack.push(Value::Opaque);
            }
            b'o' => {
                self.pop_to_mark()?;
                self.stack.push(Value::Opaque);
            }
            b'i' => {
                self.code.line()?;
                self.code.line()?;
                self.pop_to_mark()?;
                self.stack.push(Value::Opaque);
            }
            // The state of an object: attributes, which nothing here has.
            b'b' => {
                self.pop()?;
            }
            b'Q' => {
                let reference = self.pop()?;
                let value = self.storage(&reference);
                self.stack.push(value);
            }
            _ => {
                return Err(Fault::content(format!(
                    "{opcode:#04x} is no instruction of a pickle of protocol 2 to 5"
                )));
            }
        }
        Ok(())
    }

    fn push_sequence(&mut self, items: Vec<Value>) {
        self.arena.push(Container::Sequence(items));
        self.stack.push(Value::Container(self.arena.len() - 1));
    }

    fn push_dictionary(&mut self, items: Vec<(Value, Value)>) {
        self.arena.push(Container::Dictionary(items));
        self.stack.push(Value::Container(self.arena.len() - 1));
    }

    /// Adds to the list on top of the stack.
    fn extend_sequence(&mut self, items: impl IntoIterator<Item = Value>) -> Outcome<()> {
        if let Value::Container(place) = *self.top()?
            && let Container::Sequence(list) = &mut self.arena[place]
        {
            list.extend(items);
        }
        Ok(())
    }

    /// Adds to the dictionary on top of the stack.
    fn extend_dictionary(&mut self, items: Vec<Value>) -> Outcome<()> {
        let items = pairs(items)?;
        if let Value::Container(place) = *self.top()?
            && let Container::Dictionary(list) = &mut self.arena[place]
        {
            list.extend(items);
        }
        Ok(())
    }

    fn top(&self) -> Outcome<&Value> {
        self.stack.last().ok_or_else(|| Fault::content("nothing is on its stack"))
    }

    pub(super) fn pop(&mut self) -> Outcome<Value> {
        // Nothing may be taken from below the last mark.
        if self.marks.last().is_some_and(|mark| self.stack.len() <= *mark) {
            return Err(Fault::content("nothing is above its last mark"));
        }
        self.stack.pop().ok_or_else(|| Fault::content("nothing is on its stack"))
    }

    fn pop_many(&mut self, count: usize) -> Outcome<Vec<Value>> {
        let mut items: Vec<Value> = (0..count).map(|_| self.pop()).collect::<Outcome<_>>()?;
        items.reverse();
        Ok(items)
    }

    fn pop_to_mark(&mut self) -> Outcome<Vec<Value>> {
        let mark = self.marks.pop().ok_or_else(|| Fault::content("no mark is on its stack"))?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn remember(&mut self, place: u64) -> Outcome<()> {
        let top = self.top()?.clone();
        self.memo.insert(place, top);
        Ok(())
    }

    fn recall<const N: usize>(&mut self) -> Outcome<()> {
        let place = self.code.number::<N>()?;
        let value = self
            .memo
            .get(&place)
            .ok_or_else(|| Fault::content(format!("nothing was remembered as {place}")))?;
        self.stack.push(value.clone());
        Ok(())
    }

    fn push_int<const N: usize>(&mut self) -> Outcome<()> {
        let value = i64::try_from(self.code.number::<N>()?).unwrap_or(i64::MAX);
        self.stack.push(Value::Int(value));
        Ok(())
    }

    /// An integer of any length; one that does not fit is of no use here.
    fn push_long<const N: usize>(&mut self) -> Outcome<()> {
        let raw = self.code.counted::<N>()?;
        let negative = raw.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        self.stack.push(match wide.get_mut(..raw.len()) {
            Some(low) => {
                low.copy_from_slice(raw);
                Value::Int(i64::from_le_bytes(wide))
            }
            None => Value::Opaque,
        });
        Ok(())
    }

    fn push_text<const N: usize>(&mut self) -> Outcome<()> {
        let raw = self.code.counted::<N>()?;
        let value = std::str::from_utf8(raw).map_or(Value::Opaque, |text| Value::Text(text.into()));
        self.stack.push(value);
        Ok(())
    }

    fn skip_bytes<const N: usize>(&mut self) -> Outcome<()> {
        self.code.counted::<N>()?;
        self.stack.push(Value::Opaque);
        Ok(())
    }
}

/// Keys and values in turn.
fn pairs(items: Vec<Value>) -> Outcome<Vec<(Value, Value)>> {
    if items.len() % 2 == 1 {
        return Err(Fault::content("a key without a value"));
    }
    let mut items = items.into_iter();
    Ok(std::iter::from_fn(|| Some((items.next()?, items.next()?))).collect())
}
