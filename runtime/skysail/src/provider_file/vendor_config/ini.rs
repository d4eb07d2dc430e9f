//! The INI dialect of the vendors' managers (Go's gcfg), line by line: what is taken out leaves a
//! comment, so that the numbers of the other lines stay. The texts of comments are left out: an old
//! password is often kept in one.

/// What a comment begins with.
const COMMENT: [char; 2] = [';', '#'];

/// A file in lines.
#[derive(Debug)]
pub(super) struct Ini {
    lines: Vec<Line>,
    /// In the order of the file, in lower case.
    sections: Vec<String>,
}

#[derive(Debug)]
struct Line {
    raw: String,
    entry: Option<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// The name of the section, in lower case.
    section: String,
    /// The name of the key, in lower case.
    key: String,
    value: String,
}

impl Ini {
    /// Reads a file. The error names the line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (mut lines, mut sections, mut section) = (Vec::new(), Vec::new(), String::new());
        // The mark of an editor's UTF-8 is no part of the first name.
        for (number, raw) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let number = number + 1;
            let trimmed = raw.trim();
            let (raw, entry) = if trimmed.is_empty() {
                (String::new(), None)
            } else if is_comment(trimmed) {
                ("#".to_owned(), None)
            } else if let Some(head) = trimmed.strip_prefix('[') {
                let (head, rest) = section_head(head).ok_or_else(|| format!("line {number}: `]` is missing"))?;
                if !rest.trim().is_empty() && !is_comment(rest.trim()) {
                    return Err(format!("line {number}: behind `]` only a comment is allowed; write a new line"));
                }
                section = head.trim().to_ascii_lowercase();
                sections.push(section.clone());
                (format!("[{head}]"), None)
            } else {
                let (key, value, written) = entry(trimmed).map_err(|reason| format!("line {number}: {reason}"))?;
                (written.to_owned(), Some(Entry { section: section.clone(), key, value }))
            };
            lines.push(Line { raw, entry });
        }
        Ok(Self { lines, sections })
    }

    /// The value of a key, and its line. Of several, the last one counts.
    pub(super) fn value(&self, section: &str, key: &str) -> Option<(usize, &str)> {
        let entries = self.lines.iter().enumerate().rev();
        let mut found = entries.filter_map(|(index, line)| {
            let entry = line.entry.as_ref().filter(|entry| entry.section == section && entry.key == key)?;
            Some((index + 1, entry.value.as_str()))
        });
        found.next()
    }

    /// The sections `[KIND "NAME"]`, each once: the section as [`Self::value`] takes it, and its
    /// name.
    pub(super) fn named_sections(&self, kind: &str) -> Vec<(String, String)> {
        let named = |section: &str| {
            let name = section.strip_prefix(kind)?.trim().strip_prefix('"')?.strip_suffix('"')?;
            Some((section.to_owned(), name.to_owned()))
        };
        let mut sections: Vec<_> = self.sections.iter().filter_map(|section| named(section)).collect();
        sections.dedup();
        sections
    }

    /// Takes a value out of the file: a comment stands in its place.
    pub(super) fn take(&mut self, section: &str, key: &str, moved_to: &str) -> Option<String> {
        self.replace(section, key, &format!("# {key}: {moved_to}"))
    }

    /// Takes a value out of the file, and writes this line in its place.
    pub(super) fn replace(&mut self, section: &str, key: &str, by: &str) -> Option<String> {
        let mut taken = None;
        for line in &mut self.lines {
            if line.entry.as_ref().is_some_and(|entry| entry.section == section && entry.key == key) {
                by.clone_into(&mut line.raw);
                taken = line.entry.take().map(|entry| entry.value);
            }
        }
        taken
    }

    /// Refuses a file in which a key is left that by its name has a secret.
    pub(super) fn without_secrets(&self) -> Result<(), String> {
        let is_secret = |key: &str| ["password", "secret", "token"].iter().any(|word| key.contains(word));
        let entries = (1..).zip(&self.lines).filter_map(|(line, content)| Some((line, content.entry.as_ref()?)));
        match entries.map(|(line, entry)| (line, entry.key.as_str())).find(|(_, key)| is_secret(key)) {
            Some((line, key)) => {
                Err(format!("line {line}: {key}: it looks like a secret and has no place in the credential; remove it"))
            }
            None => Ok(()),
        }
    }

    /// The file without comments and without what was taken.
    pub(super) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{}\n", line.raw)).collect()
    }
}

/// What stands before the end of a section's name, and what behind it. A quoted name may have a
/// bracket: `VirtualCenter "[fd00::1]"`.
fn section_head(text: &str) -> Option<(&str, &str)> {
    let mut is_quoted = false;
    let end = text.find(|c| {
        is_quoted ^= c == '"';
        c == ']' && !is_quoted
    })?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

fn is_comment(text: &str) -> bool {
    text.starts_with(COMMENT)
}

/// The key in lower case, the value, and the line without the comment behind it.
fn entry(line: &str) -> Result<(String, String, &str), &'static str> {
    let (key, rest) = line.split_at(line.find(|c| c == '=' || COMMENT.contains(&c)).unwrap_or(line.len()));
    let key_of = |key: &str| key.trim().to_ascii_lowercase();
    let Some(value) = rest.strip_prefix('=') else {
        // A key without `=` is a switch that is on.
        return Ok((key_of(key), "true".to_owned(), key.trim_end()));
    };
    let (text, comment) = unquoted(value)?;
    let written = line.strip_suffix(comment).unwrap_or(line);
    Ok((key_of(key), text, written.trim_end()))
}

/// A value without its quotes, and the comment behind it.
fn unquoted(value: &str) -> Result<(String, &str), &'static str> {
    let value = value.trim_start();
    // Blanks at the end count only inside quotation marks.
    let (mut text, mut end, mut is_quoted) = (String::new(), 0, false);
    let mut comment = "";
    let mut characters = value.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                end = text.len();
                continue;
            }
            '\\' => text.push(match characters.next().map(|(_, c)| c) {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(c @ ('"' | '\\')) => c,
                None => return Err("the value goes on in the next line, which is not supported; write it in one line"),
                Some(_) => return Err("a backslash stands before \", \\, n or t only; write \\\\ for one backslash"),
            }),
            c if !is_quoted && COMMENT.contains(&c) => {
                comment = value.get(at..).unwrap_or_default();
                break;
            }
            c => text.push(c),
        }
        if is_quoted || !text.ends_with(char::is_whitespace) {
            end = text.len();
        }
    }
    if is_quoted {
        return Err("the second quotation mark of a value is missing");
    }
    text.truncate(end);
    Ok((text, comment))
}
