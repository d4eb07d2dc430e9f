//! Results on standard output, and what is said about them on standard error.

use std::{
    fmt::Write as _,
    io::{self, ErrorKind, Write as _},
};

use anyhow::Context as _;
use serde::Serialize;
use skysail_provider::text::{is_plain, one_line};

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

/// Tells a person something on standard error, so that the result can be written to a file.
pub(crate) fn say(text: &str) {
    // A closed standard error is ignored.
    drop(writeln!(io::stderr().lock(), "skysail: {}", plain(text)));
}

/// A result as JSON. serde leaves characters of untrusted text as they are that a terminal obeys or
/// that change the order of a line; here they are escaped, which changes no value.
///
/// # Errors
/// The result cannot be encoded.
pub(crate) fn json(result: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(result).context("cannot encode the result")?;
    let mut out = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        // The ends of lines are between values: serde has escaped those within a text.
        if c == '\n' || is_plain(c.encode_utf8(&mut [0; 4])) {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
        }
    }
    out.push('\n');
    Ok(out)
}

/// A result as YAML. A text without quotes has no escapes in YAML, so that such characters become
/// U+FFFD.
///
/// # Errors
/// The result cannot be encoded.
pub(crate) fn yaml(result: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(result).context("cannot encode the result")?;
    let shown =
        |c: char| if c == '\n' || is_plain(c.encode_utf8(&mut [0; 4])) { c } else { char::REPLACEMENT_CHARACTER };
    Ok(text.chars().map(shown).collect())
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

/// A duration of a call.
pub(crate) fn milliseconds(milliseconds: u64) -> String {
    match milliseconds {
        0..10_000 => format!("{milliseconds}ms"),
        _ => format!("{}.{}s", milliseconds / 1_000, milliseconds / 100 % 10),
    }
}

/// With one decimal, to compare it with a limit.
pub(crate) fn fuel(units: u64) -> String {
    let scaled = |unit: u64, name: char| format!("{}.{}{name}", units / unit, units / (unit / 10) % 10);
    match units {
        0..1_000 => units.to_string(),
        1_000..1_000_000 => scaled(1_000, 'k'),
        1_000_000..1_000_000_000 => scaled(1_000_000, 'M'),
        _ => scaled(1_000_000_000, 'G'),
    }
}

/// An age in the format of kubectl.
pub(crate) fn age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{}s", seconds.max(0)),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        172_800.. => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{json as shown, plain, table, yaml};

    #[test]
    fn yaml_has_no_character_that_a_terminal_obeys_or_that_reorders_a_line() {
        let answer = json!({ "a\u{202e}b": ["x\u{2028}y\u{9b}31m\u{7f}", "\u{e0041}", "äöü 😀\n\u{1b}[2J\"\\"] });
        let text = yaml(&answer).unwrap();
        assert!(text.lines().all(|line| plain(line) == line), "{text:?}");
        assert!(text.contains("äöü 😀"), "{text:?}");
    }

    #[test]
    fn json_has_no_character_that_a_terminal_obeys_or_that_reorders_a_line_and_the_same_value() {
        let answer = json!({ "a\u{202e}b": ["x\u{2028}y\u{9b}31m\u{7f}", "\u{e0041}", "äöü 😀\n\"\\"] });
        let text = shown(&answer).unwrap();
        let expected = r#"{
  "a\u202eb": [
    "x\u2028y\u009b31m\u007f",
    "\udb40\udc41",
    "äöü 😀\n\"\\"
  ]
}
"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), answer);
    }

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
