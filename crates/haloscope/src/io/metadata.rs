//! What a file says about an image beyond its values and where they are, for files that are made of it.

/// What is passed on from a file to another of a format that can say the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// The unit of the spacing, where the file names one: NIfTI and OME-Zarr.
    pub unit: Option<LengthUnit>,
    /// The header of a FITS file.
    pub fits: Option<FitsHeader>,
}

/// A unit of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthUnit {
    /// m
    Metre,
    /// mm
    Millimetre,
    /// µm
    Micrometre,
}

impl LengthUnit {
    /// The name that OME-Zarr has for it.
    #[cfg(feature = "zarr")]
    pub(super) fn ome(self) -> &'static str {
        match self {
            Self::Metre => "meter",
            Self::Millimetre => "millimeter",
            Self::Micrometre => "micrometer",
        }
    }

    #[cfg(feature = "zarr")]
    pub(super) fn of_ome(name: &str) -> Option<Self> {
        [Self::Metre, Self::Millimetre, Self::Micrometre]
            .into_iter()
            .find(|unit| unit.ome() == name)
    }
}

/// The cards of a FITS header that are about the image, and not about how its values are stored: where it is in the
/// sky, who took it and when, comments and history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FitsHeader {
    /// 80 letters each, in the order of the file.
    pub cards: Vec<String>,
    /// NAXIS: axes of one value, of frequency or polarisation, are left out of arrays and written again.
    pub axes: usize,
}

impl FitsHeader {
    /// Of an image of the sky, rows and columns, with square cells of so many degrees, whose middle, pixel `side / 2` along each
    /// side, is at a right ascension and declination in degrees. Columns go to the east and rows to the north. Without a centre the
    /// coordinates are offsets from it.
    #[must_use]
    pub fn tangent(cell: f64, sides: [usize; 2], centre: Option<[f64; 2]>) -> Self {
        let number = |key: String, value: f64| {
            let text = format!("{value:E}");
            let text = if text.contains('.') { text } else { text.replace('E', ".0E") };
            format!("{:80}", format!("{key:8}= {text:>20}"))
        };
        let word = |key: String, text: &str| {
            format!("{:80}", format!("{key:8}= {:20}", format!("'{text:8}'")))
        };
        let [rows, columns] = sides;
        let mut cards = Vec::new();
        for (axis, (side, name)) in (1..).zip([(columns, "RA---SIN"), (rows, "DEC--SIN")]) {
            if let Some(centre) = centre {
                cards.push(word(format!("CTYPE{axis}"), name));
                cards.push(number(format!("CRVAL{axis}"), centre[axis - 1]));
            } else {
                cards.push(number(format!("CRVAL{axis}"), 0.0));
            }
            cards.push(number(format!("CRPIX{axis}"), (side / 2 + 1) as f64));
            cards.push(number(format!("CDELT{axis}"), cell));
            cards.push(word(format!("CUNIT{axis}"), "deg"));
        }
        Self { cards, axes: 2 }
    }

    /// Without the cards that say where pixels are, for an image whose pixels are elsewhere.
    #[must_use]
    pub fn without_places(mut self) -> Self {
        self.cards.retain(|card| !is_place(card));
        self
    }

    /// Whether cards say where pixels are.
    pub(super) fn has_places(&self) -> bool {
        self.cards.iter().any(|card| is_place(card))
    }
}

/// The key of a card.
pub(super) fn key_of(card: &str) -> &str {
    card.get(..8).unwrap_or(card).trim_end()
}

/// Words of world coordinates that have the number of an axis, or of two.
const NUMBERED: [&str; 9] =
    ["CTYPE", "CRVAL", "CRPIX", "CDELT", "CUNIT", "CROTA", "CD", "PC", "PV"];

/// Whether a card is one of world coordinates: a word and the number of an axis, or of two.
fn is_place(card: &str) -> bool {
    let key = key_of(card);
    let word = key.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '_');
    // Other descriptions of the same image have a letter at the end.
    let word = match word.strip_suffix(|letter: char| letter.is_ascii_uppercase()) {
        Some(shorter) if shorter.ends_with(|letter: char| letter.is_ascii_digit()) => {
            shorter.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '_')
        }
        _ => word,
    };
    word.len() < key.len() && NUMBERED.contains(&word)
        || matches!(key, "WCSAXES" | "LONPOLE" | "LATPOLE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn world_coordinates_are_told_from_other_cards() {
        for place in ["CTYPE1", "CD1_2", "PC001002", "CRVAL2A", "CD1_1B", "WCSAXES", "CDELT3"] {
            assert!(is_place(&format!("{place:8}= 1")), "{place}");
        }
        for other in ["OBJECT", "CD", "PCOUNT", "EXPTIME", "HISTORY", "DATE-OBS", "CCDTEMP1"] {
            assert!(!is_place(&format!("{other:8}= 1")), "{other}");
        }
    }
}
