//! Numbers with their nouns.

/// `1 tile`, `2 tiles`: a count and a noun whose plural ends in s.
#[must_use]
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_all_else_is_plural() {
        assert_eq!([0, 1, 2].map(|number| count(number, "rank")), ["0 ranks", "1 rank", "2 ranks"]);
    }
}
