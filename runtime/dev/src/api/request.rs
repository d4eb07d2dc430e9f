//! The path, the verb and the query of a request, parsed as by the API server.

use std::time::Duration;

use http::{Method, Uri};
use serde_json::Value;

use super::errors::ApiError;

/// A path below `/api` or `/apis`, split up.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

/// The options of one request, from its query and, for deletions, its body.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Params {
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) resource_version: String,
    pub(crate) resource_version_match: String,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) watch: bool,
    pub(crate) allow_watch_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) dry_run: bool,
    pub(crate) field_manager: String,
    pub(crate) field_validation: String,
    pub(crate) force: bool,
}

impl Target {
    /// Splits `/api/v1/…` and `/apis/GROUP/VERSION/…`; `None` for every other path, and for paths
    /// without a resource.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (*namespace, inner),
            _ => ("", rest),
        };
        let (resource, name, subresource) = match rest {
            [resource] => (*resource, "", ""),
            [resource, name] => (*resource, *name, ""),
            [resource, name, subresource] => (*resource, *name, *subresource),
            _ => return None,
        };
        Some(Self {
            group: group.into(),
            version: version.into(),
            namespace: namespace.into(),
            resource: resource.into(),
            name: percent_decoded(name),
            subresource: subresource.into(),
        })
    }

    /// The Kubernetes verb, as RBAC and audit name it.
    pub(crate) fn verb(&self, method: &Method, params: &Params) -> Option<&'static str> {
        let named = !self.name.is_empty();
        Some(match (method.as_str(), named) {
            ("GET", true) => "get",
            ("GET", false) if params.watch => "watch",
            ("GET", false) => "list",
            ("POST", false) => "create",
            ("POST", true) if !self.subresource.is_empty() => "create",
            ("PUT", true) => "update",
            ("PATCH", true) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => return None,
        })
    }
}

fn percent_decoded(segment: &str) -> String {
    // A form parser decodes percent-encoding; a plus sign must stay a plus sign.
    let pair = format!("n={}", segment.replace('+', "%2B"));
    url::form_urlencoded::parse(pair.as_bytes()).next().map(|(_, v)| v.into_owned()).unwrap_or_default()
}

impl Params {
    /// Reads the query.
    ///
    /// # Errors
    /// `BadRequest` for an invalid number or boolean.
    pub(crate) fn parse(uri: &Uri) -> Result<Self, ApiError> {
        let mut params = Self::default();
        for (key, value) in url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            let text = value.into_owned();
            match key.as_ref() {
                "labelSelector" => params.label_selector = text,
                "fieldSelector" => params.field_selector = text,
                "resourceVersion" => params.resource_version = text,
                "resourceVersionMatch" => params.resource_version_match = text,
                "continue" => params.continue_token = text,
                "fieldManager" => params.field_manager = text,
                "fieldValidation" => params.field_validation = text,
                "limit" => params.limit = number(&text, "limit")?,
                "timeoutSeconds" => {
                    let seconds: u64 = number(&text, "timeoutSeconds")?;
                    params.timeout = (seconds > 0).then(|| Duration::from_secs(seconds));
                }
                "watch" => params.watch = boolean(&text),
                "allowWatchBookmarks" => params.allow_watch_bookmarks = boolean(&text),
                "sendInitialEvents" => params.send_initial_events = Some(boolean(&text)),
                "force" => params.force = boolean(&text),
                "dryRun" => params.dry_run |= text == "All",
                _ => {}
            }
        }
        Ok(params)
    }

    /// The requested revision of a list or watch; `None` for the present one.
    ///
    /// # Errors
    /// `Invalid` where it is not a number.
    pub(crate) fn revision(&self) -> Result<Option<u64>, ApiError> {
        match self.resource_version.as_str() {
            "" | "0" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                let cause = super::errors::Cause::invalid(
                    "resourceVersion",
                    &Value::from(text),
                    &format!("strconv.ParseUint: parsing {text:?}: invalid syntax"),
                );
                ApiError::bad_request(format!("resourceVersion: {}", cause.message))
            }),
        }
    }
}

/// Go's `conversion.Convert_Slice_string_To_bool`: everything but "false" and "0" is true.
fn boolean(text: &str) -> bool {
    !matches!(text.to_ascii_lowercase().as_str(), "false" | "0")
}

fn number<T: std::str::FromStr>(text: &str, key: &str) -> Result<T, ApiError> {
    text.parse().map_err(|_| ApiError::bad_request(format!("the query parameter {key} must be a number, not {text:?}")))
}
