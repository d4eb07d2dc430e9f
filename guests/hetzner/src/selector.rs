//! Label selectors in the form of Kubernetes: `a=b`, `a!=b`, `a in (b, c)`, `a notin (b)`, `a`,
//! `!a`, `a>1`, `a<2`, with commas between.

use std::collections::HashMap;

use skysail_guest_sdk::labels::is_label_value;

/// Requirements that must all hold. Without any, every node matches.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Requirement>);

#[derive(Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

impl Selector {
    /// Reads a selector.
    ///
    /// # Errors
    ///
    /// The part that cannot be read, and what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        parts(text)?.into_iter().map(requirement).collect::<Result<_, _>>().map(Self)
    }

    /// The labels that the selector reads.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|requirement| requirement.key.as_str())
    }

    /// Whether these labels fulfil each requirement.
    pub(crate) fn matches(&self, labels: &HashMap<&str, &str>) -> bool {
        self.0.iter().all(|Requirement { key, test }| {
            let value = labels.get(key.as_str()).copied();
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match test {
                Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                // As in Kubernetes, a node without the label matches.
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::Above(bound) => number().is_some_and(|number| number > *bound),
                Test::Below(bound) => number().is_some_and(|number| number < *bound),
            }
        })
    }
}

/// The text between the commas that are not in parentheses.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' if !inside => inside = true,
            ')' if inside => inside = false,
            '(' | ')' => return Err(format!("{text:?}: a parenthesis is without its pair")),
            ',' if !inside => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!("{text:?}: a parenthesis is not closed"));
    }
    parts.push(text.get(start..).unwrap_or_default());
    Ok(parts)
}

fn requirement(part: &str) -> Result<Requirement, String> {
    let part = part.trim();
    let (key, test) = if let Some(open) = part.find('(') {
        set(part, open)?
    } else if let Some((key, value)) = part.split_once("!=") {
        (key, Test::NotIn(vec![label_value(value)?]))
    } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (key, Test::In(vec![label_value(value)?]))
    } else if let Some((key, bound)) = part.split_once('>') {
        (key, Test::Above(number(bound)?))
    } else if let Some((key, bound)) = part.split_once('<') {
        (key, Test::Below(number(bound)?))
    } else if let Some(key) = part.strip_prefix('!') {
        (key, Test::Absent)
    } else {
        (part, Test::Exists)
    };
    Ok(Requirement { key: label_key(key)?, test })
}

/// `key in (a, b)` or `key notin (a, b)`; `open` is the place of the parenthesis.
fn set(part: &str, open: usize) -> Result<(&str, Test), String> {
    let (left, right) = part.split_at(open);
    let inner = right.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let inner = inner.ok_or_else(|| format!("{part:?}: expected a comma after the parenthesis"))?;
    let values = inner.split(',').map(label_value).collect::<Result<Vec<_>, _>>()?;
    let mut words = left.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(key), Some("in"), None) => Ok((key, Test::In(values))),
        (Some(key), Some("notin"), None) => Ok((key, Test::NotIn(values))),
        _ => Err(format!("{part:?}: expected KEY in (VALUES) or KEY notin (VALUES)")),
    }
}

fn number(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| format!("{:?} is not a number", text.trim()))
}

fn label_key(text: &str) -> Result<String, String> {
    let key = text.trim();
    let (prefix, name) = key.split_once('/').unwrap_or(("x", key));
    if prefix.is_empty() || name.is_empty() || !is_label_value(name) || !prefix.chars().all(is_label_char) {
        return Err(format!("{key:?} is not the key of a label"));
    }
    Ok(key.to_owned())
}

fn label_value(text: &str) -> Result<String, String> {
    let value = text.trim();
    if is_label_value(value) { Ok(value.to_owned()) } else { Err(format!("{value:?} is not the value of a label")) }
}

const fn is_label_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::Selector;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        Selector::parse(selector).unwrap().matches(&HashMap::from_iter(labels.iter().copied()))
    }

    #[test]
    fn every_operator_of_kubernetes_is_read() {
        let labels = [("pool", "edge"), ("example.com/size", "8")];
        for selector in [
            "pool=edge",
            "pool == edge, example.com/size",
            "pool!=core",
            "none!=x",
            "pool in (core, edge)",
            "pool notin (core),!none",
            "none notin (a)",
            "example.com/size>7",
            "example.com/size < 9",
            "!none",
        ] {
            assert!(matches(selector, &labels), "{selector}");
        }
        for selector in
            ["pool=core", "pool in (core)", "pool notin (edge)", "!pool", "none", "pool>1", "example.com/size<8"]
        {
            assert!(!matches(selector, &labels), "{selector}");
        }
        assert!(matches("x=", &[("x", "")]) && !matches("x=", &[]));
    }

    #[test]
    fn a_selector_that_cannot_be_read_is_refused_with_the_part() {
        for text in ["a in b", "a in (b", "a)", "=x", "a b", "a=b c", "a>x", "a,,b", "a in (b) c", "", "a like (b)"] {
            assert!(Selector::parse(text).is_err(), "{text:?}");
        }
        let error = Selector::parse("ok=1,a like (b)").unwrap_err();
        assert_eq!(error, "\"a like (b)\": expected KEY in (VALUES) or KEY notin (VALUES)");
    }

    #[test]
    fn the_keys_are_those_of_the_requirements() {
        let selector = Selector::parse("a=1,!b,c in (x)").unwrap();
        assert_eq!(selector.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(Selector::default().matches(&HashMap::new()));
    }
}
