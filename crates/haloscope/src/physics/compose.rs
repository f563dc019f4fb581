//! One operator after another.

use std::sync::Arc;

use super::{LinearPhysics, Physics, Reach};
use crate::error::{Error, Result};

/// `A(B(x))`; linear if both are.
///
/// Nothing is claimed about its norm or closed forms, which those of its parts do not determine.
///
/// ```
/// use std::sync::Arc;
/// use haloscope::physics::{Blur, Compose, Decolorize, Padding, Physics, kernels};
///
/// let grey = Arc::new(Decolorize::new(&[3, 16, 16])?);
/// let blur = Arc::new(Blur::new(&[1, 16, 16], &kernels::uniform(&[3, 3])?, Padding::Valid)?);
/// let both = Compose::new(blur, grey)?;
/// assert_eq!(both.measurement_shape(), [1, 14, 14]);
/// assert!(both.as_linear().is_some());
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Compose {
    outer: Arc<dyn Physics>,
    inner: Arc<dyn Physics>,
}

impl Compose {
    /// `outer` of what `inner` measures.
    pub fn new(outer: Arc<dyn Physics>, inner: Arc<dyn Physics>) -> Result<Self> {
        if outer.image_shape() == inner.measurement_shape() {
            return Ok(Self { outer, inner });
        }
        Err(Error::Shape {
            what: format!("the image of {}", outer.name()),
            expected: format!(
                "the measurement of {} is {:?}",
                inner.name(),
                inner.measurement_shape()
            ),
            found: outer.image_shape().to_vec(),
        })
    }

    fn between(&self, batch: usize) -> Vec<f32> {
        vec![0.0; batch * self.inner.measurement_shape().iter().product::<usize>()]
    }
}

impl Physics for Compose {
    fn name(&self) -> &'static str {
        "compose"
    }

    fn image_shape(&self) -> &[usize] {
        self.inner.image_shape()
    }

    fn measurement_shape(&self) -> &[usize] {
        self.outer.measurement_shape()
    }

    fn apply_forward(&self, batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        let mut between = self.between(batch);
        self.inner.apply_forward(batch, image, &mut between)?;
        self.outer.apply_forward(batch, &between, measurement)
    }

    fn apply_vjp(&self, batch: usize, image: &[f32], v: &[f32], result: &mut [f32]) -> Result<()> {
        let mut between = self.between(batch);
        let mut product = self.between(batch);
        self.inner.apply_forward(batch, image, &mut between)?;
        self.outer.apply_vjp(batch, &between, v, &mut product)?;
        self.inner.apply_vjp(batch, image, &product, result)
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        (self.outer.as_linear().is_some() && self.inner.as_linear().is_some()).then_some(self)
    }

    fn cost(&self) -> f64 {
        self.outer.cost() + self.inner.cost()
    }

    /// That of both together, as far as pixels of what is between them are pixels of the image.
    fn reach(&self) -> Reach {
        let sides = |shape: &[usize]| shape.get(1..).map(<[usize]>::to_vec);
        let keeps = sides(self.inner.image_shape()) == sides(self.inner.measurement_shape());
        match (self.outer.reach(), self.inner.reach()) {
            (Reach::Local(0), inner) => inner,
            (Reach::Local(outer), Reach::Local(inner)) if keeps => Reach::Local(outer + inner),
            _ => Reach::Everywhere,
        }
    }
}

impl LinearPhysics for Compose {
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        let (Some(outer), Some(inner)) = (self.outer.as_linear(), self.inner.as_linear()) else {
            let names = [self.outer.name(), self.inner.name()];
            let reason =
                format!("{names:?} are not both linear, so there is no adjoint; there is `vjp`");
            return Err(Error::argument("compose", reason));
        };
        let mut between = self.between(batch);
        outer.apply_adjoint(batch, measurement, &mut between)?;
        inner.apply_adjoint(batch, &between, image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physics::Identity;

    #[test]
    fn operators_that_do_not_meet_are_refused() {
        let (a, b) = (Arc::new(Identity::new(&[1, 2])), Arc::new(Identity::new(&[1, 3])));
        let message = Compose::new(a, b).expect_err("refused").to_string();
        assert!(message.contains("[1, 2]") && message.contains("[1, 3]"), "{message}");
    }
}
