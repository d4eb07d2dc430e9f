//! Authorization: by public paths, by groups that may do everything, otherwise by a
//! `SubjectAccessReview` of the API server.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};

use crate::{
    authentication::User,
    limits::RIGHTS_KEPT_MAX,
    options::AuthorizationOptions,
    peer_address::PeerAddress,
    review::{ReviewError, Reviews},
};

/// The result of an authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Allowed,
    Denied,
}

/// Authorizes requests.
#[derive(Debug)]
pub(crate) struct Authorizer {
    options: AuthorizationOptions,
    /// `None` without an API server: all other requests are denied then.
    access: Option<AccessReviews>,
}

#[derive(Debug)]
struct AccessReviews {
    api: Api<SubjectAccessReview>,
    reviews: Reviews<Decision>,
    authorized_ttl: Duration,
    unauthorized_ttl: Duration,
}

impl Authorizer {
    pub(crate) fn new(options: AuthorizationOptions, client: Option<Client>) -> Self {
        let access = client.map(|client| AccessReviews {
            api: Api::all(client),
            reviews: Reviews::new("SubjectAccessReview", RIGHTS_KEPT_MAX),
            authorized_ttl: options.authorized_ttl,
            unauthorized_ttl: options.unauthorized_ttl,
        });
        Self { options, access }
    }

    /// Whether this user may use this verb on this path, which has to be the path that is routed.
    pub(crate) async fn authorize(
        &self,
        client: PeerAddress,
        user: &User,
        verb: &str,
        path: &str,
    ) -> Result<Decision, ReviewError> {
        let group = |group: &String| self.options.always_allow_groups.contains(group);
        if self.options.always_allow_paths.iter().any(|rule| covers(rule, path)) || user.groups.iter().any(group) {
            return Ok(Decision::Allowed);
        }
        match &self.access {
            Some(access) => access.decide(client, user, verb, path).await,
            None => Ok(Decision::Denied),
        }
    }
}

/// Whether a rule matches a path. As upstream, `*` at the end of a rule matches any text, and the
/// slash at the beginning is optional.
fn covers(rule: &str, path: &str) -> bool {
    let (rule, path) = (rule.trim_start_matches('/'), path.trim_start_matches('/'));
    rule.strip_suffix('*').map_or(rule == path, |prefix| path.starts_with(prefix))
}

impl AccessReviews {
    async fn decide(&self, client: PeerAddress, user: &User, verb: &str, path: &str) -> Result<Decision, ReviewError> {
        let parts = parts(user, verb, path);
        let parts = parts.iter().map(String::as_str);
        self.reviews.review(client, parts, self.ask(user, verb, path)).await
    }

    async fn ask(&self, user: &User, verb: &str, path: &str) -> kube::Result<(Decision, Duration)> {
        let answer = self.api.create(&PostParams::default(), &question(user, verb, path)).await?;
        Ok(match answer.status.unwrap_or_default().allowed {
            true => (Decision::Allowed, self.authorized_ttl),
            false => (Decision::Denied, self.unauthorized_ttl),
        })
    }
}

/// The cache key of a decision. The counts distinguish a group from a key of `extra`.
fn parts(user: &User, verb: &str, path: &str) -> Vec<String> {
    let mut parts = vec![verb.to_owned(), path.to_owned(), user.name.clone(), user.uid.clone()];
    parts.push(user.groups.len().to_string());
    parts.extend(user.groups.iter().cloned());
    for (key, values) in &user.extra {
        parts.extend([key.clone(), values.len().to_string()]);
        parts.extend(values.iter().cloned());
    }
    parts
}

fn question(user: &User, verb: &str, path: &str) -> SubjectAccessReview {
    let filled = |text: &String| (!text.is_empty()).then(|| text.clone());
    let extra: BTreeMap<_, _> = user.extra.clone();
    let spec = SubjectAccessReviewSpec {
        non_resource_attributes: Some(NonResourceAttributes {
            path: Some(path.to_owned()),
            verb: Some(verb.to_owned()),
        }),
        resource_attributes: None,
        user: filled(&user.name),
        uid: filled(&user.uid),
        groups: Some(user.groups.clone()),
        extra: (!extra.is_empty()).then_some(extra),
    };
    SubjectAccessReview { metadata: Default::default(), spec, status: None }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::{Authorizer, Decision, covers, parts};
    use crate::{authentication::User, options::AuthorizationOptions, peer_address::PeerAddress};

    #[test]
    fn a_rule_is_an_exact_path_or_a_prefix_with_a_star() {
        assert!(covers("/healthz", "/healthz") && covers("healthz", "/healthz") && covers("/a/*", "/a/b"));
        assert!(!covers("/healthz", "/healthz/") && !covers("/healthz", "/healthzz") && !covers("/a/*", "/a"));
    }

    #[tokio::test]
    async fn without_an_api_server_only_paths_and_groups_count() {
        let authorizer = Authorizer::new(AuthorizationOptions::default(), None);
        let (nobody, mut root) = (User::anonymous(), User::anonymous());
        root.groups.push("system:masters".to_owned());
        let client = PeerAddress::new(Ipv4Addr::LOCALHOST.into());
        let decide = async |user: &User, path: &str| authorizer.authorize(client, user, "get", path).await.unwrap();
        assert_eq!(decide(&nobody, "/livez").await, Decision::Allowed);
        assert_eq!(decide(&nobody, "/metrics").await, Decision::Denied);
        assert_eq!(decide(&root, "/metrics").await, Decision::Allowed);
    }

    #[test]
    fn a_group_is_not_read_as_a_key_of_extra() {
        let user = |groups: &[&str], extra: &[(&str, &str)]| User {
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            extra: extra.iter().map(|&(key, value)| (key.to_owned(), vec![value.to_owned()])).collect(),
            ..User::default()
        };
        assert_ne!(parts(&user(&["a", "1", "b"], &[]), "get", "/"), parts(&user(&[], &[("a", "b")]), "get", "/"));
    }
}
