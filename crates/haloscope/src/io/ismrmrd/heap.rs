//! Lists of variable length in an HDF5 file: its global heap.
//!
//! The library for HDF5 reads records as they are stored, with a reference in place of each list: its length, the address of a
//! collection of objects, and the number of the object in it. Collections are looked through once each, and objects are read where
//! they lie. A file whose collections or lists were larger than itself is refused, so that work and memory are bounded by its length.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use crate::error::{Error, Result};

/// The bytes of a reference.
pub(super) const REFERENCE: usize = 16;

/// What is before the objects of a collection, and before each object.
const COLLECTION: u64 = 16;
const OBJECT: u64 = 16;

/// The global heap of a file.
pub(super) struct Heap {
    name: String,
    file: File,
    length: u64,
    /// What addresses count from.
    base: u64,
    /// Offset and bytes of each object of the collections that were looked through.
    collections: HashMap<u64, HashMap<u16, (u64, u64)>>,
    /// The bytes of these collections, and of the lists that were read.
    looked_through: u64,
    read: u64,
}

impl Heap {
    /// The heap of a file of so many bytes, whose addresses count from `base`.
    pub(super) fn new(name: &str, file: File, length: u64, base: u64) -> Self {
        let collections = HashMap::new();
        Self { name: name.into(), file, length, base, collections, looked_through: 0, read: 0 }
    }

    /// The list of numbers that a reference stands for.
    pub(super) fn floats(&mut self, reference: &[u8]) -> Result<Vec<f32>> {
        let [count, low, high, index] =
            [0, 4, 8, 12].map(|at| u32::from_le_bytes(four(reference, at)));
        if count == 0 {
            return Ok(Vec::new());
        }
        let address = (u64::from(high) << 32 | u64::from(low)).saturating_add(self.base);
        if !self.collections.contains_key(&address) {
            let objects = self.objects(address)?;
            self.collections.insert(address, objects);
        }
        let place = self.collections.get(&address).and_then(|all| all.get(&(index as u16)));
        let Some(&(offset, bytes)) = place else {
            return Err(self.damaged(format!("there is no object {index} at {address}")));
        };
        let wanted = u64::from(count) * 4;
        if wanted > bytes {
            return Err(self.damaged(format!("{count} numbers of an object of {bytes} bytes")));
        }
        self.read = self.read.saturating_add(wanted);
        if self.read > self.length {
            return Err(self.damaged("its lists have more bytes than the file".into()));
        }
        let mut values = vec![0; wanted as usize];
        self.read_at(offset, &mut values)?;
        Ok(values.chunks_exact(4).map(|bytes| f32::from_le_bytes(four(bytes, 0))).collect())
    }

    /// Offset and bytes of all objects of a collection.
    fn objects(&mut self, address: u64) -> Result<HashMap<u16, (u64, u64)>> {
        let mut head = [0; COLLECTION as usize];
        self.read_at(address, &mut head)?;
        let size = u64::from_le_bytes(eight(&head, 8));
        if &head[..4] != b"GCOL" || head[4] != 1 {
            return Err(self.damaged(format!("there is no collection of version 1 at {address}")));
        }
        let end = address.saturating_add(size);
        self.looked_through = self.looked_through.saturating_add(size);
        if end > self.length || self.looked_through > self.length {
            return Err(self.damaged(format!("a collection of {size} bytes does not fit into it")));
        }
        let (mut objects, mut at) = (HashMap::new(), address + COLLECTION);
        while at + OBJECT <= end {
            let mut head = [0; OBJECT as usize];
            self.read_at(at, &mut head)?;
            let (index, bytes) =
                (u16::from_le_bytes([head[0], head[1]]), u64::from_le_bytes(eight(&head, 8)));
            // Object 0 is what is free.
            if index == 0 {
                break;
            }
            let next = (at + OBJECT).saturating_add(bytes);
            if next > end {
                return Err(self.damaged(format!("an object of {bytes} bytes is cut off")));
            }
            objects.insert(index, (at + OBJECT, bytes));
            // Collections begin anywhere, and objects at multiples of 8 from there.
            at = address + (next - address).next_multiple_of(8);
        }
        Ok(objects)
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.file.seek(SeekFrom::Start(offset));
        read.and_then(|_| self.file.read_exact(bytes)).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged(format!("it ends before {offset}")),
            _ => Error::File { file: self.name.clone(), reason: error.to_string() },
        })
    }

    fn damaged(&self, reason: String) -> Error {
        Error::Content { file: self.name.clone(), reason }
    }
}

fn four(bytes: &[u8], at: usize) -> [u8; 4] {
    std::array::from_fn(|index| bytes.get(at + index).copied().unwrap_or(0))
}

fn eight(bytes: &[u8], at: usize) -> [u8; 8] {
    std::array::from_fn(|index| bytes.get(at + index).copied().unwrap_or(0))
}
