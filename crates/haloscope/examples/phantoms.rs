//! Writes the phantoms as pictures: `cargo run --release -p haloscope --example phantoms -- FOLDER [SIDE]`

use std::path::PathBuf;

use haloscope::io::{self, WriteOptions};
use haloscope::phantom::{SheppLogan, Table, landscape};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("a folder is needed")?);
    let side = arguments.next().map_or(Ok(512), |side| side.parse())?;
    let picture = landscape(side, side)?;
    io::write(folder.join("landscape.png"), &picture, &WriteOptions::default())?;
    let head = SheppLogan::new(Table::Modified).with_points(3);
    io::write(folder.join("head.png"), &head.draw(&[side, side])?, &WriteOptions::default())?;
    let volume = head.draw(&[64, 64, 64])?;
    io::write(folder.join("head.nii.gz"), &volume, &WriteOptions::default())?;
    Ok(())
}
