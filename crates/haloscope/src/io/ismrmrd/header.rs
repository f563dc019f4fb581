//! The XML header of an ISMRMRD file: the grids that were measured and are wanted, and the middle of each counter.

use roxmltree::{Document, Node, ParsingOptions};

use crate::error::{Error, Result};

/// A header of more nodes is none that a scanner wrote.
const MOST_NODES: u32 = 1 << 20;

/// A grid and the field of view that it covers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Space {
    /// Samples along the read, the first and the second phase direction: x, y and z.
    pub matrix: [usize; 3],
    /// Millimetres along them.
    pub field: [f64; 3],
}

/// What the header says about the first of its encodings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// What was measured.
    pub encoded: Space,
    /// What the image should be.
    pub recon: Space,
    /// `cartesian`, `radial`, `spiral`, `epi` and others.
    pub trajectory: String,
    /// The counters at frequency 0 along y and z.
    pub(super) centres: [Option<usize>; 2],
}

impl Header {
    /// Reads a header; `name` is that of its file.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self> {
        let damaged = |reason: String| Error::Content { file: name.into(), reason };
        let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text.trim_end_matches('\0'), options)
            .map_err(|error| damaged(format!("its XML header cannot be read: {error}")))?;
        let Some(encoding) = child(document.root_element(), "encoding") else {
            return Err(damaged("its XML header has no `encoding`".into()));
        };
        let space = |key: &str| -> Result<Space> {
            let missing = || damaged(format!("its XML header has no `{key}` with a matrix"));
            let node = child(encoding, key).ok_or_else(missing)?;
            let matrix = child(node, "matrixSize").ok_or_else(missing)?;
            let field = child(node, "fieldOfView_mm");
            let mut space = Space::default();
            for (axis, letter) in ["x", "y", "z"].into_iter().enumerate() {
                space.matrix[axis] = number(matrix, letter).ok_or_else(missing)?;
                space.field[axis] = field.and_then(|node| number(node, letter)).unwrap_or(0.0);
            }
            Ok(space)
        };
        let limits = child(encoding, "encodingLimits");
        let centre = |key: &str| number(child(limits?, key)?, "center");
        Ok(Self {
            encoded: space("encodedSpace")?,
            recon: space("reconSpace")?,
            trajectory: child(encoding, "trajectory")
                .and_then(|node| node.text())
                .map_or_else(|| "cartesian".into(), |text| text.trim().to_lowercase()),
            centres: [centre("kspace_encoding_step_1"), centre("kspace_encoding_step_2")],
        })
    }

    /// Whether the lines that were measured are longer than those of the image because the scanner took samples at shorter
    /// distances than the field of view needs.
    pub(super) fn is_oversampled(&self) -> bool {
        let [[many, ..], [few, ..]] = [self.encoded.matrix, self.recon.matrix];
        let [[wide, ..], [narrow, ..]] = [self.encoded.field, self.recon.field];
        let ratio = many as f64 / few.max(1) as f64;
        // Without fields of view the grids have to do.
        let is_same_pixel =
            wide <= 0.0 || narrow <= 0.0 || (wide / narrow / ratio - 1.0).abs() < 0.01;
        many > few && few > 0 && is_same_pixel
    }
}

fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.tag_name().name() == name)
}

fn number<T: std::str::FromStr>(node: Node, name: &str) -> Option<T> {
    child(node, name)?.text()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "<?xml version='1.0'?><ismrmrdHeader xmlns='http://www.ismrm.org/ISMRMRD'><encoding><encodedSpace>\
        <matrixSize><x>64</x><y>30</y><z>1</z></matrixSize><fieldOfView_mm><x>600</x><y>300</y><z>5</z></fieldOfView_mm>\
        </encodedSpace><reconSpace><matrixSize><x>32</x><y>30</y><z>1</z></matrixSize><fieldOfView_mm><x>300</x><y>300</y>\
        <z>5</z></fieldOfView_mm></reconSpace><encodingLimits><kspace_encoding_step_1><minimum>0</minimum>\
        <maximum>29</maximum><center>15</center></kspace_encoding_step_1></encodingLimits><trajectory>Cartesian</trajectory>\
        </encoding></ismrmrdHeader>";

    #[test]
    fn grids_and_centres_are_found() -> Result<()> {
        let header = Header::parse("scan.h5", TEXT)?;
        assert_eq!(header.encoded.matrix, [64, 30, 1]);
        assert_eq!(header.recon, Space { matrix: [32, 30, 1], field: [300.0, 300.0, 5.0] });
        assert_eq!((header.trajectory.as_str(), header.centres), ("cartesian", [Some(15), None]));
        assert!(header.is_oversampled());
        // Fewer samples over the same field are pixels of another size.
        let zoomed = TEXT.replace("<x>600</x>", "<x>300</x>");
        assert!(!Header::parse("scan.h5", &zoomed)?.is_oversampled());
        let prefixed = TEXT.replace("xmlns=", "xmlns:i=").replace("<enc", "<i:enc");
        assert!(Header::parse("scan.h5", &prefixed.replace("</enc", "</i:enc")).is_ok());
        Ok(())
    }

    #[test]
    fn headers_without_grids_are_refused() {
        let message = |text: &str| Header::parse("scan.h5", text).expect_err("refused").to_string();
        assert!(message("no xml").contains("cannot be read"));
        assert!(message("<a/>").contains("`encoding`"));
        assert!(message(&TEXT.replace("reconSpace", "other")).contains("`reconSpace`"));
        assert!(message(&TEXT.replace("<x>64</x>", "<x>-4</x>")).contains("`encodedSpace`"));
    }
}
