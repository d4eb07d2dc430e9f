//! The tables of the operators' documents, which the binary contains, so that its messages and the
//! documents explain a name in the same words.

/// The documents that have such a table: path and text.
const PAGES: [(&str, &str); 8] = [
    ("deploy/docs/rollouts.md", include_str!("../../../deploy/docs/rollouts.md")),
    ("deploy/docs/sources.md", include_str!("../../../deploy/docs/sources.md")),
    ("deploy/docs/services.md", include_str!("../../../deploy/docs/services.md")),
    ("deploy/docs/providers.md", include_str!("../../../deploy/docs/providers.md")),
    ("deploy/docs/observability.md", include_str!("../../../deploy/docs/observability.md")),
    ("runtime/host/LIMITS.md", include_str!("../../host/LIMITS.md")),
    ("deploy/docs/flags.md", include_str!("../../../deploy/docs/flags.md")),
    ("deploy/docs/glossary.md", include_str!("../../../deploy/docs/glossary.md")),
];

/// The heads of the first column of the tables in which a row is found by its name.
const KEYS: [&str; 8] = ["code", "code of the provider", "reason", "condition", "metric", "limit", "flag", "word"];

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) page: &'static str,
    /// The heading above the table.
    pub(crate) heading: &'static str,
    /// What the names are: the head of the first column.
    pub(crate) kind: &'static str,
    /// The names in the first column: a row may be about several.
    pub(crate) names: Vec<&'static str>,
    /// The other columns that are not empty: head and text. The last column may have no head.
    pub(crate) columns: Vec<(&'static str, String)>,
}

/// The rows of all tables, in the order of the pages.
pub(crate) fn entries() -> Vec<Entry> {
    PAGES.iter().flat_map(|(page, text)| of_page(page, text)).collect()
}

fn of_page(page: &'static str, text: &'static str) -> Vec<Entry> {
    let (mut heading, mut head, mut found) = ("", Vec::new(), Vec::new());
    for line in text.lines() {
        if let Some(title) = line.strip_prefix('#') {
            heading = title.trim_start_matches('#').trim();
        }
        let Some(cells) =
            line.strip_prefix('|').map(|row| row.trim_end_matches('|').split('|').map(str::trim).collect::<Vec<_>>())
        else {
            head.clear();
            continue;
        };
        match (head.first(), cells.first()) {
            (None, _) => head = cells,
            (Some(kind), Some(first)) if KEYS.contains(kind) && !first.starts_with("---") => {
                let texts = head.iter().copied().zip(cells.iter().copied()).skip(1);
                let columns = texts.filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name, plain(text)));
                let names = names(kind, first);
                if !names.is_empty() {
                    found.push(Entry { page, heading, kind, names, columns: columns.collect() });
                }
            }
            _ => {}
        }
    }
    found
}

/// The words in code marks; a word of the glossary has none.
fn names(kind: &str, cell: &'static str) -> Vec<&'static str> {
    if kind == "word" { vec![cell] } else { cell.split('`').skip(1).step_by(2).collect() }
}

/// The text of a cell without marks of Markdown: of links only the text.
fn plain(cell: &str) -> String {
    let mut out = String::new();
    let mut rest = cell;
    while let Some((before, link)) = rest.split_once('[') {
        let parts = link.split_once("](").and_then(|(text, after)| Some((text, after.split_once(')')?.1)));
        out.push_str(before);
        match parts {
            Some((text, after)) => {
                out.push_str(text);
                rest = after;
            }
            None => {
                out.push('[');
                rest = link;
            }
        }
    }
    out.push_str(rest);
    out.replace('`', "")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{KEYS, entries, of_page};

    #[test]
    fn a_row_is_read_with_its_names_its_columns_and_its_heading() {
        let page = "# Page\n## Codes\n\n| code | what to do | |\n|---|---|---|\n| `A`, `B` | see [there](x.md#y) and `z` | |\n\n| other | |\n|---|---|\n| `C` | no |\n";
        let found = of_page("page.md", page);
        let [entry] = &*found else { panic!("{found:?}") };
        assert_eq!((entry.page, entry.heading, entry.kind), ("page.md", "Codes", "code"));
        assert_eq!(entry.names, ["A", "B"]);
        assert_eq!(entry.columns, [("what to do", "see there and z".to_owned())]);
    }

    #[test]
    fn the_documents_have_a_table_of_each_kind_and_no_row_without_a_name_and_a_text() {
        let entries = entries();
        let kinds: BTreeSet<_> = entries.iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, KEYS.into_iter().collect());
        let empty =
            entries.iter().find(|entry| entry.columns.is_empty() || entry.names.iter().any(|name| name.is_empty()));
        assert_eq!(empty, None);
        assert!(entries.len() > 200, "{}", entries.len());
    }
}
