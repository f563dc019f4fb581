//! Takes numbers, text and counted bytes from a pickle one after another, never beyond its end.

use super::{Code, too_many};
use crate::weights::fault::{Fault, Outcome};

/// Bytes of a pickle, and how far they have been read.
pub(super) struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
    more: bool,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(code: Code<'a>) -> Self {
        Self { all: code.bytes, at: code.start, more: code.more }
    }

    /// Where the next byte is.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Bytes whose number comes first, in `N` bytes.
    pub(super) fn counted<const N: usize>(&mut self) -> Outcome<&'a [u8]> {
        let count = self.number::<N>()?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX))
    }

    pub(super) fn number<const N: usize>(&mut self) -> Outcome<u64> {
        let raw = self.array::<N>()?;
        Ok(raw.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let raw = self.take(N)?;
        raw.try_into().map_err(Fault::content)
    }

    pub(super) fn byte(&mut self) -> Outcome<u8> {
        Ok(self.take(1)?[0])
    }

    /// Text up to the end of the line.
    pub(super) fn line(&mut self) -> Outcome<&'a str> {
        let rest = self.all.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|&byte| byte == b'\n');
        let length = length.ok_or_else(|| self.cut_short())?;
        let line = self.take(length)?;
        self.take(1)?;
        std::str::from_utf8(line).map_err(Fault::content)
    }

    pub(super) fn take(&mut self, count: usize) -> Outcome<&'a [u8]> {
        let end = self.at.checked_add(count).ok_or_else(|| self.cut_short())?;
        let bytes = self.all.get(self.at..end).ok_or_else(|| self.cut_short())?;
        self.at = end;
        Ok(bytes)
    }

    fn cut_short(&self) -> Fault {
        if self.more {
            return too_many("bytes", self.all.len());
        }
        Fault::content("its pickle is cut short")
    }
}
