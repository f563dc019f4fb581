//! Bytes as text (RFC 4648), for pictures inside a page.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the text of some bytes.
pub fn encode(bytes: &[u8], text: &mut String) {
    text.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= group.len() { DIGITS[index as usize].into() } else { '=' });
        }
    }
}

/// The bytes of a text, for tests of what is in a page.
#[cfg(test)]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for group in text.as_bytes().chunks(4) {
        let digits = group.iter().filter(|digit| **digit != b'=').count();
        let mut bits = 0;
        for &digit in &group[..digits] {
            bits = (bits << 6) | DIGITS.iter().position(|known| *known == digit)? as u32;
        }
        bits <<= 6 * (4 - digits);
        bytes.extend(&bits.to_be_bytes()[1..digits]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_standard() {
        let expected = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, expected) in expected.into_iter().enumerate() {
            let mut text = String::new();
            encode(&b"foobar"[..length], &mut text);
            assert_eq!(text, expected);
            assert_eq!(decode(&text).as_deref(), Some(&b"foobar"[..length]));
        }
        let mut text = String::new();
        encode(&[0xfb, 0xff, 0xfe], &mut text);
        assert_eq!(text, "+//+");
    }
}
