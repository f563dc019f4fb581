//! Functions of single values that no convolution has taken into its epilogue, and sums.

use std::ops::Range;

use super::super::layout::{BLOCK, Layout, signed};
use super::super::operation::{Operands, Operation};
use crate::op::Activation;

/// What is done to each value.
pub(crate) enum Function {
    /// An activation.
    Activation(Activation),
    /// A scale and a shift for each channel, filled up to whole blocks.
    Affine { scale: Vec<f32>, shift: Vec<f32> },
    /// The sum of all inputs.
    Sum,
}

/// A function of the values at one place.
pub(crate) struct Pointwise {
    pub(crate) layout: Layout,
    pub(crate) inputs: usize,
    pub(crate) function: Function,
}

impl Operation for Pointwise {
    fn describe(&self) -> String {
        match &self.function {
            Function::Activation(activation) => format!("{activation:?}").to_lowercase(),
            Function::Affine { .. } => "affine".into(),
            Function::Sum => "add".into(),
        }
    }

    fn items(&self, _rows: &Range<usize>) -> usize {
        self.layout.planes()
    }

    unsafe fn run(&self, item: usize, operands: &Operands<'_>, _scratch: *mut f32) {
        let output = operands.output();
        let (image, block, plane) = self.layout.plane(item);
        for row in operands.rows.clone() {
            let pixels = |tensor: &super::super::layout::Tensor| {
                tensor.at(image, block, plane, signed(row), 0).cast::<[f32; BLOCK]>()
            };
            let target = pixels(&output);
            let first = pixels(&operands.input(0)).cast_const();
            for column in 0..self.layout.width {
                // SAFETY: a pixel of the row; input and output may be the same memory, so no
                // references are made. This item alone writes the plane.
                unsafe {
                    let mut values = *first.add(column);
                    match &self.function {
                        Function::Activation(activation) => apply(*activation, &mut values),
                        Function::Affine { scale, shift } => {
                            let range = block * BLOCK..(block + 1) * BLOCK;
                            let affine = scale[range.clone()].iter().zip(&shift[range]);
                            for (value, (scale, shift)) in values.iter_mut().zip(affine) {
                                *value = *value * scale + shift;
                            }
                        }
                        Function::Sum => {
                            for index in 1..self.inputs {
                                let other = *pixels(&operands.input(index)).add(column);
                                for (value, other) in values.iter_mut().zip(other) {
                                    *value += other;
                                }
                            }
                        }
                    }
                    *target.add(column) = values;
                }
            }
            if !operands.border_is_clear {
                // SAFETY: the border of this item's plane.
                unsafe { output.clear_border(image, block, plane, row) };
            }
        }
    }

    fn may_overwrite(&self, _input: usize) -> bool {
        true
    }
}

/// Applies an activation to a pixel's block.
fn apply(activation: Activation, values: &mut [f32; BLOCK]) {
    for x in values {
        *x = match activation {
            Activation::Relu => x.max(0.0),
            Activation::LeakyRelu(slope) if *x <= 0.0 => slope * *x,
            Activation::Elu(alpha) if *x <= 0.0 => alpha * x.exp_m1(),
            Activation::LeakyRelu(_) | Activation::Elu(_) => *x,
            Activation::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        };
    }
}
