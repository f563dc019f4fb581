//! FITS images: cards of 80 letters in blocks of 2880 bytes, and big-endian values, NAXIS1 fastest.
//!
//! The first header unit that has values is read: the primary one, or else the first extension of type
//! IMAGE. Tables and tile-compressed images are not read. Of three axes whose NAXIS3 is 1, the third is
//! left out under [`Axes::Automatic`]. Cards that are about the image are kept, and written again to a FITS file that
//! is made of it. Random groups are visibilities ([`uvfits`](super::uvfits)).

use std::io::{Read, SeekFrom};
use std::path::Path;

use super::metadata::key_of;
use super::plain::Plain;
use super::samples::{self, Encoded, Order, failed_read};
use super::{
    Axes, FitsHeader, Format, Image, Metadata, ReadOptions, Sample, Scaling, Source, Target, uvfits,
};
use crate::array::View;
use crate::error::Result;

/// What headers and values are filled up to a multiple of.
pub(super) const BLOCK: usize = 2880;
const CARD: usize = 80;

/// More cards than any instrument writes.
const MOST_BLOCKS: usize = 4096;

/// More units than are looked through for an image.
const MOST_UNITS: usize = 1024;

pub(super) fn read(source: &mut Source) -> Result<Image> {
    match find(source)? {
        Unit::Image(plain, about) => {
            Ok(Image { array: plain.read(source.name, source.reader)?, ..*about })
        }
        Unit::Groups(header) => uvfits::read_image(source, &header),
    }
}

/// Reads up to the values.
pub(super) fn open(source: &mut Source) -> Result<(Plain, Image)> {
    match find(source)? {
        Unit::Image(plain, about) => Ok((plain, *about)),
        Unit::Groups(_) => {
            Err(source
                .unsupported("it has visibilities in random groups, which are not read in parts"))
        }
    }
}

/// What a file has.
enum Unit {
    Image(Plain, Box<Image>),
    /// Visibilities, whose header this is.
    Groups(Header),
}

fn find(source: &mut Source) -> Result<Unit> {
    for unit in 0..MOST_UNITS {
        let Some(header) = Header::read(source, unit == 0)? else {
            break;
        };
        if unit == 0 && header.has_groups() {
            return Ok(Unit::Groups(header));
        }
        let sides = header.sides(source)?;
        let is_image = unit == 0 || header.text("XTENSION").is_some_and(|kind| kind == "IMAGE");
        if is_image && !sides.is_empty() && !sides.contains(&0) {
            let (plain, about) = understand(source, &header, &sides)?;
            return Ok(Unit::Image(plain, Box::new(about)));
        }
        if header.text("ZIMAGE").is_some_and(|value| value == "T") {
            return Err(source.unsupported("its image is compressed in tiles; unpack it first"));
        }
        header.skip_values(source, &sides)?;
    }
    Err(source.damaged("it has no image: its primary unit is empty and no IMAGE extension follows"))
}

/// The cards of one unit.
pub(super) struct Header {
    cards: Vec<(String, String)>,
    /// All of them as they are, but for those that are no text.
    all: Vec<String>,
}

impl Header {
    /// The next header, or none at the end of the file.
    pub(super) fn read(source: &mut Source, is_first: bool) -> Result<Option<Self>> {
        let (mut cards, mut all) = (Vec::new(), Vec::new());
        for number in 0..MOST_BLOCKS {
            let mut block = Vec::new();
            let failed = |error| failed_read(source.name, &error);
            (&mut *source.reader).take(BLOCK as u64).read_to_end(&mut block).map_err(failed)?;
            if number == 0 && !is_first && !block.starts_with(b"XTENSION") {
                return Ok(None);
            }
            if block.len() < BLOCK {
                return Err(source.damaged("it is cut short: it ends within a header"));
            }
            for card in block.chunks(CARD) {
                let is_text = card.iter().all(|letter| (b' '..=b'~').contains(letter));
                let card = String::from_utf8_lossy(card);
                let (key, rest) = (card.get(..8).unwrap_or("").trim(), card.get(8..).unwrap_or(""));
                if key == "END" {
                    return Ok(Some(Self { cards, all }));
                }
                if is_text {
                    all.push(card.to_string());
                }
                if let Some(value) = rest.strip_prefix("= ") {
                    cards.push((key.to_owned(), value_of(value)));
                }
            }
        }
        Err(source.damaged(format!("a header of more than {MOST_BLOCKS} blocks")))
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.cards.iter().find(|card| card.0 == key).map(|card| &card.1[..])
    }

    pub(super) fn integer(&self, key: &str) -> Option<i64> {
        self.text(key)?.parse().ok()
    }

    pub(super) fn float(&self, key: &str) -> Option<f64> {
        // Fortran's exponents may be a D.
        self.text(key)?.replace(['D', 'd'], "E").parse().ok()
    }

    /// Whether its values are random groups.
    pub(super) fn has_groups(&self) -> bool {
        self.text("GROUPS") == Some("T")
            && self.integer("NAXIS").is_some_and(|axes| axes > 1)
            && self.integer("NAXIS1") == Some(0)
    }

    /// The type of values.
    pub(super) fn sample(&self, source: &Source) -> Result<Sample> {
        Ok(match self.integer("BITPIX") {
            Some(8) => Sample::U8,
            Some(16) => Sample::I16,
            Some(32) => Sample::I32,
            Some(64) => Sample::I64,
            Some(-32) => Sample::F32,
            Some(-64) => Sample::F64,
            Some(other) => {
                let reason = format!("a BITPIX of {other}; FITS has 8, 16, 32, 64, -32 and -64");
                return Err(source.damaged(reason));
            }
            None => return Err(source.damaged("its header has no BITPIX")),
        })
    }

    /// The cards that hold for any file with this image, however it stores values.
    fn about_the_image(&self, options: &ReadOptions) -> Vec<String> {
        let is_scaled = options.raw || options.white.is_some_and(|white| white != 1.0);
        let is_about = |card: &&String| match key_of(card) {
            "SIMPLE" | "XTENSION" | "EXTEND" | "BITPIX" | "PCOUNT" | "GCOUNT" | "GROUPS"
            | "BSCALE" | "BZERO" | "BLANK" | "DATAMIN" | "DATAMAX" | "CHECKSUM" | "DATASUM" => {
                false
            }
            // The unit of values is gone with their scale.
            "BUNIT" => !is_scaled,
            key => !key.starts_with("NAXIS"),
        };
        self.all.iter().filter(is_about).cloned().collect()
    }

    /// NAXIS1, NAXIS2, …
    pub(super) fn sides(&self, source: &Source) -> Result<Vec<u64>> {
        let axes = self.integer("NAXIS").filter(|axes| (0..=999).contains(axes));
        let Some(axes) = axes else {
            return Err(source.damaged("its header has no NAXIS from 0 to 999"));
        };
        let side = |axis| {
            let key = format!("NAXIS{axis}");
            self.integer(&key)
                .and_then(|side| u64::try_from(side).ok())
                .ok_or_else(|| source.damaged(format!("its header has no {key} of 0 or more")))
        };
        (1..=axes).map(side).collect()
    }

    fn skip_values(&self, source: &mut Source, sides: &[u64]) -> Result<()> {
        let count = |key, standard| {
            self.integer(key).map_or(Some(standard), |count| u64::try_from(count).ok())
        };
        let bytes = self.integer("BITPIX").map_or(0, i64::unsigned_abs) / 8;
        let values = if sides.is_empty() {
            Some(0)
        } else {
            sides.iter().try_fold(1_u64, |product, &side| product.checked_mul(side))
        };
        let size = (|| {
            let all = values?.checked_add(count("PCOUNT", 0)?)?.checked_mul(count("GCOUNT", 1)?)?;
            all.checked_mul(bytes)?.checked_next_multiple_of(BLOCK as u64)
        })();
        let size = size.filter(|&size| size <= source.length);
        let Some(size) = size else {
            return Err(source.damaged("it is cut short: an extension is longer than the file"));
        };
        let failed = |error| failed_read(source.name, &error);
        source.reader.seek(SeekFrom::Current(size as i64)).map_err(failed)?;
        Ok(())
    }
}

/// The value of a card without its comment: a string without quotes, or the word.
fn value_of(text: &str) -> String {
    let text = text.trim_start();
    match text.strip_prefix('\'') {
        Some(string) => string.split('\'').next().unwrap_or("").trim_end().to_owned(),
        None => text.split('/').next().unwrap_or("").trim().to_owned(),
    }
}

fn understand(source: &mut Source, header: &Header, sides: &[u64]) -> Result<(Plain, Image)> {
    let sample = header.sample(source)?;
    let axes = sides.len();
    // Pictures of the sky often have a third axis of one value, which makes no volume.
    let sides = match (source.options.axes, sides) {
        (Axes::Automatic, [x, y, 1]) => &[*x, *y][..],
        _ => sides,
    };
    let shape: Vec<u64> = sides.iter().rev().copied().collect();
    let count = source.options.limits.check(source.name, &shape)?;
    let finite = |key: &str, standard: f64| {
        header.float(key).filter(|value| value.is_finite()).unwrap_or(standard)
    };
    let own = Scaling { slope: finite("BSCALE", 1.0), offset: finite("BZERO", 0.0) };
    let scaling = own.and(source.options);
    let blank = header.float("BLANK").filter(|_| !sample.is_float() && !source.options.raw);
    let at = source.reader.stream_position().map_err(|error| failed_read(source.name, &error))?;
    let available = Some(source.length.saturating_sub(at));
    let encoded = Encoded { sample, order: Order::Big, scaling, blank, available };
    encoded.check_available(source.name, count)?;
    let stored: Vec<usize> = shape.iter().map(|&side| side as usize).collect();
    let (places, shape) = source.options.axes.place(source.name, &stored)?;
    let spatial = match source.options.axes {
        Axes::Automatic if sides.len() > 3 => sides.len() - 2,
        Axes::ChannelFirst => sides.len() - 1,
        Axes::Automatic | Axes::Spatial => sides.len(),
        Axes::ChannelLast | Axes::AsStored => 0,
    };
    let spacing = (1..=spatial)
        .rev()
        .map(|axis| header.float(&format!("CDELT{axis}")).map(f64::abs))
        .collect::<Option<Vec<f64>>>()
        .filter(|spacing| !spacing.is_empty());
    let fits = Some(FitsHeader { cards: header.about_the_image(source.options), axes });
    let about = Image {
        spacing,
        metadata: Metadata { fits, ..Metadata::default() },
        ..Image::about(Format::Fits, sample, scaling)
    };
    Ok((Plain { encoded, stored, axes: places, shape }, about))
}

/// One image as the primary unit; a batch and channels of 1 are left out.
pub(super) fn write(target: &Target, path: &Path, array: &View) -> Result<()> {
    let header = make_header(target, array.shape())?;
    let size = array.len() * 4;
    super::write_atomically(path, |file| {
        file.write_all(&header)?;
        samples::write(file, array.iter().copied(), Sample::F32, Order::Big, 1.0)?;
        file.write_all(&vec![0; size.next_multiple_of(BLOCK) - size])
    })
}

/// What is before the values of an array of this shape.
pub(super) fn make_header(target: &Target, shape: &[usize]) -> Result<Vec<u8>> {
    let sides = match shape {
        [1, 1, sides @ ..] if (2..=3).contains(&sides.len()) => sides,
        all if (4..=5).contains(&all.len()) => all,
        _ => return Err(target.refuse(shape, "(batch, channel, spatial…), of two or three sides")),
    };
    let known = target.options.metadata.fits.clone().unwrap_or_default();
    // The axes of one value that the original has; of fewer axes, the cards would not be right.
    let axes = sides.len().max(known.axes);
    let known = if known.axes < sides.len() { known.without_places() } else { known };
    let sides: Vec<usize> = [&vec![1; axes - sides.len()], sides].concat();
    let mut cards =
        vec![card("SIMPLE", "T"), card("BITPIX", "-32"), card("NAXIS", &axes.to_string())];
    for (axis, side) in sides.iter().rev().enumerate() {
        cards.push(card(&format!("NAXIS{}", axis + 1), &side.to_string()));
    }
    let has_places = known.has_places();
    let is_card = |card: &String| card.len() == CARD && card.is_ascii() && key_of(card) != "END";
    cards.extend(known.cards.into_iter().filter(is_card));
    if let Some(spacing) = target.options.spacing.as_ref().filter(|_| !has_places) {
        for (axis, step) in spacing.iter().rev().enumerate() {
            cards.push(card(&format!("CDELT{}", axis + 1), &format!("{step:E}")));
        }
    }
    cards.push(format!("{:CARD$}", "END"));
    let mut header = cards.concat();
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(BLOCK) - header.len()));
    Ok(header.into_bytes())
}

fn card(key: &str, value: &str) -> String {
    format!("{:CARD$}", format!("{key:8}= {value:>20}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_cards_come_without_comments() {
        assert_eq!(value_of("                  -32 / bits per value"), "-32");
        assert_eq!(value_of("'IMAGE   '           / kind / of unit"), "IMAGE");
        assert_eq!(value_of("  1.5D3"), "1.5D3");
        assert_eq!(card("NAXIS", "2").len(), CARD);
    }
}
