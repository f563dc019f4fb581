//! Reading and writing by region holds no array of the size of the image: an allocator notes the largest request.

mod allocated;

use haloscope::io::{self, Access, ReadOptions, WriteOptions};
use haloscope::{Array, Error};
use haloscope_comm::Context;

const SIDES: [usize; 2] = [1536, 1024];
const IMAGE: usize = 4 * 1536 * 1024;

fn value(row: usize, column: usize) -> f32 {
    ((row * 31 + column * 17) % 256) as f32 / 255.0
}

#[test]
fn nothing_of_the_size_of_the_image_is_allocated() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut names =
        vec!["a.npy", "a.tif", "a.nii", "a.fits", "a.nii.gz", "a.npz", "a.png", "a.jpg"];
    if cfg!(feature = "zarr") {
        names.push("a.zarr");
    }
    let [height, width] = SIDES;
    for name in names {
        let path = folder.path().join(name);
        allocated::forget();
        let reads = Context::threads(8, move |ctx| {
            let slab = |rank: usize| vec![rank * height / 8..(rank + 1) * height / 8, 0..width];
            let regions: Vec<_> = (0..8).map(slab).collect();
            let rows = regions[ctx.rank()][0].clone();
            let part = Array::from_shape_fn(vec![1, 1, rows.len(), width], |at| {
                value(rows.start + at[2], at[3])
            });
            let shape = [1, 1, height, width];
            let options = WriteOptions::default();
            io::write_sharded(ctx, &path, &shape, &options, &regions, Some(&part))?;
            let (reader, read) = io::read_sharded(ctx, &path, &ReadOptions::default(), &regions)?;
            let read = read.expect("all ranks have a part");
            let largest = part.iter().zip(&read).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            Ok::<_, Error>((largest, reader.access()))
        });
        let largest = allocated::largest();
        println!(
            "{name}: the largest allocation is {:.3} of the image",
            largest as f64 / IMAGE as f64
        );
        for (difference, access) in reads.expect("no rank fails") {
            // JPEG loses detail, and what was lost here is noise.
            assert!(name == "a.jpg" || difference < 1e-6, "{name}: {difference}");
            assert!(access != Access::Stream || largest < IMAGE, "{name}");
        }
        // A rank's part is an eighth, a band or chunk a sixth, and the pixels of a JPEG picture have a quarter of its bytes.
        assert!(largest <= IMAGE / 3, "{name}: {largest} of {IMAGE} bytes");
    }
}
