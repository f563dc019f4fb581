//! Tables whose last row is incomplete, after a power cut, a full disk or a killed process.
//!
//! Readers skip such a row with a warning. A wrong row in the middle is an error.

use std::path::Path;

use csv::ByteRecord;

use crate::columns;

/// The rows of `file`, whose content this is, without a last one that is torn: one with fewer cells than the first line has,
/// or, as studies end every row with a line break, one of theirs without it.
pub(crate) fn whole_rows<'a>(file: &Path, content: &'a [u8]) -> &'a [u8] {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(content);
    let mut record = ByteRecord::new();
    let (mut header, mut begin, mut cells) = (None, 0, 0);
    // Bytes in memory can always be read, whatever they mean.
    while reader.read_byte_record(&mut record).is_ok_and(|is_there| is_there) {
        header.get_or_insert_with(|| record.clone());
        begin = record.position().map_or(0, csv::Position::byte) as usize;
        cells = record.len();
    }
    let is_torn = header.is_some_and(|header| {
        let is_of_study = columns::of_study(header.iter()).is_some();
        cells < header.len() || (is_of_study && !content.ends_with(b"\n"))
    });
    if !is_torn {
        return content;
    }
    log::warn!("{}: the last row is torn, and is left out", file.display());
    &content[..begin]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(content: &str) -> String {
        let rows = whole_rows(Path::new("rows.csv"), content.as_bytes());
        String::from_utf8(rows.to_vec()).expect("text")
    }

    #[test]
    fn a_last_row_with_too_few_cells_is_left_out() {
        assert_eq!(whole("a,b,c\n1,2,3\n4,5\n"), "a,b,c\n1,2,3\n");
        assert_eq!(whole("a,b,c\n1,2,3\n4,\"5"), "a,b,c\n1,2,3\n");
        assert_eq!(whole("a,b,c\n1,2,3\n\0\0\0\0"), "a,b,c\n1,2,3\n");
    }

    #[test]
    fn whole_tables_stay_as_they_are() {
        for content in [
            "",
            "a,b,c\n",
            "a,b,c\n1,2,3\n",
            "a,b,c\r\n1,2,3\r\n\r\n",
            // Other programs need not end their last row.
            "a,b,c\n1,2,3",
            "a,b,c\n1,2,\"a line\nand another\"\n",
            // A reader is to complain about this one.
            "a,b,c\n1\n1,2,3\n",
        ] {
            assert_eq!(whole(content), content);
        }
    }

    #[test]
    fn a_row_of_a_study_that_does_not_end_is_left_out() {
        let header = columns::names().collect::<Vec<_>>().join(",") + "\n";
        let row = vec!["1"; columns::names().count()].join(",");
        assert_eq!(whole(&format!("{header}{row}\n")), format!("{header}{row}\n"));
        assert_eq!(whole(&format!("{header}{row}\n{row}")), format!("{header}{row}\n"));
        assert_eq!(whole(header.trim_end()), "");
    }
}
