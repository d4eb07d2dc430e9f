//! Misspelt keys.

/// Longest text that is compared, in bytes: a longer one is no misspelt key.
const BYTES_MAX: usize = 100;
/// Most letters that two spellings of one key differ in.
const DISTANCE_MAX: usize = 3;

/// The known text that a misspelt one most likely means.
pub(super) fn nearest<'a>(text: &str, known: &'a [String]) -> Option<&'a String> {
    if text.len() > BYTES_MAX {
        return None;
    }
    let candidates = known.iter().map(|known| (distance(text, known), known));
    candidates.filter(|(distance, _)| *distance <= DISTANCE_MAX).min().map(|(_, known)| known)
}

/// How many letters have to be replaced, added or removed to make one text of the other; upper and
/// lower case count as the same.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (1..=other.len()).collect();
    for (number, a) in (1..).zip(one.bytes()) {
        let (mut diagonal, mut left) = (number - 1, number);
        for (above, b) in row.iter_mut().zip(other.bytes()) {
            let replaced = diagonal + usize::from(!a.eq_ignore_ascii_case(&b));
            left = replaced.min(*above + 1).min(left + 1);
            diagonal = std::mem::replace(above, left);
        }
    }
    row.last().copied().unwrap_or(one.len())
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn the_distance_of_two_texts_counts_the_changed_letters() {
        for (one, other, expected) in
            [("", "", 0), ("ab", "", 2), ("", "ab", 2), ("Region", "region", 0), ("regoin", "region", 2), ("a", "b", 1)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn a_misspelt_key_means_the_nearest_one_and_a_foreign_one_means_none() {
        let known = ["Global.region", "Global.auth-url", "Route.router-id"].map(str::to_owned);
        let nearest = |text: &str| nearest(text, &known).map(String::as_str);
        assert_eq!(nearest("Global.regoin"), Some("Global.region"));
        assert_eq!(nearest("Globl.region"), Some("Global.region"));
        assert_eq!(nearest("Global.bs-version"), None);
        assert_eq!(nearest(&"x".repeat(101)), None);
    }
}
