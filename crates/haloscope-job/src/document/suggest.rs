//! What a word that is unknown may have been meant to be.

/// ` (did you mean …?)`, if one of the words is near.
pub(super) fn suggest<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> String {
    let nearest = words.min_by_key(|other| strsim::damerau_levenshtein(word, other));
    match nearest {
        Some(nearest) if is_near(word, nearest) => format!(" (did you mean `{nearest}`?)"),
        _ => String::new(),
    }
}

/// Whether one word may be a slip of the other: a third of the letters, or the beginning.
pub(super) fn is_near(word: &str, other: &str) -> bool {
    let slips = strsim::damerau_levenshtein(word, other);
    slips <= word.len().max(other.len()).div_ceil(3) || (word.len() > 2 && other.starts_with(word))
}

/// `a, b and c`.
pub(super) fn enumerate<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let words: Vec<&str> = words.collect();
    match words.split_last() {
        None => "none".into(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}
