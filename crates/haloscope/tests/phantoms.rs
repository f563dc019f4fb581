//! The head of Shepp and Logan is that of scikit-image and of deepinv, pixel by pixel.

use std::path::Path;

use haloscope::io::{self, ReadOptions};
use haloscope::phantom::{Placement, SheppLogan, Table};

#[test]
fn head_is_that_of_other_programs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/phantoms");
    for (name, side) in [("skimage-400.png", 400), ("deepinv-128.png", 128)] {
        let expected = io::read(folder.join(name), &ReadOptions::default()).expect(name).array;
        let head = SheppLogan::new(Table::Modified).with_placement(Placement::ToTheBorder);
        let head = head.draw(&[side, side]).expect("a head");
        assert_eq!(head.shape(), expected.shape());
        let differ = head.iter().zip(&expected).filter(|(a, b)| (**a - **b).abs() > 2.5 / 255.0);
        assert_eq!(differ.count(), 0, "{name}");
    }
}
