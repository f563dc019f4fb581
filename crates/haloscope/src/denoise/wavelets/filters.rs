//! The filters of Daubechies's wavelets with the least phase, db1 to db8.
//!
//! They are the scaling coefficients of I. Daubechies, Ten Lectures on Wavelets (1992), table 6.1, to double precision.

/// The highest order that there is.
pub(super) const MOST_ORDER: usize = 8;

/// The low-pass filter of the wavelet with so many vanishing moments, 1 to 8: twice as many numbers.
pub(super) fn low_pass(order: usize) -> &'static [f64] {
    LOW[order.clamp(1, MOST_ORDER) - 1]
}

/// The high-pass filter that belongs to a low-pass filter.
pub(super) fn high_pass(low: &[f64]) -> Vec<f64> {
    let signed = |(index, value): (usize, &f64)| if index % 2 == 0 { *value } else { -value };
    low.iter().rev().enumerate().map(signed).collect()
}

const LOW: [&[f64]; MOST_ORDER] = [
    &[std::f64::consts::FRAC_1_SQRT_2, std::f64::consts::FRAC_1_SQRT_2],
    &[
        0.482_962_913_144_534_16,
        0.836_516_303_737_807_9,
        0.224_143_868_042_013_4,
        -0.129_409_522_551_260_37,
    ],
    &[
        0.332_670_552_950_082_63,
        0.806_891_509_311_092_5,
        0.459_877_502_118_491_54,
        -0.135_011_020_010_254_58,
        -0.085_441_273_882_026_66,
        0.035_226_291_885_709_53,
    ],
    &[
        0.230_377_813_308_896_5,
        0.714_846_570_552_915_7,
        0.630_880_767_929_858_9,
        -0.027_983_769_416_859_854,
        -0.187_034_811_719_093_09,
        0.030_841_381_835_560_764,
        0.032_883_011_666_885_2,
        -0.010_597_401_785_069_032,
    ],
    &[
        0.160_102_397_974_192_93,
        0.603_829_269_797_189_6,
        0.724_308_528_437_772_9,
        0.138_428_145_901_320_74,
        -0.242_294_887_066_382_03,
        -0.032_244_869_584_638_375,
        0.077_571_493_840_045_72,
        -0.006_241_490_212_798_274,
        -0.012_580_751_999_081_999,
        0.003_335_725_285_473_771_2,
    ],
    &[
        0.111_540_743_350_109_47,
        0.494_623_890_398_453_06,
        0.751_133_908_021_095_4,
        0.315_250_351_709_197_63,
        -0.226_264_693_965_439_83,
        -0.129_766_867_567_261_94,
        0.097_501_605_587_323_04,
        0.027_522_865_530_305_727,
        -0.031_582_039_317_486_03,
        0.000_553_842_201_161_496_1,
        0.004_777_257_510_945_511,
        -0.001_077_301_085_308_479_6,
    ],
    &[
        0.077_852_054_085_009_18,
        0.396_539_319_481_917_3,
        0.729_132_090_846_235_1,
        0.469_782_287_405_193_1,
        -0.143_906_003_928_564_98,
        -0.224_036_184_993_874_98,
        0.071_309_219_266_830_26,
        0.080_612_609_151_083_08,
        -0.038_029_936_935_014_41,
        -0.016_574_541_630_666_88,
        0.012_550_998_556_099_84,
        0.000_429_577_972_921_366_5,
        -0.001_801_640_704_047_490_8,
        0.000_353_713_799_974_520_24,
    ],
    &[
        0.054_415_842_243_104_01,
        0.312_871_590_914_299_95,
        0.675_630_736_297_289_8,
        0.585_354_683_654_206_7,
        -0.015_829_105_256_349_306,
        -0.284_015_542_961_546_9,
        0.000_472_484_573_913_282_8,
        0.128_747_426_620_478_47,
        -0.017_369_301_001_807_547,
        -0.044_088_253_930_794_755,
        0.013_981_027_917_398_282,
        0.008_746_094_047_405_777,
        -0.004_870_352_993_451_574,
        -0.000_391_740_373_376_947_05,
        0.000_675_449_406_450_569_3,
        -0.000_117_476_784_124_769_53,
    ],
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What makes them orthonormal, and blind to polynomials below their order.
    #[test]
    fn filters_are_orthonormal_and_have_vanishing_moments() {
        for order in 1..=MOST_ORDER {
            let low = low_pass(order);
            let high = high_pass(low);
            assert_eq!(low.len(), 2 * order);
            assert!((low.iter().sum::<f64>() - 2_f64.sqrt()).abs() < 1e-10, "db{order}");
            for shift in 0..order {
                let product = |a: &[f64], b: &[f64]| -> f64 {
                    a.iter().skip(2 * shift).zip(b).map(|(a, b)| a * b).sum()
                };
                let expected = if shift == 0 { 1.0 } else { 0.0 };
                assert!((product(low, low) - expected).abs() < 1e-10, "db{order}, {shift}");
                assert!(product(low, &high).abs() < 1e-10, "db{order}, {shift}");
            }
            for moment in 0..order {
                let sum: f64 = (high.iter().enumerate())
                    .map(|(index, value)| (index as f64).powi(moment as i32) * value)
                    .sum();
                assert!(sum.abs() < 1e-3 * 10_f64.powi(moment as i32 - 3), "db{order}: {sum:e}");
            }
        }
    }
}
