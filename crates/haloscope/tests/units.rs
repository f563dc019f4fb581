//! What values, shapes and notes in files mean is the same for all formats. Files are made byte by byte here, as
//! instruments write them.

use std::fs;
use std::path::PathBuf;

use haloscope::Array;
use haloscope::io::{self, LengthUnit, ReadOptions, Sample, Scaling, WriteOptions};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.path(name), bytes).expect("written");
        self.path(name)
    }
}

fn read(path: PathBuf) -> io::Image {
    io::read(path, &ReadOptions::default()).expect("readable")
}

/// Counts of a camera of 12 bits, (page, height, width).
fn count(page: usize, y: usize, x: usize) -> u16 {
    ((page * 977 + y * 131 + x * 37) % 4096) as u16
}

/// Pages of 16 bits, uncompressed, little-endian, with a tag for their orientation.
fn tiff(pages: usize, height: usize, width: usize, orientation: u16) -> Vec<u8> {
    let mut bytes = b"II*\0".to_vec();
    let size = 2 * width * height;
    // Values of all pages, then their directories.
    let mut directory = 8 + pages * size;
    bytes.extend((directory as u32).to_le_bytes());
    for page in 0..pages {
        for at in 0..width * height {
            bytes.extend(count(page, at / width, at % width).to_le_bytes());
        }
    }
    for page in 0..pages {
        let tags: [(u16, u16, u32); 9] = [
            (256, 4, width as u32),
            (257, 4, height as u32),
            (258, 3, 16),
            (259, 3, 1),
            (262, 3, 1),
            (273, 4, (8 + page * size) as u32),
            (274, 3, u32::from(orientation)),
            (278, 4, height as u32),
            (279, 4, size as u32),
        ];
        bytes.extend((tags.len() as u16).to_le_bytes());
        for (tag, kind, value) in tags {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(1_u32.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        directory += 2 + 12 * tags.len() + 4;
        let next = if page + 1 < pages { directory } else { 0 };
        bytes.extend((next as u32).to_le_bytes());
    }
    bytes
}

fn npy(kind: &str, shape: &str, values: impl Iterator<Item = u16>) -> Vec<u8> {
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(values.flat_map(u16::to_le_bytes));
    bytes
}

fn fits(cards: &[String], values: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        cards.iter().flat_map(|card| format!("{card:80}").into_bytes()).collect();
    bytes.extend(format!("{:80}", "END").as_bytes());
    bytes.resize(bytes.len().next_multiple_of(2880), b' ');
    bytes.extend(values);
    bytes.resize(bytes.len().next_multiple_of(2880), 0);
    bytes
}

fn card(key: &str, value: &str) -> String {
    format!("{key:8}= {value:>20}")
}

#[test]
fn counts_are_the_same_counts_in_every_format() {
    let folder = Folder::new();
    let expected =
        Array::from_shape_fn(vec![1, 1, 3, 4, 5], |at| f32::from(count(at[2], at[3], at[4])));
    let all = || expected.iter().map(|&value| value as u16);
    let stack = read(folder.write("counts.tif", &tiff(3, 4, 5, 1)));
    assert_eq!(stack.array, expected);
    assert_eq!((stack.sample, stack.scaling), (Sample::U16, Scaling::NONE));
    assert_eq!(stack.describe(), "TIFF, 16-bit unsigned, as stored");
    assert_eq!(read(folder.write("counts.npy", &npy("<u2", "3, 4, 5", all()))).array, expected);
    // Unsigned integers are signed ones with an offset in FITS.
    let stored: Vec<u8> = all().flat_map(|v| v.wrapping_sub(32768).to_be_bytes()).collect();
    let sides = [("NAXIS1", "5"), ("NAXIS2", "4"), ("NAXIS3", "3"), ("BZERO", "32768.0")];
    let head = [("SIMPLE", "T"), ("BITPIX", "16"), ("NAXIS", "3")];
    let cards: Vec<String> = head.into_iter().chain(sides).map(|(k, v)| card(k, v)).collect();
    assert_eq!(read(folder.write("counts.fits", &fits(&cards, &stored))).array, expected);
    for name in ["counts.nii", "counts.npz"] {
        let options = WriteOptions { sample: Some(Sample::U16), ..WriteOptions::default() };
        io::write(folder.path(name), &expected, &options).expect("written");
        assert_eq!(read(folder.path(name)).array, expected, "{name}");
    }
    // A picture alone is from 0 to 1.
    let slice = expected.index_axis(ndarray::Axis(2), 0).to_owned();
    let options = WriteOptions { sample: Some(Sample::U16), raw: true, ..WriteOptions::default() };
    io::write(folder.path("counts.png"), &slice, &options).expect("written");
    let picture = read(folder.path("counts.png"));
    assert!((&picture.array * 65_535.0 - &slice).iter().all(|v| v.abs() < 0.01));
    assert_eq!(picture.describe(), "PNG, 16-bit unsigned, 65535 is 1");
}

#[test]
fn white_is_the_stored_value_that_becomes_1_in_every_format() {
    let folder = Folder::new();
    let counts = Array::from_shape_fn(vec![1, 1, 4, 5], |at| f32::from(count(0, at[2], at[3])));
    let twelve = ReadOptions { white: Some(4095.0), ..ReadOptions::default() };
    folder.write("counts.tif", &tiff(1, 4, 5, 1));
    let all = counts.iter().map(|&value| value as u16);
    folder.write("counts.npy", &npy("<u2", "4, 5", all));
    let stored = WriteOptions { sample: Some(Sample::U16), raw: true, ..WriteOptions::default() };
    io::write(folder.path("counts.png"), &counts, &stored).expect("written");
    let mut names = vec!["counts.tif", "counts.npy", "counts.png", "counts.fits", "counts.nii"];
    io::write(folder.path("counts.fits"), &counts, &WriteOptions::default()).expect("written");
    io::write(folder.path("counts.nii"), &counts, &WriteOptions::default()).expect("written");
    if cfg!(feature = "hdf5") {
        names.push("counts.h5");
        io::write(folder.path("counts.h5"), &counts, &WriteOptions::default()).expect("written");
    }
    if cfg!(feature = "zarr") {
        names.push("counts.zarr");
        io::write(folder.path("counts.zarr"), &counts, &WriteOptions::default()).expect("written");
    }
    for name in names {
        let image = io::read(folder.path(name), &twelve).expect(name);
        let largest = (&image.array * 4095.0 - &counts).fold(0.0_f32, |most, d| most.max(d.abs()));
        assert!(largest < 1e-3, "{name}: {largest}");
        assert!(image.describe().ends_with("4095 is 1"), "{}", image.describe());
    }
    for white in [0.0, -1.0, f64::NAN] {
        let options = ReadOptions { white: Some(white), ..ReadOptions::default() };
        let error = io::read(folder.path("counts.npy"), &options).expect_err("no white");
        assert!(error.to_string().contains("above 0"), "{error}");
    }
}

/// Where a pixel of the upright picture of `height` rows and `width` columns is stored, by the definition of the tag:
/// which sides of the picture the first stored row and column are.
fn stored_at(
    orientation: u16,
    (y, x): (usize, usize),
    (height, width): (usize, usize),
) -> [usize; 2] {
    let (bottom, right) = (height - 1 - y, width - 1 - x);
    match orientation {
        1 => [y, x],          // row 0 is the top, column 0 the left
        2 => [y, right],      // top, right
        3 => [bottom, right], // bottom, right
        4 => [bottom, x],     // bottom, left
        5 => [x, y],          // left, top
        6 => [right, y],      // right, top
        7 => [right, bottom], // right, bottom
        _ => [x, bottom],     // left, bottom
    }
}

#[test]
fn turned_pictures_are_read_upright() {
    let folder = Folder::new();
    for orientation in 1..=8_u16 {
        let pages = 2;
        let image = read(folder.write("turned.tif", &tiff(pages, 4, 6, orientation)));
        let (height, width) = if orientation < 5 { (4, 6) } else { (6, 4) };
        assert_eq!(image.array.shape(), [1, 1, pages, height, width], "{orientation}");
        for (at, &value) in image.array.indexed_iter() {
            let [row, column] = stored_at(orientation, (at[3], at[4]), (height, width));
            assert_eq!(value, f32::from(count(at[2], row, column)), "{orientation} {at:?}");
        }
    }
    // Photographs of telephones: four quarters of one shade each, which JPEG keeps nearly.
    let shade = |y: usize, x: usize| [0.1, 0.4, 0.7, 1.0][2 * (y / 16) + x / 24];
    let stored = Array::from_shape_fn(vec![1, 3, 32, 48], |at| shade(at[2], at[3]));
    let plain = folder.path("plain.jpg");
    io::write(&plain, &stored, &WriteOptions::default()).expect("written");
    let plain = fs::read(plain).expect("bytes");
    for orientation in 1..=8_u16 {
        let mut note = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01".to_vec();
        note.extend([&orientation.to_be_bytes()[..], &[0; 6]].concat());
        let mut bytes = plain[..2].to_vec();
        bytes.extend([0xff, 0xe1]);
        bytes.extend((note.len() as u16 + 2).to_be_bytes());
        bytes.extend(note);
        bytes.extend(&plain[2..]);
        let image = read(folder.write("turned.jpg", &bytes));
        let (height, width) = if orientation < 5 { (32, 48) } else { (48, 32) };
        assert_eq!(image.array.shape(), [1, 3, height, width], "{orientation}");
        for (y, x) in [(4, 4), (4, width - 5), (height - 5, 4), (height - 5, width - 5)] {
            let [row, column] = stored_at(orientation, (y, x), (height, width));
            let (found, expected) = (image.array[[0, 1, y, x]], shade(row, column));
            assert!((found - expected).abs() < 0.03, "{orientation}: {found} {expected}");
        }
    }
}

#[test]
fn the_cards_of_a_sky_survey_are_passed_on() {
    let folder = Folder::new();
    // A channel map of radio astronomy: two axes of one value each.
    let head = [("SIMPLE", "T"), ("BITPIX", "-32"), ("NAXIS", "4"), ("NAXIS1", "3")];
    let sides = [("NAXIS2", "2"), ("NAXIS3", "1"), ("NAXIS4", "1"), ("BSCALE", "2.0")];
    let mut cards: Vec<String> = head.into_iter().chain(sides).map(|(k, v)| card(k, v)).collect();
    let about = [
        card("CTYPE1", "'RA---SIN'"),
        card("CDELT1", "-2.0E-3"),
        card("CDELT2", "2.0E-3"),
        card("CTYPE4", "'STOKES  '"),
        card("OBJECT", "'M 31    '           / it's / a galaxy"),
        card("BUNIT", "'JY/BEAM '"),
        "HISTORY cleaned with 1000 iterations".into(),
    ];
    cards.extend(about.clone());
    let values: Vec<u8> = (0..6_u16).flat_map(|v| f32::from(v).to_be_bytes()).collect();
    let original = read(folder.write("sky.fits", &fits(&cards, &values)));
    assert_eq!(original.array.shape(), [1, 1, 2, 3]);
    let copy = folder.path("copy.fits");
    io::write(&copy, &original.array, &original.write_options(&copy)).expect("written");
    let text = String::from_utf8_lossy(&fs::read(&copy).expect("bytes")[..2880]).into_owned();
    let found: Vec<&str> = (0..36)
        .map(|at| text[80 * at..80 * at + 80].trim_end())
        .take_while(|c| *c != "END")
        .collect();
    for expected in &about {
        assert_eq!(
            found.iter().filter(|card| card == &expected).count(),
            1,
            "{expected}: {found:?}"
        );
    }
    // The axes that the cards speak of are there, and nothing that is no longer so.
    assert!(found.contains(&card("NAXIS", "4").as_str()) && found.contains(&&*card("NAXIS3", "1")));
    assert!(!text.contains("BSCALE"));
    assert_eq!(found.iter().filter(|card| card.starts_with("CDELT1")).count(), 1);
    let back = read(copy);
    assert_eq!(back.array, original.array);
    assert_eq!(back.array[[0, 0, 1, 2]], 10.0);
    assert_eq!(back.metadata, original.metadata);
    // Values in other units have not the unit of the file.
    let scaled = ReadOptions { white: Some(10.0), ..ReadOptions::default() };
    let scaled = io::read(folder.path("sky.fits"), &scaled).expect("readable");
    let cards = scaled.metadata.fits.expect("a header").cards;
    assert!(cards.len() == about.len() - 1 && !cards.iter().any(|card| card.contains("BUNIT")));
}

#[test]
fn the_unit_of_voxels_is_passed_on() {
    let folder = Folder::new();
    let volume = Array::zeros(vec![1, 1, 2, 3, 4]);
    let path = folder.path("micro.nii");
    let spacing = Some(vec![0.5, 0.25, 0.25]);
    let options = WriteOptions { spacing: spacing.clone(), ..WriteOptions::default() };
    io::write(&path, &volume, &options).expect("written");
    let mut bytes = fs::read(&path).expect("bytes");
    assert_eq!(bytes[123], 2, "millimetres unless something else is known");
    // Micrometres, and seconds of time.
    bytes[123] = 3 | 8;
    fs::write(&path, bytes).expect("written");
    let image = read(path);
    assert_eq!(image.metadata.unit, Some(LengthUnit::Micrometre));
    let mut names = vec!["copy.nii", "copy.nii.gz"];
    if cfg!(feature = "zarr") {
        names.push("copy.zarr");
    }
    for name in names {
        let path = folder.path(name);
        io::write(&path, &image.array, &image.write_options(&path)).expect(name);
        let copy = read(path);
        assert_eq!((copy.metadata.unit, &copy.spacing), (image.metadata.unit, &spacing), "{name}");
    }
}

#[test]
fn one_image_of_one_channel_has_no_other_axes_in_numpy() {
    let folder = Folder::new();
    for (shape, expected) in [
        (vec![1, 1, 4, 5], "'shape': (4, 5),"),
        (vec![1, 1, 3, 4, 5], "'shape': (3, 4, 5),"),
        (vec![1, 3, 4, 5], "'shape': (1, 3, 4, 5),"),
        (vec![2, 1, 4, 5], "'shape': (2, 1, 4, 5),"),
        (vec![7], "'shape': (7,),"),
    ] {
        let path = folder.path("array.npy");
        io::write(&path, &Array::ones(shape.clone()), &WriteOptions::default()).expect("written");
        let text = String::from_utf8_lossy(&fs::read(&path).expect("bytes")).into_owned();
        assert!(text.contains(expected), "{shape:?}: {text:.100}");
        if shape.len() > 1 {
            assert_eq!(read(path).array.shape(), shape);
        }
    }
}

#[test]
fn floats_of_16_bits_are_read() {
    let folder = Folder::new();
    // 1, −2, 65504 (the largest), 2⁻²⁴ (the smallest).
    let bits = [0x3c00, 0xc000, 0x7bff, 0x0001_u16];
    let image = read(folder.write("half.npy", &npy("<f2", "2, 2", bits.into_iter())));
    let expected = [1.0, -2.0, 65_504.0, 2_f32.powi(-24)];
    assert_eq!(image.array.iter().copied().collect::<Vec<_>>(), expected);
    assert_eq!(image.sample, Sample::F16);
    let path = folder.path("copy.npy");
    io::write(&path, &image.array, &image.write_options(&path)).expect("written");
    assert!(fs::read(&path).expect("bytes").ends_with(&[0x00, 0x3c, 0, 0xc0, 0xff, 0x7b, 1, 0]));
}

#[test]
fn a_wrong_number_in_a_header_is_said_as_a_number() {
    let folder = Folder::new();
    let bad = |bits: &[(&str, &str)]| {
        let cards: Vec<String> = bits.iter().map(|(key, value)| card(key, value)).collect();
        let path = folder.write("bad.fits", &fits(&cards, &[0; 4]));
        io::read(path, &ReadOptions::default()).expect_err("refused").to_string()
    };
    let sides = [("NAXIS", "2"), ("NAXIS1", "2"), ("NAXIS2", "2")];
    let message = bad(&[&[("SIMPLE", "T"), ("BITPIX", "13")], &sides[..]].concat());
    assert!(message.contains("a BITPIX of 13; FITS has 8, 16, 32, 64, -32 and -64"), "{message}");
    let message = bad(&[&[("SIMPLE", "T")], &sides[..]].concat());
    assert!(message.contains("no BITPIX"), "{message}");
}

#[test]
fn what_a_file_cannot_hold_is_known_before_there_is_an_array() {
    for (name, shape) in
        [("a.png", vec![1, 1, 2, 3, 4]), ("a.tif", vec![1, 2, 3, 4]), ("a.nii", vec![2, 1, 3, 4])]
    {
        let error = io::check_shape(name, &shape).expect_err(name).to_string();
        assert!(error.contains(name), "{error}");
    }
    for name in ["a.npy", "a.fits", "a.zarr", "a.tif"] {
        io::check_shape(name, &[1, 1, 2, 3, 4]).expect(name);
    }
}
