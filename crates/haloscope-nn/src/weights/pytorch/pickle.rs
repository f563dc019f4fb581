//! Interprets the pickle of a checkpoint without running any of it.
//!
//! A pickle is a program for a stack machine that may call any function of Python. This machine
//! knows `OrderedDict`, `torch.Size` and the functions that rebuild tensors and parameters; every
//! other call, and every object of another class, becomes [`Value::Opaque`], which absorbs what is
//! done to it. Containers live in an arena and refer to each other by index, so that a pickle can
//! tie knots but not leak or exhaust the call stack. Each instruction makes at most one object, and
//! their number is limited.

use std::collections::HashMap;
use std::sync::Arc;

use crate::weights::element::Element;
use crate::weights::fault::{Fault, Outcome};
use crate::weights::limits::Limits;

/// The raw numbers that tensors are views of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    /// The name of the entry in the archive.
    pub key: Arc<str>,
    pub element: Element,
    /// How many numbers it has.
    pub count: usize,
}

/// A tensor: a view of a storage.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub storage: Storage,
    pub offset: usize,
    pub sizes: Vec<usize>,
    pub strides: Vec<usize>,
}

/// What a pickle made.
#[derive(Debug)]
pub(super) struct Pickle {
    arena: Vec<Container>,
    root: Value,
}

#[derive(Clone, Debug)]
enum Value {
    None,
    Bool,
    Int(i64),
    Text(Arc<str>),
    /// A class or function, by module and name.
    Global(Arc<str>),
    /// A list, tuple or dictionary, by its place in the arena.
    Container(usize),
    Storage(Storage),
    Tensor(Arc<Layout>),
    /// Anything else.
    Opaque,
}

#[derive(Debug)]
enum Container {
    /// A list or a tuple.
    Sequence(Vec<Value>),
    Dictionary(Vec<(Value, Value)>),
}

impl Pickle {
    /// Interprets a pickle of protocol 2 to 5.
    pub(super) fn interpret(bytes: &[u8], limits: &Limits) -> Outcome<Self> {
        let mut machine = Machine {
            code: bytes,
            at: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            arena: Vec::new(),
            axes: limits.axes,
        };
        let mut steps = 0;
        loop {
            let start = machine.at;
            let opcode = machine.byte()?;
            if opcode == b'.' {
                let root = machine.pop()?;
                return Ok(Self { arena: machine.arena, root });
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

    /// All tensors with the path of keys and positions to each, joined by dots.
    pub(super) fn tensors(&self, limits: &Limits) -> Outcome<Vec<(String, Arc<Layout>)>> {
        let mut found = Vec::new();
        let mut visits = 0;
        self.collect(&self.root, &mut String::new(), 0, limits, &mut visits, &mut found)?;
        Ok(found)
    }

    fn collect(
        &self,
        value: &Value,
        path: &mut String,
        depth: usize,
        limits: &Limits,
        visits: &mut usize,
        found: &mut Vec<(String, Arc<Layout>)>,
    ) -> Outcome<()> {
        // Shared containers are visited once for each path, so the arena's size is no bound.
        *visits += 1;
        if *visits > limits.objects {
            return Err(too_many("objects", limits.objects));
        }
        match value {
            Value::Tensor(layout) => {
                if found.len() >= limits.tensors {
                    return Err(too_many("tensors", limits.tensors));
                }
                let name = if path.is_empty() { "tensor" } else { path.as_str() };
                found.push((name.to_owned(), layout.clone()));
            }
            Value::Container(place) => {
                if depth >= limits.depth {
                    return Err(too_many("containers within containers", limits.depth));
                }
                let mut enter = |key: &str, value: &Value| {
                    let length = path.len();
                    if length > 0 {
                        path.push('.');
                    }
                    path.push_str(key);
                    let result = self.collect(value, path, depth + 1, limits, visits, found);
                    path.truncate(length);
                    result
                };
                match &self.arena[*place] {
                    Container::Sequence(items) => {
                        for (index, item) in items.iter().enumerate() {
                            enter(&index.to_string(), item)?;
                        }
                    }
                    Container::Dictionary(items) => {
                        for (key, item) in items {
                            match key {
                                Value::Text(key) => enter(key, item)?,
                                Value::Int(key) => enter(&key.to_string(), item)?,
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
}

/// The stack machine.
struct Machine<'a> {
    code: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// The height of the stack at each mark.
    marks: Vec<usize>,
    memo: HashMap<u64, Value>,
    arena: Vec<Container>,
    axes: usize,
}

impl<'a> Machine<'a> {
    fn step(&mut self, opcode: u8) -> Outcome<()> {
        match opcode {
            // Protocol and frame: nothing to do.
            0x80 => {
                let protocol = self.byte()?;
                if !(2..=5).contains(&protocol) {
                    return Err(Fault::content(format!("protocol {protocol}; 2 to 5 are read")));
                }
            }
            0x95 => {
                self.number::<8>()?;
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
                let raw = self.array::<4>()?;
                self.stack.push(Value::Int(i32::from_le_bytes(raw).into()));
            }
            0x8a => self.push_long::<1>()?,
            0x8b => self.push_long::<4>()?,
            b'G' => {
                self.array::<8>()?;
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
                let place = self.number::<1>()?;
                self.remember(place)?;
            }
            b'r' => {
                let place = self.number::<4>()?;
                self.remember(place)?;
            }
            0x94 => self.remember(self.memo.len() as u64)?,

            // Names of classes and functions.
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
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
                self.take(1 << (opcode - 0x82))?;
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
                self.line()?;
                self.line()?;
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

    /// The result of a call, for the few functions that there are.
    fn call(&mut self, callee: &Value, arguments: &Value) -> Value {
        let Value::Global(callee) = callee else { return Value::Opaque };
        let Some(arguments) = self.sequence(arguments) else { return Value::Opaque };
        match (&callee[..], arguments) {
            ("collections.OrderedDict", []) => {
                self.arena.push(Container::Dictionary(Vec::new()));
                Value::Container(self.arena.len() - 1)
            }
            ("torch.Size", [sizes]) => sizes.clone(),
            (
                "torch._utils._rebuild_tensor" | "torch._utils._rebuild_tensor_v2",
                [Value::Storage(storage), Value::Int(offset), sizes, strides, rest @ ..],
            ) if self.is_plain(rest) => {
                let offset = usize::try_from(*offset).ok();
                match (offset, self.sizes(sizes), self.sizes(strides)) {
                    (Some(offset), Some(sizes), Some(strides)) if sizes.len() == strides.len() => {
                        let storage = storage.clone();
                        Value::Tensor(Arc::new(Layout { storage, offset, sizes, strides }))
                    }
                    _ => Value::Opaque,
                }
            }
            (
                "torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state",
                [tensor @ Value::Tensor(_), ..],
            ) => tensor.clone(),
            _ => Value::Opaque,
        }
    }

    /// Whether what follows the strides of a tensor (`requires_grad`, hooks, metadata) leaves its
    /// values as they are: metadata could say that they are conjugated or negated.
    fn is_plain(&self, rest: &[Value]) -> bool {
        match rest.get(2) {
            None | Some(Value::None) => true,
            Some(Value::Container(place)) => {
                matches!(&self.arena[*place], Container::Dictionary(items) if items.is_empty())
            }
            Some(_) => false,
        }
    }

    /// The storage that `("storage", class, key, device, count)` names.
    fn storage(&self, reference: &Value) -> Value {
        let Some(
            [Value::Text(kind), Value::Global(class), Value::Text(key), _, Value::Int(count), ..],
        ) = self.sequence(reference)
        else {
            return Value::Opaque;
        };
        let element = match &class[..] {
            "torch.DoubleStorage" => Element::F64,
            "torch.FloatStorage" => Element::F32,
            "torch.HalfStorage" => Element::F16,
            "torch.BFloat16Storage" => Element::Bf16,
            "torch.LongStorage" => Element::I64,
            "torch.IntStorage" => Element::I32,
            "torch.ShortStorage" => Element::I16,
            "torch.CharStorage" => Element::I8,
            "torch.ByteStorage" => Element::U8,
            "torch.BoolStorage" => Element::Bool,
            _ => return Value::Opaque,
        };
        match usize::try_from(*count) {
            Ok(count) if &kind[..] == "storage" => {
                Value::Storage(Storage { key: key.clone(), element, count })
            }
            _ => Value::Opaque,
        }
    }

    /// A short list of numbers that are not negative.
    fn sizes(&self, value: &Value) -> Option<Vec<usize>> {
        let items = self.sequence(value)?;
        // One more than is allowed is enough for the error that says so.
        let items = items.iter().take(self.axes + 1);
        items
            .map(|item| match item {
                Value::Int(size) => usize::try_from(*size).ok(),
                _ => None,
            })
            .collect()
    }

    fn sequence(&self, value: &Value) -> Option<&[Value]> {
        match value {
            Value::Container(place) => match &self.arena[*place] {
                Container::Sequence(items) => Some(items),
                Container::Dictionary(_) => None,
            },
            _ => None,
        }
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

    fn pop(&mut self) -> Outcome<Value> {
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
        let place = self.number::<N>()?;
        let value = self
            .memo
            .get(&place)
            .ok_or_else(|| Fault::content(format!("nothing was remembered as {place}")))?;
        self.stack.push(value.clone());
        Ok(())
    }

    fn push_int<const N: usize>(&mut self) -> Outcome<()> {
        let value = i64::try_from(self.number::<N>()?).unwrap_or(i64::MAX);
        self.stack.push(Value::Int(value));
        Ok(())
    }

    /// An integer of any length; one that does not fit is of no use here.
    fn push_long<const N: usize>(&mut self) -> Outcome<()> {
        let raw = self.counted::<N>()?;
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
        let raw = self.counted::<N>()?;
        let value = std::str::from_utf8(raw).map_or(Value::Opaque, |text| Value::Text(text.into()));
        self.stack.push(value);
        Ok(())
    }

    fn skip_bytes<const N: usize>(&mut self) -> Outcome<()> {
        self.counted::<N>()?;
        self.stack.push(Value::Opaque);
        Ok(())
    }

    /// Bytes whose number comes first, in `N` bytes.
    fn counted<const N: usize>(&mut self) -> Outcome<&'a [u8]> {
        let count = self.number::<N>()?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn number<const N: usize>(&mut self) -> Outcome<u64> {
        let raw = self.array::<N>()?;
        Ok(raw.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn array<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let raw = self.take(N)?;
        raw.try_into().map_err(Fault::content)
    }

    fn byte(&mut self) -> Outcome<u8> {
        Ok(self.take(1)?[0])
    }

    /// Text up to the end of the line.
    fn line(&mut self) -> Outcome<&'a str> {
        let rest = &self.code[self.at..];
        let length = rest.iter().position(|&byte| byte == b'\n').ok_or_else(cut_short)?;
        let line = self.take(length)?;
        self.take(1)?;
        std::str::from_utf8(line).map_err(Fault::content)
    }

    fn take(&mut self, count: usize) -> Outcome<&'a [u8]> {
        let end = self.at.checked_add(count).ok_or_else(cut_short)?;
        let bytes = self.code.get(self.at..end).ok_or_else(cut_short)?;
        self.at = end;
        Ok(bytes)
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

fn cut_short() -> Fault {
    Fault::content("its pickle is cut short")
}

fn too_many(what: &str, most: usize) -> Fault {
    Fault::Limit(format!("its pickle has more than {most} {what}, which is what is allowed"))
}
