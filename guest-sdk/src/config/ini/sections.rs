//! Whole sections: those that the operator names, and those that a provider does not read.

use super::{Ini, path};
use crate::Problem;

impl Ini {
    /// The names of the sections `[kind "name"]`, in order and each once.
    ///
    /// Read the keys of such a section by its full name, `kind "name"`.
    #[must_use]
    pub fn named_sections(&self, kind: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for section in &self.sections {
            let name = name_of(section, kind);
            if let Some(name) = name.filter(|name| names.iter().all(|known| known != name)) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// Adds a warning for each key of a section that the provider ignores as a whole.
    pub fn ignore_section(&mut self, section: &str, why: &str) {
        for entry in self.entries.iter_mut().filter(|entry| entry.section.eq_ignore_ascii_case(section)) {
            entry.asked = true;
            self.problems.push(Problem::warning(entry.line, &path(&entry.section, &entry.key), why));
        }
    }
}

/// The `name` of a section `kind "name"`.
fn name_of<'a>(section: &'a str, kind: &str) -> Option<&'a str> {
    let (found, rest) = section.split_once('"')?;
    found.trim_end().eq_ignore_ascii_case(kind).then_some(rest.strip_suffix('"')?)
}

#[cfg(test)]
mod tests {
    use super::Ini;

    #[test]
    fn named_sections_are_listed_and_read_by_their_full_name() {
        let mut ini = Ini::parse("[Class \"a b\"]\nid = 1\n[class \"c\"]\n[Class]\n[Other \"d\"]\n[Class \"c\"]\n");
        assert_eq!(ini.named_sections("Class"), ["a b", "c"]);
        assert_eq!(ini.optional::<u8>("Class \"a b\"", "id"), Some(1));
        assert_eq!(ini.finish(()).problems(), []);
    }

    #[test]
    fn an_ignored_section_is_reported_key_by_key() {
        let mut ini = Ini::parse("[Volumes]\nsize = 1\ntype = x\n");
        ini.ignore_section("volumes", "is not used");
        let problems = ini.finish(()).problems();
        let found: Vec<_> = problems.iter().map(|problem| (problem.line, problem.key.as_str())).collect();
        assert_eq!(found, [(2, "Volumes.size"), (3, "Volumes.type")]);
    }
}
