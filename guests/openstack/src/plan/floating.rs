//! Which subnets of an external network a floating IP may come from.

use crate::settings::Placement;

/// A choice among the subnets of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubnetFilter {
    /// The cloud chooses.
    Any,
    /// This one.
    Id(String),
    /// Those whose names match, and that the cloud lists for the tags.
    Matching { name: Option<String>, tags: Option<String> },
}

impl SubnetFilter {
    /// The choice of a section, a class or of the annotations; none if it has none. An ID goes
    /// before the others.
    pub(super) fn of(placement: &Placement) -> Option<Self> {
        let Placement { floating_subnet, floating_subnet_name: name, floating_subnet_tags: tags, .. } = placement;
        match floating_subnet {
            Some(id) => Some(Self::Id(id.clone())),
            None if name.is_none() && tags.is_none() => None,
            None => Some(Self::Matching { name: name.clone(), tags: tags.clone() }),
        }
    }
}

/// Whether a name matches a glob with `*` and `?`; `!` before the glob negates it.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('!') {
        Some(pattern) => !glob(pattern.as_bytes(), name.as_bytes()),
        None => glob(pattern.as_bytes(), name.as_bytes()),
    }
}

/// Linear in both lengths but for one return to the last `*`.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(c) if *c == b'?' || Some(c) == name.get(place) => (at, place) = (at + 1, place + 1),
            _ => match star {
                Some((after, begun)) => {
                    star = Some((after, begun + 1));
                    (at, place) = (after + 1, begun + 1);
                }
                None => return false,
            },
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|c| *c == b'*')
}

/// The parameter of a list of subnets for a list of tags: at least one of them, all after `&`; the
/// opposite after `!`.
pub(crate) fn tag_query(tags: &str) -> (&'static str, String) {
    let (not, tags) = tags.strip_prefix('!').map_or((false, tags), |tags| (true, tags));
    let (all, tags) = tags.strip_prefix('&').map_or((false, tags), |tags| (true, tags));
    let key = match (not, all) {
        (false, false) => "tags-any",
        (false, true) => "tags",
        (true, false) => "not-tags",
        (true, true) => "not-tags-any",
    };
    let tags: Vec<&str> = tags.split(',').map(str::trim).collect();
    (key, tags.join(","))
}

#[cfg(test)]
mod tests {
    use super::{matches, tag_query};

    #[test]
    fn a_glob_matches_whole_names() {
        for (pattern, name, expected) in [
            ("public", "public", true),
            ("public", "public-1", false),
            ("public-*", "public-1", true),
            ("*-v4", "a-v6-v4", true),
            ("*a*b", "xaybxb", true),
            ("?-*", "a-", true),
            ("?", "", false),
            ("*", "", true),
            ("!public*", "public-1", false),
            ("!public*", "private", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn tags_become_the_query_of_the_vendors_manager() {
        for (tags, expected) in [
            ("a, b", ("tags-any", "a,b")),
            ("&a,b", ("tags", "a,b")),
            ("!a", ("not-tags", "a")),
            ("!&a,b", ("not-tags-any", "a,b")),
        ] {
            assert_eq!(tag_query(tags), (expected.0, expected.1.to_owned()));
        }
    }
}
