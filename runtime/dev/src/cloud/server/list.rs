//! Lists in pages: filters, `limit` and `cursor`.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;

use crate::cloud::error::CloudError;

/// The maximum number of values of `id` and `name` in one query; a provider sends several queries.
const WANTED_MAX: usize = 500;

/// One page.
#[derive(Serialize)]
pub(super) struct Page<T> {
    items: Vec<T>,
    /// The cursor of the next page; null on the last one.
    next: Option<String>,
}

/// A parsed query.
#[derive(Debug, Default)]
pub(super) struct Query {
    limit: Option<usize>,
    after: Option<String>,
    ids: Vec<String>,
    names: Vec<String>,
    tags: Vec<(String, String)>,
}

/// The fields for the filters.
pub(super) struct Facts<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    /// None for kinds without tags.
    pub(super) tags: Option<&'a crate::cloud::model::Tags>,
}

impl Query {
    /// Reads `limit`, `cursor`, and any number of `id`, `name` and `tag` (as `key=value`).
    pub(super) fn parse(pairs: Vec<(String, String)>) -> Result<Self, CloudError> {
        let mut query = Self::default();
        for (key, value) in pairs {
            match key.as_str() {
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=500).contains(limit));
                    query.limit = Some(limit.ok_or_else(|| invalid("limit must be from 1 to 500"))?);
                }
                "cursor" => {
                    let bytes = URL_SAFE_NO_PAD.decode(&value).ok();
                    let after = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                    query.after =
                        Some(after.ok_or_else(|| invalid("cursor is not the cursor of a page; start without one"))?);
                }
                "id" => query.ids.push(value),
                "name" => query.names.push(value),
                "tag" => {
                    let pair = value.split_once('=').ok_or_else(|| invalid("tag must be key=value"))?;
                    query.tags.push((pair.0.to_owned(), pair.1.to_owned()));
                }
                _ => return Err(invalid(&format!("{key:?} is not a parameter of this list"))),
            }
        }
        if query.ids.len() + query.names.len() > WANTED_MAX {
            return Err(invalid(&format!("a query has at most {WANTED_MAX} of id and name together")));
        }
        Ok(query)
    }

    /// One of the IDs or names, if the query has any, and every tag.
    fn wants(&self, facts: &Facts<'_>) -> bool {
        let unnamed = self.ids.is_empty() && self.names.is_empty();
        let named = self.ids.iter().any(|id| id == facts.id) || self.names.iter().any(|name| name == facts.name);
        let tagged = |(key, value): &(String, String)| facts.tags.is_some_and(|tags| tags.get(key) == Some(value));
        (unnamed || named) && self.tags.iter().all(tagged)
    }

    /// The page of the matching records, sorted by ID. Only those are copied, because the others
    /// may be many and large.
    pub(super) fn page<'a, R: 'a, T>(
        self,
        all: impl IntoIterator<Item = &'a R>,
        facts: impl Fn(&'a R) -> Facts<'a>,
        view: impl Fn(&'a R) -> T,
        entries_max: usize,
    ) -> Page<T> {
        let limit = self.limit.unwrap_or(entries_max).min(entries_max);
        let is_wanted = |record: &&'a R| {
            let facts = facts(record);
            self.after.as_deref().is_none_or(|after| facts.id > after) && self.wants(&facts)
        };
        let mut wanted = all.into_iter().filter(is_wanted);
        let page: Vec<&R> = wanted.by_ref().take(limit).collect();
        let more = wanted.next().is_some();
        let next = page.last().filter(|_| more).map(|last| URL_SAFE_NO_PAD.encode(facts(last).id));
        Page { items: page.into_iter().map(view).collect(), next }
    }
}

fn invalid(message: &str) -> CloudError {
    CloudError::Invalid(message.to_owned())
}
