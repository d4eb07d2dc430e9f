//! `get` and `list`: selectors, paging, and the meaning of resourceVersion.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::errors::ApiError;
use super::object::Object;
use super::selectors::Selector;
use super::state::{Call, State, view};
use super::store::Key;

/// The default page size: unlimited, as in the API server.
const UNLIMITED: usize = usize::MAX;

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You \
    can start a new list without the continue parameter, or use the continue token in this response to retrieve the \
    remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
    created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Object>,
    pub(crate) revision: u64,
    pub(crate) continue_token: String,
    /// Number of items after this page; unknown with a filter.
    pub(crate) remaining: Option<usize>,
}

impl Page {
    /// The list's `metadata`.
    pub(crate) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if !self.continue_token.is_empty() {
            super::object::set(&mut metadata, "/continue", self.continue_token.clone());
            if let Some(remaining) = self.remaining {
                super::object::set(&mut metadata, "/remainingItemCount", remaining);
            }
        }
        metadata
    }
}

impl State {
    /// One object, in the requested version.
    pub(crate) fn read(&self, call: &Call) -> Result<Object, ApiError> {
        if let Some(asked) = call.params.revision()? {
            self.check_reached(asked)?;
        }
        let stored = self.store.get(&call.key()).ok_or_else(|| ApiError::not_found(&call.kind, &call.target.name))?;
        Ok(view(&call.kind, stored))
    }

    /// One page of a list; from the state `lag` revisions ago, if the caller accepts any state.
    pub(crate) fn list_page(&self, call: &Call, lag: u64) -> Result<Page, ApiError> {
        let params = &call.params;
        let selector = Selector::parse(&call.kind, &params.label_selector, &params.field_selector)?;
        let (revision, after) = self.list_position(call, lag)?;
        let objects: Vec<(Key, Object)> = if revision == self.store.revision() {
            self.store.list(&call.kind.storage, call.scope()).map(|(k, o)| (k.clone(), o.clone())).collect()
        } else {
            self.store.list_at(&call.kind.storage, call.scope(), revision).map_err(|_| self.too_old(call, revision))?
        };
        let mut matching = objects
            .into_iter()
            .filter(|(k, o)| after.as_ref().is_none_or(|a| k > a) && selector.matches(&call.kind, o));
        let limit = if params.limit == 0 { UNLIMITED } else { params.limit };
        let mut last = None;
        let mut items = Vec::new();
        for (key, stored) in matching.by_ref().take(limit) {
            items.push(view(&call.kind, &stored));
            last = Some(key);
        }
        let rest = matching.count();
        let continue_token = match last {
            Some(key) if rest > 0 => continue_token(revision, &key),
            _ => String::new(),
        };
        Ok(Page { items, revision, continue_token, remaining: selector.is_empty().then_some(rest) })
    }

    /// The revision to list at, and the key after which the page begins.
    fn list_position(&self, call: &Call, lag: u64) -> Result<(u64, Option<Key>), ApiError> {
        let params = &call.params;
        if !params.continue_token.is_empty() {
            let (revision, namespace, name) = parse_continue(&params.continue_token)
                .ok_or_else(|| ApiError::bad_request("invalid continue token: continue key is not valid"))?;
            let key = Key { storage: call.kind.storage.clone(), namespace, name };
            return Ok((revision, Some(key)));
        }
        let Some(asked) =
            params.revision().map_err(|e| ApiError::bad_request(format!("invalid resource version: {}", e.message)))?
        else {
            let remembered = self.store.compacted().max(1);
            return Ok((self.store.revision().saturating_sub(lag).max(remembered), None));
        };
        self.check_reached(asked)?;
        // With a limit the list has the requested revision even without a match rule: kubectl pages
        // that way.
        let exact =
            params.resource_version_match == "Exact" || params.limit > 0 && params.resource_version_match.is_empty();
        Ok((if exact { asked } else { self.store.revision() }, None))
    }

    /// Refuses a revision that does not exist yet.
    pub(crate) fn check_reached(&self, asked: u64) -> Result<(), ApiError> {
        let current = self.store.revision();
        if asked > current { Err(ApiError::too_large_resource_version(asked, current)) } else { Ok(()) }
    }

    fn too_old(&self, call: &Call, revision: u64) -> ApiError {
        if call.params.continue_token.is_empty() {
            return ApiError::expired(format!(
                "The resourceVersion for the provided list is too old. ({revision} < {})",
                self.store.compacted()
            ));
        }
        let mut error = ApiError::expired(CONTINUE_EXPIRED);
        if let Some((_, namespace, name)) = parse_continue(&call.params.continue_token) {
            let key = Key { storage: call.kind.storage.clone(), namespace, name };
            error.list_metadata = Some(Arc::new(json!({"continue": continue_token(self.store.revision(), &key)})));
        }
        error
    }
}

fn continue_token(revision: u64, key: &Key) -> String {
    URL_SAFE_NO_PAD
        .encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": [key.namespace, key.name]}).to_string())
}

fn parse_continue(token: &str) -> Option<(u64, String, String)> {
    let decoded: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok()?).ok()?;
    let part = |index: usize| Some(decoded.get("start")?.get(index)?.as_str()?.to_owned());
    Some((decoded.get("rv")?.as_u64()?, part(0)?, part(1)?))
}
