//! Results on standard output.

use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;
use skysail_provider::text::one_line;

/// Prints a result. A closed pipe is not an error: the reader has read enough.
///
/// # Errors
/// The result cannot be written, for example to a full disk.
pub(crate) fn print(text: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to standard output"),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A table as kubectl prints it: each column is as wide as its widest cell. The text of a cell is
/// untrusted, so control characters are removed.
pub(crate) fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> Vec<String> {
    let rows: Vec<[String; COLUMNS]> = rows.iter().map(|row| row.each_ref().map(|cell| plain(cell))).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..COLUMNS).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Untrusted text (of a cloud, a guest or a file) for a terminal: without characters that move the
/// cursor, begin a line or change the direction of the text.
pub(crate) fn plain(text: &str) -> String {
    one_line(text, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{plain, table};

    #[test]
    fn characters_that_move_the_cursor_or_change_the_text_direction_are_not_printed() {
        assert_eq!(plain("a\x1b[2Jb\n\u{9b}c\u{202e}d\u{2067}ä"), "a [2Jb  cdä");
        assert_eq!(plain("a.wasm\nverdict    may serve"), "a.wasm verdict    may serve");
    }

    #[test]
    fn a_column_is_as_wide_as_its_widest_cell() {
        let rows = [["A", "B"], ["äöü", "\r"], ["", "x"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), ["A     B", "äöü", "      x"]);
    }
}
