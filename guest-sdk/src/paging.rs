//! Lists in pages.
//!
//! A cursor from the cloud ([`collect`]) is safe. Pages by offset or number are not: a deletion
//! between two pages moves the later entries forward, and one of them is on no page.
//! [`collect_by_offset`] detects most of these cases and starts again; it cannot detect a deletion
//! together with a creation. Since `not-found` deletes a node, look up a missing entry by its ID
//! before you answer `not-found`: [`instances::describe`](crate::instances::describe) does.

use std::collections::HashSet;

use crate::{Error, Result};

/// The maximum number of pages of one list: at 500 entries a page more than any cloud's quota, and
/// a bound for a cloud whose list never ends.
pub const PAGES_MAX: usize = 1_000;

/// All entries of a list. `page` gets the cursor (none for the first page) and gives its entries
/// and the next cursor, if any.
///
/// # Errors
///
/// Those of `page`; `unavailable` where a cursor repeats or there are more than [`PAGES_MAX`]
/// pages: the machines missing from an incomplete list would look deleted.
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

/// As [`collect`], for a cloud that also tells how many entries the whole list has.
///
/// `page` gives the entries, the next cursor, and the total. A list is read again where the number
/// of entries differs from the last total: an entry was created or deleted between two pages.
///
/// # Errors
///
/// As [`collect`]; `unavailable` also where the list changes each time it is read.
pub fn collect_counted<T>(
    mut page: impl FnMut(Option<&str>) -> Result<(Vec<T>, Option<String>, usize)>,
) -> Result<Vec<T>> {
    for _ in 0..READS_MAX {
        let mut total = 0;
        let all = collect(|cursor| {
            let (entries, next, whole) = page(cursor)?;
            total = whole;
            Ok((entries, next))
        })?;
        if all.len() == total {
            return Ok(all);
        }
    }
    Err(Error::Unavailable(format!("the list changed between two pages, {READS_MAX} times")))
}

/// A page of a list by offset, and the number of entries of the whole list at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The page's entries; none past the end.
    pub entries: Vec<T>,
    /// The whole list's.
    pub total: usize,
}

/// Attempts to read a list that changes meanwhile; the next call tries again.
const READS_MAX: usize = 3;

/// All entries of a list with pages by offset.
///
/// `page` gets the number of entries read so far; `id` identifies an entry. A list is read again
/// where the total changes, an entry appears twice, or the number of entries differs from the
/// total: an entry was created or deleted between two pages.
///
/// # Errors
///
/// Those of `page`; `unavailable` where the list changes each time it is read, or has more than
/// [`PAGES_MAX`] pages.
pub fn collect_by_offset<T>(id: impl Fn(&T) -> &str, mut page: impl FnMut(usize) -> Result<Page<T>>) -> Result<Vec<T>> {
    for _ in 0..READS_MAX {
        if let Some(all) = read(&id, &mut page)? {
            return Ok(all);
        }
    }
    Err(Error::Unavailable(format!("the list changed between two pages, {READS_MAX} times")))
}

/// Reads a list once; none where it changed meanwhile.
fn read<T>(id: &impl Fn(&T) -> &str, page: &mut impl FnMut(usize) -> Result<Page<T>>) -> Result<Option<Vec<T>>> {
    let Page { entries: mut all, total } = page(0)?;
    for _ in 1..PAGES_MAX {
        if all.len() >= total {
            let mut seen = HashSet::new();
            return Ok((all.len() == total && all.iter().all(|entry| seen.insert(id(entry)))).then_some(all));
        }
        let next = page(all.len())?;
        if next.total != total || next.entries.is_empty() {
            return Ok(None);
        }
        all.extend(next.entries);
    }
    Err(Error::Unavailable(format!("the list does not end after {PAGES_MAX} pages")))
}

#[cfg(test)]
mod tests {
    use super::{PAGES_MAX, Page, collect, collect_by_offset, collect_counted};
    use crate::{Error, Result};

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
    fn a_list_whose_total_differs_is_read_again() {
        let mut reads = 0;
        let all = collect_counted(|cursor| {
            reads += usize::from(cursor.is_none());
            let total = if reads == 1 { 3 } else { 2 };
            Ok(match cursor {
                None => (vec!["a"], Some("b".to_owned()), total),
                Some(_) => (vec!["b"], None, total),
            })
        });
        assert_eq!((all, reads), (Ok(vec!["a", "b"]), 2));
        let all = collect_counted(|_| Ok((vec!["a"], None, 2)));
        assert!(matches!(all, Err(Error::Unavailable(_))), "{all:?}");
    }

    /// A cloud with pages of two; its list changes before the page with this number.
    fn by_offset(list: &[&str], mut happens: impl FnMut(usize, &mut Vec<String>)) -> Result<Vec<String>> {
        let mut list: Vec<String> = list.iter().map(|id| (*id).to_owned()).collect();
        let mut pages = 0;
        collect_by_offset(String::as_str, |offset| {
            happens(pages, &mut list);
            pages += 1;
            Ok(Page { entries: list.iter().skip(offset).take(2).cloned().collect(), total: list.len() })
        })
    }

    #[test]
    fn an_entry_that_moved_between_two_pages_is_not_lost() {
        let all = by_offset(&["a", "b", "c", "d", "e"], |page, list| {
            if page == 1 {
                list.remove(0);
            }
        });
        assert_eq!(all, Ok(["b", "c", "d", "e"].map(str::to_owned).to_vec()));
        let all = by_offset(&["a", "b", "c"], |page, list| {
            if page == 1 {
                // Created in front and deleted at the end: the total is the same, and `b` comes
                // twice.
                list.insert(0, "new".to_owned());
                list.pop();
            }
        });
        assert_eq!(all, Ok(["new", "a", "b"].map(str::to_owned).to_vec()));
        assert_eq!(by_offset(&[], |_, _| {}), Ok(Vec::new()));
        assert_eq!(by_offset(&["a", "b"], |_, _| {}).map(|all| all.len()), Ok(2));
    }

    #[test]
    fn a_list_that_changes_each_time_it_is_read_is_given_up() {
        let all = by_offset(&["a", "b", "c"], |page, list| list.push(page.to_string()));
        assert!(matches!(all, Err(Error::Unavailable(_))), "{all:?}");
        let endless = collect_by_offset(
            |_: &String| "x",
            |offset| Ok(Page { entries: vec![offset.to_string()], total: usize::MAX }),
        );
        assert!(matches!(endless, Err(Error::Unavailable(_))), "{endless:?}");
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
