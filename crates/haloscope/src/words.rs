//! Numbers in words: with their nouns, and as sides.

/// `1 tile`, `2 tiles`: a count and a noun whose plural ends in s.
#[must_use]
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// `1024x768`: the sides of an image, of a tile or of a grid.
#[must_use]
pub fn sides(lengths: &[usize]) -> String {
    lengths.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_all_else_is_plural() {
        assert_eq!([0, 1, 2].map(|number| count(number, "rank")), ["0 ranks", "1 rank", "2 ranks"]);
    }
}
