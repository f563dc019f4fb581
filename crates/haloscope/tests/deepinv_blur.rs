//! Blurs, downsampling, inpainting, decolorizing and kernels are those of deepinv 0.5.0, to a relative error of
//! 1e-5. The numbers are made by `fixtures/make_blur.py`.

use haloscope::array::{distance, norm};
use haloscope::physics::{
    Blur, BlurMethod, Decolorize, Downsampling, DownsamplingFilter, Inpainting, LinearPhysics,
    Padding, kernels,
};
use haloscope::{Array, Result};
use safetensors::SafeTensors;
use serde_json::Value;

const FIXTURE: &[u8] = include_bytes!("../fixtures/blur.safetensors");

struct Fixture {
    tensors: SafeTensors<'static>,
    cases: Vec<Value>,
}

impl Fixture {
    fn open() -> Self {
        let (_, metadata) = SafeTensors::read_metadata(FIXTURE).expect("a header");
        let cases = &metadata.metadata().as_ref().expect("metadata")["cases"];
        let cases = serde_json::from_str(cases).expect("cases");
        Self { tensors: SafeTensors::deserialize(FIXTURE).expect("tensors"), cases }
    }

    fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.cases.iter().filter(move |case| case["kind"] == kind)
    }

    fn array(&self, name: &Value) -> Array {
        let tensor = self.tensors.tensor(name.as_str().expect("a name")).expect("a tensor");
        let values =
            tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        Array::from_shape_vec(tensor.shape(), values.collect()).expect("the shape fits")
    }

    /// Forward, adjoint, and norm and closed form where the case has them.
    fn assert_like_deepinv(&self, case: &Value, operator: &dyn LinearPhysics) -> Result<()> {
        let assert_close = |what: &str, found: &Array, expected: &Value| {
            let expected = self.array(expected);
            assert_eq!(found.shape(), expected.shape(), "{what} of {case}");
            let error = relative(found, &expected);
            assert!(error < 1e-5, "{what} of {case}: {error:.1e}");
        };
        assert_close("forward", &operator.forward(&self.array(&case["x"]))?, &case["y"]);
        assert_close("adjoint", &operator.adjoint(&self.array(&case["v"]))?, &case["adjoint"]);
        if let Some(squared_norm) = case["squared_norm"].as_f64() {
            let found = operator.exact_squared_norm().expect("known");
            assert!((found - squared_norm).abs() < 1e-5 * squared_norm, "{found} of {case}");
        }
        if let Some(gamma) = case["gamma"].as_f64() {
            let z = self.array(&case["prox_z"]) * (1.0 / gamma) as f32;
            let b = operator.adjoint(&self.array(&case["prox_y"]))? + z;
            let found = operator.solve_normal(&b, 1.0 / gamma).expect("a closed form")?;
            assert_close("prox", &found, &case["prox"]);
        }
        Ok(())
    }
}

fn relative(found: &Array, expected: &Array) -> f64 {
    let slice = |array: &Array| array.iter().copied().collect::<Vec<f32>>();
    distance(&slice(found), &slice(expected)) / norm(&slice(expected))
}

fn padding(case: &Value) -> Padding {
    match case["padding"].as_str() {
        Some("circular") => Padding::Circular,
        Some("reflect") => Padding::Reflect,
        Some("replicate") => Padding::Replicate,
        Some("constant") => Padding::Constant,
        Some("valid") => Padding::Valid,
        other => panic!("the padding is {other:?}"),
    }
}

fn number(value: &Value) -> usize {
    value.as_u64().expect("a number") as usize
}

#[test]
fn blurs_are_those_of_deepinv_by_either_method() -> Result<()> {
    let fixture = Fixture::open();
    for case in fixture.of_kind("blur") {
        let (x, kernel) = (fixture.array(&case["x"]), fixture.array(&case["kernel"]));
        for method in [BlurMethod::Direct, BlurMethod::Fourier] {
            let blur = Blur::with_method(&x.shape()[1..], &kernel, padding(case), method)?;
            fixture.assert_like_deepinv(case, &blur)?;
        }
    }
    Ok(())
}

#[test]
fn downsampling_is_that_of_deepinv_with_each_filter() -> Result<()> {
    let fixture = Fixture::open();
    for case in fixture.of_kind("downsampling") {
        let filter = match case["filter"].as_str() {
            Some("none") => DownsamplingFilter::None,
            Some("gaussian") => DownsamplingFilter::Gaussian,
            Some("bilinear") => DownsamplingFilter::Bilinear,
            Some("bicubic") => DownsamplingFilter::Bicubic,
            Some("sinc") => DownsamplingFilter::Sinc,
            other => panic!("the filter is {other:?}"),
        };
        let x = fixture.array(&case["x"]);
        let operator =
            Downsampling::new(&x.shape()[1..], number(&case["factor"]), &filter, padding(case))?;
        fixture.assert_like_deepinv(case, &operator)?;
    }
    Ok(())
}

#[test]
fn inpainting_and_decolorizing_are_those_of_deepinv() -> Result<()> {
    let fixture = Fixture::open();
    for case in fixture.of_kind("inpainting") {
        let (x, mask) = (fixture.array(&case["x"]), fixture.array(&case["mask"]));
        fixture.assert_like_deepinv(case, &Inpainting::new(&x.shape()[1..], &mask)?)?;
    }
    for case in fixture.of_kind("decolorize") {
        let x = fixture.array(&case["x"]);
        fixture.assert_like_deepinv(case, &Decolorize::new(&x.shape()[1..])?)?;
    }
    Ok(())
}

#[test]
fn gaussian_kernels_are_those_of_deepinv() -> Result<()> {
    let fixture = Fixture::open();
    for case in fixture.of_kind("gaussian") {
        let numbers = |value: &Value| -> Vec<f64> {
            value.as_array().expect("numbers").iter().filter_map(Value::as_f64).collect()
        };
        let (sigma, angles) = (numbers(&case["sigma"]), numbers(&case["angles"]));
        let expected = fixture.array(&case["kernel"]);
        let kernel = if sigma.len() == 2 {
            kernels::gaussian(&sigma, angles[0])?
        } else {
            kernels::gaussian_of_size(
                &expected.shape()[2..],
                &sigma,
                [angles[0], angles[1], angles[2]],
            )?
        };
        // Only a part around the centre of a large kernel is stored.
        let first = (kernel.shape()[2] - expected.shape()[2]) / 2;
        let kernel = kernel.slice_each_axis(|axis| {
            let part = axis.axis.index() > 1 && first > 0;
            let end = if part { first + 19 } else { axis.len };
            ndarray::Slice::from(if part { first } else { 0 }..end)
        });
        let error = relative(&kernel.to_owned(), &expected);
        assert!(error < 1e-5, "{case}: {error:.1e}");
    }
    Ok(())
}

#[test]
fn kernels_of_downsampling_are_those_of_deepinv() -> Result<()> {
    type Make = fn(usize, usize) -> Result<Array>;
    let fixture = Fixture::open();
    let makes: [(&str, Make); 3] = [
        ("bilinear", |factor, _| kernels::bilinear(factor)),
        ("bicubic", |factor, _| kernels::bicubic(factor)),
        ("sinc", kernels::sinc),
    ];
    for (kind, make) in makes {
        for case in fixture.of_kind(kind) {
            let length = case["length"].as_u64().unwrap_or(0) as usize;
            let error =
                relative(&make(number(&case["factor"]), length)?, &fixture.array(&case["kernel"]));
            assert!(error < 1e-5, "{case}: {error:.1e}");
        }
    }
    Ok(())
}
