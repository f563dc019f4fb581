//! What an iterative method needs to know about an operator, a stack, or a distributed stack.

use crate::array::{Array, add_scaled, dot_of_rows, elements, row_of, scale, squared_norm_of_rows};
use crate::error::{Error, Result};
use crate::measurements::Measurements;
use crate::physics::{LinearPhysics, Physics, Stack};

/// What a linear map makes of an image: an array, or a list of arrays, with their arithmetic. Each rank has its own part of it.
pub trait Data: Clone {
    /// `self ← self + factor · other`.
    fn add_scaled(&mut self, factor: f32, other: &Self) -> Result<()>;

    /// `self ← factor · self`.
    fn scale(&mut self, factor: f32) -> Result<()>;
}

impl Data for Array {
    fn add_scaled(&mut self, factor: f32, other: &Self) -> Result<()> {
        let from = elements("least squares", other)?;
        add_scaled(elements_mut(self, other.shape())?, factor, from);
        Ok(())
    }

    fn scale(&mut self, factor: f32) -> Result<()> {
        let shape = self.shape().to_vec();
        scale(elements_mut(self, &shape)?, factor);
        Ok(())
    }
}

impl Data for Measurements {
    fn add_scaled(&mut self, factor: f32, other: &Self) -> Result<()> {
        Measurements::add_scaled(self, factor, other)
    }

    fn scale(&mut self, factor: f32) -> Result<()> {
        Measurements::scale(self, factor);
        Ok(())
    }
}

/// A linear map from images to data.
///
/// Norms and inner products require communication, so they are functions of the map: a map whose data
/// or images are divided over ranks adds up the ranks' shares in them.
pub trait LinearMap {
    /// The type of its data.
    type Data: Data;

    /// The shape of an image, without the batch.
    fn image_shape(&self) -> &[usize];

    /// This rank's part of an image with these elements, in the order of the whole.
    fn image_of(&self, element: &dyn Fn(u64) -> f32) -> Array {
        let mut index = 0;
        Array::from_shape_simple_fn([&[1], self.image_shape()].concat(), || {
            index += 1;
            element(index - 1)
        })
    }

    /// `A x`.
    fn forward(&self, image: &Array) -> Result<Self::Data>;

    /// `Aᵀ y`.
    fn adjoint(&self, data: &Self::Data) -> Result<Array>;

    /// `AᵀA x`.
    fn normal(&self, image: &Array) -> Result<Array> {
        self.adjoint(&self.forward(image)?)
    }

    /// The sum of the squares of all elements of the data.
    fn data_squared_norm(&self, data: &Self::Data) -> Result<f64>;

    /// The inner product of two images.
    fn image_dot(&self, a: &Array, b: &Array) -> Result<f64> {
        local_dot(a, b)
    }

    /// `‖A‖²`, where it is known exactly.
    fn exact_squared_norm(&self) -> Option<f64> {
        None
    }

    /// The solution of `(AᵀA + shift·I) x = b`, where it has a closed form; of least norm for shift 0.
    fn solve_normal(&self, b: &Array, shift: f64) -> Option<Result<Array>> {
        let _ = (b, shift);
        None
    }
}

impl<P: LinearPhysics + ?Sized> LinearMap for P {
    type Data = Array;

    fn image_shape(&self) -> &[usize] {
        Physics::image_shape(self)
    }

    fn forward(&self, image: &Array) -> Result<Array> {
        Physics::forward(self, image)
    }

    fn adjoint(&self, data: &Array) -> Result<Array> {
        LinearPhysics::adjoint(self, data)
    }

    fn normal(&self, image: &Array) -> Result<Array> {
        LinearPhysics::normal(self, image)
    }

    fn data_squared_norm(&self, data: &Array) -> Result<f64> {
        Ok(squared_norm_of_rows(elements("least squares", data)?, row_of(data)))
    }

    fn exact_squared_norm(&self) -> Option<f64> {
        LinearPhysics::exact_squared_norm(self)
    }

    fn solve_normal(&self, b: &Array, shift: f64) -> Option<Result<Array>> {
        LinearPhysics::solve_normal(self, b, shift)
    }
}

impl LinearMap for Stack {
    type Data = Measurements;

    fn image_shape(&self) -> &[usize] {
        Stack::image_shape(self)
    }

    fn forward(&self, image: &Array) -> Result<Measurements> {
        Stack::forward(self, image)
    }

    fn adjoint(&self, data: &Measurements) -> Result<Array> {
        Stack::adjoint(self, data)
    }

    fn normal(&self, image: &Array) -> Result<Array> {
        Stack::normal(self, image)
    }

    fn data_squared_norm(&self, data: &Measurements) -> Result<f64> {
        Ok(data.squared_norm())
    }
}

/// The inner product of two images of one shape that are here as a whole.
pub(super) fn local_dot(a: &Array, b: &Array) -> Result<f64> {
    check_shape(a.shape(), b)?;
    Ok(dot_of_rows(elements("least squares", a)?, elements("least squares", b)?, row_of(a)))
}

/// The elements of an array that must have this shape, in logical order.
pub(super) fn elements_mut<'a>(array: &'a mut Array, shape: &[usize]) -> Result<&'a mut [f32]> {
    check_shape(shape, array)?;
    if !array.is_standard_layout() {
        *array = array.as_standard_layout().into_owned();
    }
    Ok(array.as_slice_mut().expect("the array is in standard layout"))
}

fn check_shape(shape: &[usize], array: &Array) -> Result<()> {
    if array.shape() == shape {
        return Ok(());
    }
    Err(Error::Shape {
        what: "an array of a least-squares problem".into(),
        expected: format!("{shape:?} is expected, to go with the others"),
        found: array.shape().to_vec(),
    })
}
