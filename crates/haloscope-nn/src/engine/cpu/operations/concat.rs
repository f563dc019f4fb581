//! Channels of several tensors one after the other.

use std::ops::Range;

use super::super::layout::{BLOCK, Layout};
use super::super::operation::{Operands, Operation};

/// A concatenation along the channels.
pub(crate) struct Concat {
    output: Layout,
    /// For each output channel, the input and the channel of it.
    sources: Vec<(usize, usize)>,
}

impl Concat {
    pub(crate) fn new(output: Layout, input_channels: &[usize]) -> Self {
        let sources = (input_channels.iter().enumerate())
            .flat_map(|(input, &channels)| (0..channels).map(move |channel| (input, channel)))
            .collect();
        Self { output, sources }
    }

    /// The block of an input that the block of the output is, if it is one.
    fn whole_block(&self, block: usize) -> Option<(usize, usize)> {
        let sources = &self.sources[block * BLOCK..self.sources.len().min((block + 1) * BLOCK)];
        let (input, channel) = sources[0];
        let whole = channel % BLOCK == 0
            && sources.iter().enumerate().all(|(lane, source)| *source == (input, channel + lane));
        whole.then_some((input, channel / BLOCK))
    }
}

impl Operation for Concat {
    fn describe(&self) -> String {
        "concat".into()
    }

    fn items(&self, _rows: &Range<usize>) -> usize {
        self.output.planes()
    }

    unsafe fn run(&self, item: usize, operands: &Operands<'_>, _scratch: *mut f32) {
        let output = operands.output();
        let (image, block, plane) = self.output.plane(item);
        for row in operands.rows.clone() {
            // SAFETY: rows of the inputs, which nobody writes now, and of this item's plane.
            unsafe {
                let target = output.row_mut(image, block, plane, row);
                if let Some((input, source)) = self.whole_block(block) {
                    target.copy_from_slice(operands.input(input).row(image, source, plane, row));
                } else {
                    for lane in 0..BLOCK {
                        let Some(&(input, channel)) = self.sources.get(block * BLOCK + lane) else {
                            for pixel in target.iter_mut() {
                                pixel[lane] = 0.0;
                            }
                            continue;
                        };
                        let source = operands.input(input).row(image, channel / BLOCK, plane, row);
                        for (pixel, source) in target.iter_mut().zip(source) {
                            pixel[lane] = source[channel % BLOCK];
                        }
                    }
                }
                output.clear_border(image, block, plane, row);
            }
        }
    }
}
