//! Results on standard output.

use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;
use skysail_provider::text::one_line;

/// Prints a result. A reader that closed standard output has read enough: that is no failure.
///
/// # Errors
/// It cannot be written, for example to a full disk.
pub(crate) fn print(text: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to standard output"),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A table as kubectl prints it: columns as wide as what is in them. A cell's text may be
/// anybody's: nothing in it moves the cursor.
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

/// Text of a cloud, a guest or a file on a terminal: nothing in it moves the cursor, begins a line
/// or turns the line round.
pub(crate) fn plain(text: &str) -> String {
    one_line(text, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{plain, table};

    #[test]
    fn what_moves_the_cursor_or_turns_the_line_round_is_not_printed() {
        assert_eq!(plain("a\x1b[2Jb\n\u{9b}c\u{202e}d\u{2067}ä"), "a [2Jb  cdä");
        assert_eq!(plain("a.wasm\nverdict    may serve"), "a.wasm verdict    may serve");
    }

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let rows = [["A", "B"], ["äöü", "\r"], ["", "x"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), ["A     B", "äöü", "      x"]);
    }
}
