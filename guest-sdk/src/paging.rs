//! Lists that come in pages.

use std::collections::HashSet;

use crate::{Error, Result};

/// Most pages of one list: at 500 entries a page more than any cloud's quota, and an end for a cloud that never ends.
pub const PAGES_MAX: usize = 1_000;

/// All entries of a list. `page` gets the cursor (none for the first page) and gives its entries and the next cursor, if any.
///
/// # Errors
///
/// Those of `page`; `unavailable` where a cursor comes again or there are more than [`PAGES_MAX`] pages: half a list would be taken for
/// the whole, and what is missing for gone.
pub fn collect<T>(mut page: impl FnMut(Option<&str>) -> Result<(Vec<T>, Option<String>)>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    for _ in 0..PAGES_MAX {
        let (mut entries, next) = page(cursor.as_deref())?;
        all.append(&mut entries);
        let Some(next) = next.filter(|next| !next.is_empty()) else { return Ok(all) };
        if !seen.insert(next.clone()) {
            return Err(Error::Unavailable(format!("the list does not end: cursor {next:?} came twice")));
        }
        cursor = Some(next);
    }
    Err(Error::Unavailable(format!("the list does not end after {PAGES_MAX} pages")))
}

#[cfg(test)]
mod tests {
    use super::{PAGES_MAX, collect};
    use crate::Error;

    #[test]
    fn pages_are_joined_in_order() {
        let all = collect(|cursor| {
            Ok(match cursor {
                None => (vec![1, 2], Some("a".to_owned())),
                Some("a") => (vec![], Some("b".to_owned())),
                _ => (vec![3], Some(String::new())),
            })
        });
        assert_eq!(all, Ok(vec![1, 2, 3]));
    }

    #[test]
    fn a_failed_page_fails_the_list() {
        let all = collect::<u8>(|cursor| match cursor {
            None => Ok((vec![1], Some("a".to_owned()))),
            Some(_) => Err(Error::Denied("expired".to_owned())),
        });
        assert_eq!(all, Err(Error::Denied("expired".to_owned())));
    }

    #[test]
    fn a_list_without_an_end_is_given_up() {
        assert!(matches!(collect(|_| Ok((vec![1], Some("same".to_owned())))), Err(Error::Unavailable(_))));
        let mut pages = 0;
        let all = collect(|_| {
            pages += 1;
            Ok((vec![1], Some(pages.to_string())))
        });
        assert!(matches!(all, Err(Error::Unavailable(_))));
        assert_eq!(pages, PAGES_MAX);
    }
}
