//! The functions that a pickle may call, and the storages that it may name: everything else is opaque.

use std::sync::Arc;

use super::machine::Machine;
use super::value::{Claim, Container, Layout, Storage, Value, element};

impl Machine<'_> {
    /// The result of a call, for the few functions that there are.
    pub(super) fn call(&mut self, callee: &Value, arguments: &Value) -> Value {
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
                [Value::Storage(storage, first), Value::Int(offset), sizes, strides, rest @ ..],
            ) if self.is_plain(rest) => {
                let offset = usize::try_from(*offset).ok();
                let offset = offset.and_then(|offset| offset.checked_add(*first));
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

    /// The storage that `("storage", class, key, device, count)` names. Old files add `None`, or
    /// `(key, offset, count)` if a part of it is meant.
    pub(super) fn storage(&mut self, reference: &Value) -> Value {
        let Some(
            [
                Value::Text(kind),
                Value::Global(class),
                Value::Text(key),
                _,
                Value::Int(count),
                part @ ..,
            ],
        ) = self.sequence(reference)
        else {
            return Value::Opaque;
        };
        let Ok(claimed) = u64::try_from(*count) else { return Value::Opaque };
        if &kind[..] != "storage" {
            return Value::Opaque;
        }
        let first = match part {
            [] | [Value::None] => Some(0),
            [part] => match self.sequence(part) {
                Some([_, Value::Int(offset), _]) => usize::try_from(*offset).ok(),
                _ => None,
            },
            _ => None,
        };
        let (class, key) = (class.clone(), key.clone());
        let storage = match (element(&class), usize::try_from(claimed), first) {
            (Some(element), Ok(count), Some(first)) => {
                Value::Storage(Storage { key: key.clone(), element, count }, first)
            }
            _ => Value::Opaque,
        };
        self.claims.entry(key).or_insert(Claim { class, count: claimed });
        storage
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
}
