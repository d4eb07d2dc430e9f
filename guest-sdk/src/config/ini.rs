//! Sections, keys and values with their lines: the format of most cloud-configs since the in-tree
//! providers.

mod sections;
mod spelling;

use std::{fmt::Display, str::FromStr};

use super::Checked;
use crate::Problem;

/// A parsed cloud-config that collects its problems: faults, and keys that the provider does not
/// read.
///
/// `[Section]`, `[Section "name"]` (read as `Section "name"`), `key = value`, comments from `#` or
/// `;` at the start of a line, or after a blank outside quotes; a value may be in double quotes,
/// with the escapes `\"` and `\\`. Names are case-insensitive. A key before the first section is in
/// the section with the empty name. A key may repeat only where [`Ini::list`] reads it.
#[derive(Debug)]
pub struct Ini {
    /// As written, without brackets.
    sections: Vec<String>,
    entries: Vec<Entry>,
    /// Section and key of every question of the provider, in order.
    asked: Vec<(String, String)>,
    problems: Vec<Problem>,
}

#[derive(Debug)]
struct Entry {
    line: u32,
    section: String,
    key: String,
    value: String,
    asked: bool,
}

impl Ini {
    /// Parses the text; an invalid line is a problem, and the other lines are read.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut ini = Self { sections: Vec::new(), entries: Vec::new(), asked: Vec::new(), problems: Vec::new() };
        let mut section = String::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with(['#', ';']) {
                continue;
            }
            if let Some(rest) = text.strip_prefix('[') {
                match rest.split_once(']') {
                    Some((name, after)) if after.trim().is_empty() || after.trim().starts_with(['#', ';']) => {
                        name.trim().clone_into(&mut section);
                        ini.sections.push(section.clone());
                    }
                    _ => {
                        ini.problems.push(Problem::fatal(line, "", format!("{text:?} is not a section; write [NAME]")))
                    }
                }
                continue;
            }
            let Some((key, value)) = text.split_once('=') else {
                ini.problems.push(Problem::fatal(line, text, "is not a setting; write key = value"));
                continue;
            };
            let (section, key) = (section.clone(), key.trim().to_owned());
            match value_of(value.trim()) {
                Ok(value) => ini.entries.push(Entry { line, section, key, value, asked: false }),
                Err(why) => ini.problems.push(Problem::fatal(line, &path(&section, &key), why)),
            }
        }
        ini
    }

    /// The value of a key; none where it is absent, and where it cannot be read as a `T`, which is
    /// a fatal problem.
    pub fn optional<T: FromStr<Err: Display>>(&mut self, section: &str, key: &str) -> Option<T> {
        let found = self.take(section, key);
        for (line, _) in found.iter().skip(1) {
            let why = "stands here a second time; remove one of the two lines";
            self.problems.push(Problem::fatal(*line, &path(section, key), why));
        }
        let (line, value) = found.into_iter().next()?;
        self.read(line, &path(section, key), &value)
    }

    /// The value of a key. An absent, empty or unreadable value is a fatal problem, and the default
    /// stands in its place.
    pub fn required<T: FromStr<Err: Display> + Default>(&mut self, section: &str, key: &str) -> T {
        let before = self.problems.len();
        let value = self.optional::<String>(section, key);
        let line = self.line(section, key);
        match value {
            Some(text) if !text.is_empty() => self.read(line, &path(section, key), &text).unwrap_or_default(),
            _ => {
                if self.problems.len() == before {
                    let place =
                        if section.is_empty() { String::new() } else { format!(" into the section [{section}]") };
                    let why = format!("is required; write {key} = VALUE{place}");
                    self.problems.push(Problem::fatal(line, &path(section, key), why));
                }
                T::default()
            }
        }
    }

    /// All values of a key that may repeat, in order.
    pub fn list<T: FromStr<Err: Display>>(&mut self, section: &str, key: &str) -> Vec<T> {
        let found = self.take(section, key);
        found.into_iter().filter_map(|(line, value)| self.read(line, &path(section, key), &value)).collect()
    }

    /// The line of a key, for a problem found later; 0 where it is absent.
    #[must_use]
    pub fn line(&self, section: &str, key: &str) -> u32 {
        self.entries.iter().find(|entry| entry.is(section, key)).map_or(0, |entry| entry.line)
    }

    /// Adds a fatal problem with a key that could be read.
    pub fn refuse(&mut self, section: &str, key: &str, why: impl Into<String>) {
        self.problems.push(Problem::fatal(self.line(section, key), &path(section, key), why));
    }

    /// Adds a warning about a key, or about its absence: `check-config` reports it, and calls are
    /// made all the same.
    pub fn warn(&mut self, section: &str, key: &str, why: impl Into<String>) {
        self.problems.push(Problem::warning(self.line(section, key), &path(section, key), why));
    }

    /// The configuration with all problems, by line. A key that the provider did not read is a
    /// fatal one: a misspelt key would otherwise have no effect.
    #[must_use]
    pub fn finish<T>(mut self, config: T) -> Checked<T> {
        let unknown: Vec<_> = self.entries.iter().filter(|entry| !entry.asked).collect();
        if !unknown.is_empty() {
            let known = self.keys();
            for Entry { line, section, key, .. } in unknown {
                let key = path(section, key);
                let meant = spelling::nearest(&key, &known).map(|meant| format!(", or write {meant} if it is meant"));
                let why = format!("is not a key of this provider; remove the line{}", meant.unwrap_or_default());
                self.problems.push(Problem::fatal(*line, &key, why));
            }
        }
        self.problems.sort_by_key(|problem| problem.line);
        Checked::new(config, self.problems)
    }

    /// The keys that the provider has asked for, as `SECTION.KEY`, sorted: the keys that a
    /// cloud-config with these sections may have. For a test that compares them with a table.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.asked.iter().map(|(section, key)| path(section, key)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn take(&mut self, section: &str, key: &str) -> Vec<(u32, String)> {
        self.asked.push((section.to_owned(), key.to_owned()));
        let entries = self.entries.iter_mut().filter(|entry| entry.is(section, key));
        entries
            .map(|entry| {
                entry.asked = true;
                (entry.line, entry.value.clone())
            })
            .collect()
    }

    fn read<T: FromStr<Err: Display>>(&mut self, line: u32, path: &str, value: &str) -> Option<T> {
        value
            .parse()
            .map_err(|error| self.problems.push(Problem::fatal(line, path, format!("{value:?}: {error}"))))
            .ok()
    }
}

impl Entry {
    fn is(&self, section: &str, key: &str) -> bool {
        self.section.eq_ignore_ascii_case(section) && self.key.eq_ignore_ascii_case(key)
    }
}

fn path(section: &str, key: &str) -> String {
    match (section, key) {
        ("", name) | (name, "") => name.to_owned(),
        _ => format!("{section}.{key}"),
    }
}

/// A value without its quotes, or without the comment behind it.
fn value_of(text: &str) -> Result<String, &'static str> {
    let Some(quoted) = text.strip_prefix('"') else {
        let comment = text.match_indices(['#', ';']).map(|(at, _)| at);
        let end = comment
            .into_iter()
            .find(|at| text.get(..*at).is_some_and(|before| before.is_empty() || before.ends_with([' ', '\t'])));
        return Ok(text.get(..end.unwrap_or(text.len())).unwrap_or_default().trim_end().to_owned());
    };
    let mut value = String::new();
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                let rest = chars.as_str().trim_start();
                let done = rest.is_empty() || rest.starts_with(['#', ';']);
                return if done {
                    Ok(value)
                } else {
                    Err("has text behind the closing quote; remove the text, or write \\\" for a quote in the value")
                };
            }
            '\\' => match chars.next() {
                Some(c @ ('"' | '\\')) => value.push(c),
                _ => return Err("has a \\ before another character than \" and \\; write \\\\ for a backslash"),
            },
            c => value.push(c),
        }
    }
    Err("has a quote that is not closed; write \" at the end of the value")
}

#[cfg(test)]
mod tests {
    use super::Ini;

    fn problems(ini: Ini) -> Vec<(u32, String, String)> {
        let problems = ini.finish(()).problems();
        problems.into_iter().map(|problem| (problem.line, problem.key, problem.message)).collect()
    }

    #[test]
    fn values_are_found_without_case_and_without_comments() {
        let text =
            "top = 1\n# c\n[Global] ; c\n Region=  eu west ; c\nurl = http://x/#frag\nq = \"a # \\\"b\\\"\" # c\n";
        let mut ini = Ini::parse(text);
        assert_eq!(ini.optional::<u8>("", "top"), Some(1));
        assert_eq!(ini.required::<String>("global", "region"), "eu west");
        assert_eq!(ini.required::<String>("Global", "URL"), "http://x/#frag");
        assert_eq!(ini.required::<String>("Global", "q"), "a # \"b\"");
        assert_eq!(ini.optional::<u8>("Global", "none"), None);
        assert_eq!(problems(ini), []);
    }

    #[test]
    fn every_problem_names_line_and_key() {
        let mut ini =
            Ini::parse("[Global]\nport = x\nempty =\ntwice = 1\ntwice = 2\nextra = 1\nnothing\nq = \"a\n[oops\n");
        ini.optional::<u16>("Global", "port");
        ini.required::<String>("Global", "empty");
        ini.required::<String>("Global", "absent");
        ini.optional::<u16>("Global", "twice");
        let found: Vec<_> = problems(ini).into_iter().map(|(line, key, _)| (line, key)).collect();
        let expected = [
            (0, "Global.absent"),
            (2, "Global.port"),
            (3, "Global.empty"),
            (5, "Global.twice"),
            (6, "Global.extra"),
            (7, "nothing"),
            (8, "Global.q"),
            (9, ""),
        ];
        assert_eq!(found, expected.map(|(line, key)| (line, key.to_owned())));
    }

    #[test]
    fn a_list_may_repeat_its_key() {
        let mut ini = Ini::parse("n = 1\nn = 2\n");
        assert_eq!(ini.list::<u8>("", "n"), [1, 2]);
        assert_eq!(problems(ini), []);
    }
}
