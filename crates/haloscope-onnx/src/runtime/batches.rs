//! Batches that fit: as many images at once as the memory of a device allows.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use haloscope_nn::Result;

use super::diagnosis::is_out_of_memory;

/// How many images go at once; fewer after each time that memory did not suffice.
#[derive(Debug)]
pub(super) struct Batches(AtomicUsize);

impl Batches {
    pub(super) fn new(most: usize) -> Self {
        Self(AtomicUsize::new(most.max(1)))
    }

    /// How many go at once now.
    pub(super) fn size(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Calls `run` with one range of the `count` images after the other. A range for which the memory does not suffice is
    /// tried again in halves, and so are all after it; what fits is said once.
    pub(super) fn run(
        &self,
        count: usize,
        mut run: impl FnMut(Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let (mut first, mut refused) = (0, None);
        while first < count {
            let size = self.size().min(count - first);
            match run(first..first + size) {
                Ok(()) => {
                    first += size;
                    if let Some(most) = refused.take() {
                        log::warn!(
                            "{most} images at once do not fit into the memory of the device; they go {size} at a time"
                        );
                    }
                }
                Err(error) if size > 1 && is_out_of_memory(&error.to_string()) => {
                    refused.get_or_insert(size);
                    self.0.store(size / 2, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::failed;
    use super::*;

    /// A device on which two images fit.
    fn small(range: &Range<usize>) -> Result<()> {
        if range.len() <= 2 {
            return Ok(());
        }
        Err(failed("CUDA failure 2: out of memory ; GPU=0".into()))
    }

    #[test]
    fn batches_are_halved_until_they_fit_and_every_image_is_run_once() {
        let batches = Batches::new(8);
        let mut done = Vec::new();
        let result = batches.run(11, |range| {
            small(&range)?;
            done.extend(range);
            Ok(())
        });
        assert_eq!((result, batches.size()), (Ok(()), 2));
        assert_eq!(done, (0..11).collect::<Vec<_>>());
    }

    #[test]
    fn other_errors_and_single_images_that_do_not_fit_end_it() {
        let run = |words: &str| {
            let mut calls = 0;
            let result = Batches::new(4).run(4, |_| {
                calls += 1;
                Err(failed(words.into()))
            });
            assert!(result.is_err());
            calls
        };
        assert_eq!(run("the node Conv is not implemented"), 1);
        // Four, two and one.
        assert_eq!(run("Failed to allocate memory for requested buffer of size 7"), 3);
    }
}
