//! Arrays and operators that are others': memory is borrowed where it lies, and names are known only at run time.

use haloscope::denoise::{Denoiser, TotalVariation, denoiser_fn};
use haloscope::fidelity::{Fidelity, L2};
use haloscope::metrics::mse;
use haloscope::physics::{Blur, LinearPhysics, Padding, Physics, kernels};
use haloscope::{Array, Result, View};
use ndarray::{ArrayViewD, IxDyn};

/// `A x = factor · x`, named by its user.
#[derive(Debug)]
struct Gain {
    name: String,
    shape: Vec<usize>,
    factor: f32,
}

impl Physics for Gain {
    fn name(&self) -> &str {
        &self.name
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.shape
    }

    fn apply_forward(&self, _batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        for (to, from) in measurement.iter_mut().zip(image) {
            *to = self.factor * from;
        }
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }
}

impl LinearPhysics for Gain {
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        self.apply_forward(batch, measurement, image)
    }
}

#[test]
fn memory_of_others_is_read_where_it_lies() -> Result<()> {
    let owned =
        Array::from_shape_fn(vec![1, 1, 12, 9], |at| (at[2] * 7 + at[3] * 3) as f32 % 5.0 / 5.0);
    let memory: Vec<f32> = owned.iter().copied().collect();
    let foreign = ArrayViewD::from_shape(IxDyn(&[1, 1, 12, 9]), &memory).expect("a view");

    let where_it_lies = denoiser_fn("where it lies", |image: &View, _: &_| {
        Ok(Array::from_elem(vec![1], if image.as_ptr() == memory.as_ptr() { 1.0 } else { 0.0 }))
    });
    assert_eq!(where_it_lies.denoise(&foreign, &0.1.into())?.sum(), 1.0);

    let blur = Blur::new(&[1, 12, 9], &kernels::gaussian(&[1.0, 1.0], 0.0)?, Padding::Circular)?;
    assert_eq!(blur.forward(&foreign)?, blur.forward(&owned)?);
    assert_eq!(blur.adjoint(&foreign)?, blur.adjoint(&owned)?);
    let tv = TotalVariation::default();
    assert_eq!(tv.denoise(&foreign, &0.1.into())?, tv.denoise(&owned, &0.1.into())?);
    assert_eq!(L2::new(1.0)?.value(&foreign, &foreign)?, 0.0);
    assert_eq!(mse(&foreign, &owned)?, [0.0]);
    Ok(())
}

#[test]
fn views_in_another_order_are_read_as_what_they_mean() -> Result<()> {
    let turned =
        Array::from_shape_fn(vec![9, 12, 1, 1], |at| (at[0] * 5 + at[1]) as f32).reversed_axes();
    let view = turned.view();
    assert!(view.as_slice().is_none());
    let gain = Gain { name: "gain".into(), shape: vec![1, 12, 9], factor: 2.0 };
    assert_eq!(gain.forward(&view)?, &turned * 2.0);
    Ok(())
}

#[test]
fn operators_are_named_at_run_time() {
    for name in ["camera 7", "camera 8"] {
        let gain = Gain { name: name.into(), shape: vec![1, 4], factor: 2.0 };
        let error = gain.forward(&Array::zeros(vec![1, 1, 5])).expect_err("another shape");
        assert!(error.to_string().contains(&format!("the image of {name}")), "{error}");
    }
}
