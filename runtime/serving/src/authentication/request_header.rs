//! Authentication by a front proxy (an aggregating API server), which sends the user in headers and
//! has to present a client certificate.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

use super::{InvalidCredential, Peer, User, certificate::Ca};

/// The front proxy's CA, and the headers that it uses.
#[derive(Clone, Debug)]
pub(crate) struct FrontProxy {
    pub(crate) ca: Ca,
    /// Common names; empty: any.
    pub(crate) allowed_names: Vec<String>,
    pub(crate) username_headers: Vec<String>,
    pub(crate) uid_headers: Vec<String>,
    pub(crate) group_headers: Vec<String>,
    pub(crate) extra_headers_prefixes: Vec<String>,
}

impl FrontProxy {
    pub(super) fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Result<Option<User>, InvalidCredential> {
        let Some(subject) = self.ca.verify(peer).map_err(InvalidCredential::RequestHeader)? else { return Ok(None) };
        let name = subject.common_name;
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&name) {
            return Err(InvalidCredential::RequestHeader(format!(
                "its certificate's name {name:?} is not an allowed name"
            )));
        }
        let first = |names| values(headers, names).find(|value| !value.is_empty());
        let Some(name) = first(&self.username_headers) else { return Ok(None) };
        Ok(Some(User {
            name: name.to_owned(),
            uid: first(&self.uid_headers).unwrap_or_default().to_owned(),
            groups: values(headers, &self.group_headers).map(str::to_owned).collect(),
            extra: self.extra(headers),
        }))
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra = BTreeMap::<_, Vec<_>>::new();
        for (name, value) in headers {
            let prefixes = self.extra_headers_prefixes.iter();
            let key = prefixes.filter_map(|prefix| strip_prefix(name, prefix)).next();
            let (Some(key), Ok(value)) = (key, value.to_str()) else { continue };
            let key = percent_decode_str(key).decode_utf8_lossy().to_lowercase();
            extra.entry(key).or_default().push(value.to_owned());
        }
        extra
    }
}

/// Compares without case: header names are in lower case here, prefixes as the operator wrote them.
fn strip_prefix<'a>(name: &'a HeaderName, prefix: &str) -> Option<&'a str> {
    name.as_str().strip_prefix(&prefix.to_lowercase()).filter(|key| !key.is_empty())
}

fn values<'a>(headers: &'a HeaderMap, names: &'a [String]) -> impl Iterator<Item = &'a str> {
    names.iter().flat_map(|name| headers.get_all(name.as_str())).filter_map(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::FrontProxy;
    use crate::{authentication::Peer, options::RequestHeaderOptions, testing::Authority};

    fn proxy(ca: &Authority, allowed: &[&str]) -> FrontProxy {
        let defaults = RequestHeaderOptions::default();
        FrontProxy {
            ca: ca.bundle(),
            allowed_names: allowed.iter().map(|&name| name.to_owned()).collect(),
            username_headers: defaults.username_headers,
            uid_headers: vec!["X-Remote-Uid".to_owned()],
            group_headers: defaults.group_headers,
            extra_headers_prefixes: vec!["X-Remote-Extra-".to_owned()],
        }
    }

    fn headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "jane"),
            ("x-remote-uid", "42"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-acme.com%2Fproject", "one"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_proxy_with_an_allowed_name_speaks_for_a_user() {
        let ca = Authority::new("front-proxy-ca");
        let peer = ca.client("front-proxy", &[]).peer();
        let user = proxy(&ca, &["front-proxy"]).authenticate(&peer, &headers()).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "42"));
        assert_eq!(user.groups, ["a", "b"]);
        assert_eq!(user.extra["acme.com/project"], ["one"]);
        let none = proxy(&ca, &[]).authenticate(&peer, &HeaderMap::new()).unwrap();
        assert_eq!(none, None, "without a user header the proxy authenticates no user");
    }

    #[test]
    fn headers_without_the_proxys_certificate_are_not_believed() {
        let ca = Authority::new("front-proxy-ca");
        assert_eq!(proxy(&ca, &[]).authenticate(&Peer::default(), &headers()).unwrap(), None);
        let stranger = Authority::new("front-proxy-ca").client("front-proxy", &[]).peer();
        proxy(&ca, &[]).authenticate(&stranger, &headers()).unwrap_err();
        let other_name = ca.client("somebody", &[]).peer();
        let error = proxy(&ca, &["front-proxy"]).authenticate(&other_name, &headers()).unwrap_err().to_string();
        assert!(error.contains("\"somebody\" is not an allowed name"), "{error}");
    }
}
