//! Bearer tokens: the API server checks them by a `TokenReview`, and its answers are cached for a
//! short time.

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderMap, header::AUTHORIZATION};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::{Api, Client, api::PostParams};

use super::{InvalidCredential, User};
use crate::{limits::TOKENS_KEPT_MAX, peer_address::PeerAddress, review::Reviews};

/// Authenticates bearer tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    api: Api<TokenReview>,
    /// `None`: the token is not valid.
    reviews: Reviews<Option<User>>,
    ttl: Duration,
}

impl Tokens {
    pub(crate) fn new(client: Client, ttl: Duration) -> Self {
        Self { api: Api::all(client), reviews: Reviews::new("TokenReview", TOKENS_KEPT_MAX), ttl }
    }

    /// The user of the token; `None` if the request has no token.
    pub(super) async fn authenticate(
        &self,
        client: PeerAddress,
        headers: &HeaderMap,
    ) -> Result<Option<User>, InvalidCredential> {
        let Some(token) = headers.get(AUTHORIZATION).and_then(|value| bearer(value.to_str().ok()?)) else {
            return Ok(None);
        };
        let user = self.reviews.review(client, [token], self.ask(token)).await?;
        user.map(Some).ok_or(InvalidCredential::Token)
    }

    async fn ask(&self, token: &str) -> kube::Result<(Option<User>, Duration)> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let question = TokenReview { metadata: Default::default(), spec, status: None };
        let answer = self.api.create(&PostParams::default(), &question).await?;
        let status = answer.status.unwrap_or_default();
        let user = status.authenticated.unwrap_or_default().then(|| user(status.user.unwrap_or_default()));
        Ok((user, self.ttl))
    }
}

/// The token of `Authorization: Bearer TOKEN`; `None` for other schemes.
fn bearer(header: &str) -> Option<&str> {
    let mut parts = header.trim().splitn(3, ' ');
    let scheme = parts.next()?;
    parts.next().filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

fn user(info: UserInfo) -> User {
    let extra: BTreeMap<_, _> = info.extra.unwrap_or_default();
    User {
        name: info.username.unwrap_or_default(),
        uid: info.uid.unwrap_or_default(),
        groups: info.groups.unwrap_or_default(),
        extra,
    }
}

#[cfg(test)]
mod tests {
    use super::bearer;

    #[test]
    fn only_a_bearer_is_a_token() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer(" bearer abc def "), Some("abc"));
        for other in ["", "Bearer", "Bearer ", "Basic abc", "Token abc", "Bearer  abc"] {
            assert_eq!(bearer(other), None, "{other:?}");
        }
    }
}
