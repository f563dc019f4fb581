//! One operator after another.

use std::ops::Range;
use std::sync::Arc;

use super::{LinearPhysics, Physics, Reach, WindowPhysics, region};
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

    /// Both operators, on windows; asked for only where [`as_window`](Physics::as_window) found them.
    fn windows(&self) -> [&dyn WindowPhysics; 2] {
        [&self.outer, &self.inner].map(|one| one.as_window().expect("it works on windows"))
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

    fn as_window(&self) -> Option<&dyn WindowPhysics> {
        (self.outer.as_window().is_some() && self.inner.as_window().is_some()).then_some(self)
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

    fn restricted(&self, image: &[Range<usize>]) -> Option<Result<Arc<dyn Physics>>> {
        self.outer.as_linear()?;
        let part = self.inner.as_linear()?.restricted(image)?;
        let outer = Arc::clone(&self.outer);
        Some(part.map(|inner| Arc::new(Self { outer, inner }) as Arc<dyn Physics>))
    }
}

/// What is between the operators is computed where the second one reads it, part by part of a window that goes on beyond an
/// end, so that ranks compute it twice where their windows overlap, and send nothing more.
impl WindowPhysics for Compose {
    fn measurement_region(&self, image: &[Range<usize>]) -> Vec<Range<usize>> {
        let [outer, inner] = self.windows();
        outer.measurement_region(&inner.measurement_region(image))
    }

    fn image_reads(&self, measurement: &[Range<usize>]) -> Vec<Range<isize>> {
        let [outer, inner] = self.windows();
        let between = outer.image_reads(measurement);
        let reads = |part: &[Range<usize>]| inner.image_reads(part);
        reads_of_window(&between, inner.measurement_shape(), inner.image_shape(), reads)
    }

    fn measurement_reads(&self, image: &[Range<usize>]) -> Vec<Range<isize>> {
        let [outer, inner] = self.windows();
        let between = inner.measurement_reads(image);
        let reads = |part: &[Range<usize>]| outer.measurement_reads(part);
        reads_of_window(&between, outer.image_shape(), outer.measurement_shape(), reads)
    }

    fn apply_forward_window(
        &self,
        batch: usize,
        measurement: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let [outer, inner] = self.windows();
        let between = outer.image_reads(measurement);
        let read = self.image_reads(measurement);
        let step = Step {
            from: inner.image_shape(),
            to: inner.measurement_shape(),
            reads: &|part| inner.image_reads(part),
            run: &|part, window, out| inner.forward_window(batch, part, window, out),
        };
        let values = step.run_on_window(batch, (&read, window), &between)?;
        outer.forward_window(batch, measurement, &values, out)
    }

    fn apply_adjoint_window(
        &self,
        batch: usize,
        image: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let [outer, inner] = self.windows();
        let between = inner.measurement_reads(image);
        let read = self.measurement_reads(image);
        let step = Step {
            from: outer.measurement_shape(),
            to: outer.image_shape(),
            reads: &|part| outer.measurement_reads(part),
            run: &|part, window, out| outer.adjoint_window(batch, part, window, out),
        };
        let values = step.run_on_window(batch, (&read, window), &between)?;
        inner.adjoint_window(batch, image, &values, out)
    }

    fn window_bits_agree(&self) -> bool {
        self.windows().iter().all(|one| one.window_bits_agree())
    }
}

/// What is read for a window of an array of shape `to`, from an array of shape `from`, if `reads` says it for a part.
fn reads_of_window(
    window: &[Range<isize>],
    to: &[usize],
    from: &[usize],
    reads: impl Fn(&[Range<usize>]) -> Vec<Range<isize>>,
) -> Vec<Range<isize>> {
    let (to, from) = (&to[1..], &from[1..]);
    let mut all = region::nothing(from.len());
    for (part, place) in region::parts(window, to) {
        let mut read = reads(&part);
        for (axis, read) in read.iter_mut().enumerate() {
            // As many sides beyond the end as the part is.
            let sides = (place[axis].start - part[axis].start as isize) / to[axis] as isize;
            let moved = sides * from[axis] as isize;
            *read = read.start + moved..read.end + moved;
        }
        all = region::around(all, read, from);
    }
    all
}

/// An operator in one direction: from windows of an array of shape `from` to parts of one of shape `to`.
struct Step<'a> {
    from: &'a [usize],
    to: &'a [usize],
    reads: &'a Reads<'a>,
    run: &'a Run<'a>,
}

type Reads<'a> = dyn Fn(&[Range<usize>]) -> Vec<Range<isize>> + 'a;
type Run<'a> = dyn Fn(&[Range<usize>], &[f32], &mut [f32]) -> Result<()> + 'a;

impl Step<'_> {
    /// The values of a window of the result.
    fn run_on_window(
        &self,
        batch: usize,
        from: (&[Range<isize>], &[f32]),
        to: &[Range<isize>],
    ) -> Result<Vec<f32>> {
        let planes = [batch * self.from[0], batch * self.to[0]];
        let mut values = vec![0.0; planes[1] * region::positions(to)];
        for (part, place) in region::parts(to, &self.to[1..]) {
            let read = (self.reads)(&part);
            let mut window = vec![0.0; planes[0] * region::positions(&read)];
            region::copy(planes[0], &self.from[1..], from, (&read, &mut window));
            let mut result = vec![0.0; planes[1] * region::positions(&place)];
            (self.run)(&part, &window, &mut result)?;
            region::copy(planes[1], &self.to[1..], (&place, &result), (to, &mut values));
        }
        Ok(values)
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
