//! Splits Rust source into code, comments, literals and items under `cfg(test)`, as far as the
//! rules need it.
//!
//! It is no full parser of Rust, and must stay simple.

/// One Rust file, split into its parts. Line numbers are 1-based.
pub(crate) struct Source {
    /// The text with the insides of comments and literals blanked out, same length and same lines.
    pub(crate) code: String,
    /// String literals with the line on which each begins, quotes and hashes taken off.
    pub(crate) literals: Vec<(usize, String)>,
    /// Whether a line (by index from 0) lies under `#[cfg(test)]`.
    under_test: Vec<bool>,
}

impl Source {
    /// Splits a file's text.
    pub(crate) fn read(text: &str) -> Self {
        let mut reader = Reader { bytes: text.as_bytes(), at: 0, line: 1, code: Vec::new(), literals: Vec::new() };
        reader.run();
        let code =
            String::from_utf8(reader.code).expect("blanking keeps UTF-8: whole characters are copied or dropped");
        let under_test = test_lines(&code);
        Self { code, literals: reader.literals, under_test }
    }

    /// The lines of code with their numbers, comments and literals blanked.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Whether a line stands under `#[cfg(test)]`.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.under_test.get(line - 1).copied().unwrap_or(false)
    }

    /// How many lines are not under `#[cfg(test)]`.
    pub(crate) fn lines_outside_tests(&self) -> usize {
        self.under_test.iter().filter(|test| !**test).count()
    }

    /// The name of the function that encloses a line, by the nearest `fn` above it.
    pub(crate) fn function_at(&self, line: usize) -> &str {
        let above = self.code.lines().take(line).collect::<Vec<_>>();
        above.iter().rev().find_map(|line| function_name(line)).unwrap_or("")
    }
}

/// The name after `fn`, where a line declares a function.
pub(crate) fn function_name(line: &str) -> Option<&str> {
    let start = if line.trim_start().starts_with("fn ") { line.find("fn ")? } else { line.find(" fn ")? + 1 };
    let name = &line[start + 3..];
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    (end > 0).then(|| &name[..end])
}

/// The name after `struct`, `enum`, `union`, `trait` or `type`, where a line declares a type.
pub(crate) fn type_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let item = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => line,
    };
    let mut words = item.split_whitespace().skip_while(|word| matches!(*word, "unsafe" | "auto"));
    words.next().filter(|kind| ["struct", "enum", "union", "trait", "type"].contains(kind))?;
    let name = words.next()?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    (end > 0).then(|| &name[..end])
}

/// The place of `word` in `text`, with no letter, digit or underscore on either side.
pub(crate) fn find_word(text: &str, word: &str) -> Option<usize> {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).find(|&at| {
        !text[..at].chars().next_back().is_some_and(inside)
            && !text[at + word.len()..].chars().next().is_some_and(inside)
    })
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
    code: Vec<u8>,
    literals: Vec<(usize, String)>,
}

impl Reader<'_> {
    fn run(&mut self) {
        while let Some(&byte) = self.bytes.get(self.at) {
            let rest = &self.bytes[self.at..];
            let starts_word = self.code.last().is_none_or(|b| !b.is_ascii_alphanumeric() && *b != b'_');
            if rest.starts_with(b"//") {
                self.blank_until(|rest| rest.starts_with(b"\n"));
            } else if rest.starts_with(b"/*") {
                self.block_comment();
            } else if let Some(hashes) = raw_string(rest).filter(|_| starts_word) {
                self.raw_literal(hashes);
            } else if byte == b'"' {
                self.literal();
            } else if byte == b'\'' && is_char(rest) {
                self.char_literal();
            } else {
                self.keep();
            }
        }
    }

    fn keep(&mut self) {
        let byte = self.bytes[self.at];
        self.line += usize::from(byte == b'\n');
        self.code.push(byte);
        self.at += 1;
    }

    /// Replaces one byte by a blank, unless it is a line end.
    fn blank(&mut self) {
        let byte = self.bytes[self.at];
        self.line += usize::from(byte == b'\n');
        self.code.push(if byte == b'\n' { b'\n' } else { b' ' });
        self.at += 1;
    }

    fn blank_until(&mut self, end: impl Fn(&[u8]) -> bool) {
        while self.at < self.bytes.len() && !end(&self.bytes[self.at..]) {
            self.blank();
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0usize;
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            if rest.starts_with(b"/*") {
                depth += 1;
                self.blank();
            } else if rest.starts_with(b"*/") {
                depth -= 1;
                self.blank();
            }
            self.blank();
            if depth == 0 {
                break;
            }
        }
    }

    fn raw_literal(&mut self, hashes: usize) {
        let line = self.line;
        while self.bytes[self.at] != b'"' {
            self.keep();
        }
        self.keep();
        let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
        let start = self.at;
        self.blank_until(|rest| rest.starts_with(&close));
        self.take(line, start);
        for _ in 0..close.len().min(self.bytes.len() - self.at) {
            self.keep();
        }
    }

    fn literal(&mut self) {
        let line = self.line;
        self.keep();
        let start = self.at;
        while self.at < self.bytes.len() && self.bytes[self.at] != b'"' {
            if self.bytes[self.at] == b'\\' && self.at + 1 < self.bytes.len() {
                self.blank();
            }
            self.blank();
        }
        self.take(line, start);
        if self.at < self.bytes.len() {
            self.keep();
        }
    }

    fn char_literal(&mut self) {
        self.keep();
        while self.at < self.bytes.len() && self.bytes[self.at] != b'\'' {
            if self.bytes[self.at] == b'\\' && self.at + 1 < self.bytes.len() {
                self.blank();
            }
            self.blank();
        }
        if self.at < self.bytes.len() {
            self.keep();
        }
    }

    fn take(&mut self, line: usize, start: usize) {
        self.literals.push((line, String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned()));
    }
}

/// The number of hashes where a raw string begins: `r"`, `r#"`, `br##"`.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let rest = rest.strip_prefix(b"b").unwrap_or(rest).strip_prefix(b"r")?;
    let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
    (rest.get(hashes) == Some(&b'"')).then_some(hashes)
}

/// Whether the quote begins a character literal and not a lifetime.
fn is_char(rest: &[u8]) -> bool {
    match rest {
        [_, b'\\', ..] => true,
        [_, b, ..] if *b < 0x80 => rest.get(2) == Some(&b'\''),
        [_, ..] => rest.iter().skip(1).take(5).any(|byte| *byte == b'\''),
        [] => false,
    }
}

/// Marks the lines of every item under `#[cfg(test)]`, from the attribute to the end of its braces
/// or its semicolon.
fn test_lines(code: &str) -> Vec<bool> {
    let mut marks = vec![false; code.lines().count()];
    for (start, _) in code.match_indices("#[cfg(test)]").chain(code.match_indices("#[cfg(all(test")) {
        let end = item_end(code, start);
        let first = code[..start].matches('\n').count();
        let last = code[..end].matches('\n').count();
        marks.iter_mut().take(last + 1).skip(first).for_each(|mark| *mark = true);
    }
    marks
}

fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0usize;
    let mut square = 0usize;
    for (at, c) in code[start..].char_indices() {
        match c {
            '[' => square += 1,
            ']' => square = square.saturating_sub(1),
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return start + at;
                }
            }
            ';' if depth == 0 && square == 0 => return start + at,
            _ => {}
        }
    }
    code.len()
}
