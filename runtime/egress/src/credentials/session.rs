//! The session of a credential that needs a login: one token, and at most one login at a time.
//!
//! All requests of a provider share the session. A token is renewed before it expires, while
//! requests go on with it; only a request without a valid token waits for the login, and all that
//! wait share one login. A failed login is not repeated at once ([`RETRY_MAX`],
//! [`UNAUTHENTICATED_MIN`]): an issuer that locks accounts would lock this one.
//!
//! Must not send requests: the caller passes the login as a future.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    Secret,
    login::{Login, TokenProof},
};

/// Time for one login. A call waits 20 s for an answer of its cloud by default.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(20);

/// The shortest lifetime of a token. An issuer that claims less causes no login for each request.
const LIFETIME_MIN: Duration = Duration::from_secs(10);

/// Age of a token that is replaced because the cloud answered 401; doubled for each such login
/// after another one, up to [`REJECTED_AGE_MAX`] and half of the token's lifetime. A cloud that
/// always answers 401 causes no login for each request.
const REJECTED_AGE_MIN: Duration = Duration::from_secs(30);

/// See [`REJECTED_AGE_MIN`].
const REJECTED_AGE_MAX: Duration = Duration::from_mins(30);

/// Time until the next login after the issuer was not available; doubled each time, up to
/// [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);

/// See [`RETRY_MIN`].
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Time until the next login after the operator has to correct something.
const REFUSED_RETRY: Duration = Duration::from_mins(1);

/// Time until the next login after the issuer did not accept the user or the secret; doubled each
/// time, up to [`UNAUTHENTICATED_MAX`]. Issuers lock accounts: vCenter Server after five failed
/// logins in three minutes.
const UNAUTHENTICATED_MIN: Duration = Duration::from_mins(1);

/// See [`UNAUTHENTICATED_MIN`].
const UNAUTHENTICATED_MAX: Duration = Duration::from_hours(1);

/// The session of one credential.
pub(crate) struct Session {
    login: Login,
    state: Mutex<State>,
    account: Arc<Account>,
}

/// The account of one or more sessions: the last login that its issuer did not accept.
#[derive(Debug, Default)]
pub(crate) struct Account(Mutex<Option<Failed>>);

#[derive(Default)]
struct State {
    token: Option<Arc<Token>>,
    under_way: Option<UnderWay>,
    /// The last login, if it failed for another reason than the account.
    failure: Option<Failed>,
    /// Whether the login under way replaces a token that the cloud rejects.
    replaces_rejected: bool,
    /// Logins because of a rejected token, one after the other.
    rejections: u32,
    /// Holds the login that is under way; the login goes on when its request has ended.
    tasks: JoinSet<()>,
}

/// When a login began and ended, and its result.
type Ended = (Instant, Instant, Result<Issued, LoginError>);
type UnderWay = Shared<oneshot::Receiver<Ended>>;

#[derive(Debug)]
struct Failed {
    error: LoginError,
    at: Instant,
    pause: Duration,
    /// Such failures without a success between them.
    count: u32,
}

/// What a login returned.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(super) proof: TokenProof,
    /// The texts that are redacted from answers.
    pub(crate) secrets: Vec<Secret>,
    /// `None` for a token without a known end: it serves until the cloud rejects it.
    pub(crate) lifetime: Option<Duration>,
}

/// A token in use.
pub(crate) struct Token {
    pub(super) proof: TokenProof,
    began: Instant,
    lifetime: Option<Duration>,
}

/// Why there is no token. The texts contain no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The operator has to correct something: the URL, a role, a permission.
    #[error("{0}")]
    Refused(String),
    /// The issuer does not accept the user, the client or the secret. More such logins may lock the
    /// account.
    #[error("{0}")]
    Unauthenticated(String),
    /// The issuer could not be reached, or failed.
    #[error("{0}")]
    Unavailable(String),
}

// === impl Session ===

impl Session {
    pub(crate) fn new(login: Login) -> Self {
        Self::of(login, Arc::default())
    }

    /// A session of an account that may have other sessions.
    pub(crate) fn of(login: Login, account: Arc<Account>) -> Self {
        Self { login, state: Mutex::default(), account }
    }

    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// A valid token. `rejected` is a token that the cloud has answered with 401: it is replaced,
    /// unless it is so new that a login would not help; then it is returned again. `log_in` begins
    /// a login if one is needed.
    ///
    /// # Errors
    /// The last login failed, and no token is valid.
    ///
    /// # Cancel safety
    /// A login that has begun goes on when the future is dropped.
    pub(crate) async fn token(
        &self,
        rejected: Option<&Arc<Token>>,
        log_in: impl FnOnce() -> BoxFuture<'static, Result<Issued, LoginError>>,
    ) -> Result<Arc<Token>, LoginError> {
        let login = || {
            let url = self.login.endpoint().0.url.to_string();
            let login = timeout(LOGIN_TIME_MAX, log_in());
            async move {
                let result = login.await.unwrap_or_else(|_| Err(too_slow()));
                result.map_err(|error| error.at(&url))
            }
            .boxed()
        };
        let under_way = {
            let mut state = self.state();
            let now = Instant::now();
            state.settle(now, &self.account);
            let current = state.token.clone();
            // The token of this request, which is old enough.
            let is_rejected = current.as_ref().zip(rejected).is_some_and(|(token, rejected)| {
                Arc::ptr_eq(token, rejected) && now.duration_since(token.began) >= state.rejected_age(token)
            });
            let valid = current.filter(|token| token.is_valid(now) && !is_rejected);
            if valid.as_ref().is_none_or(|token| token.is_due(now))
                && let Err(error) = state.begin(now, &self.account, is_rejected, login)
            {
                return valid.ok_or(error);
            }
            match (valid, &state.under_way) {
                (Some(token), _) => return Ok(token),
                (None, Some(under_way)) => under_way.clone(),
                (None, None) => return Err(cancelled()),
            }
        };
        // The result is taken from the state, where the first waiting request has put it.
        let ended = under_way.await.map_err(|_| cancelled())?;
        let mut state = self.state();
        state.settle(Instant::now(), &self.account);
        match (&state.token, ended) {
            (Some(token), (_, _, Ok(_))) => Ok(Arc::clone(token)),
            (_, (_, _, Err(error))) => Err(error),
            (None, (_, began, Ok(issued))) => Ok(Arc::new(Token::new(issued, began))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Session {
    /// Whether both log in with the same values.
    fn eq(&self, other: &Self) -> bool {
        self.login == other.login
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("login", &self.login).finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    /// Takes over the result of a login that has ended.
    fn settle(&mut self, now: Instant, account: &Account) {
        let Some(ended) = self.under_way.as_ref().and_then(|under_way| under_way.clone().now_or_never()) else {
            return;
        };
        self.under_way = None;
        while self.tasks.try_join_next().is_some() {}
        match ended.unwrap_or_else(|_| (now, now, Err(cancelled()))) {
            (start, end, Ok(issued)) => {
                self.failure = None;
                account.lock().take_if(|failed| failed.at <= start);
                self.rejections = if self.replaces_rejected { self.rejections.saturating_add(1) } else { 0 };
                self.token = Some(Arc::new(Token::new(issued, end)));
            }
            (_, end, Err(error @ LoginError::Unauthenticated(_))) => {
                let mut last = account.lock();
                let count = last.as_ref().map_or(0, |failed| failed.count).saturating_add(1);
                let pause = doubled(UNAUTHENTICATED_MIN, count - 1, UNAUTHENTICATED_MAX);
                *last = Some(Failed { error, at: end, pause, count });
            }
            (_, end, Err(error @ LoginError::Refused(_))) => {
                self.failure = Some(Failed { error, at: end, pause: REFUSED_RETRY, count: 0 });
            }
            (_, end, Err(error @ LoginError::Unavailable(_))) => {
                let count = self.failure.as_ref().map_or(0, |failed| failed.count).saturating_add(1);
                let pause = doubled(RETRY_MIN, count - 1, RETRY_MAX);
                self.failure = Some(Failed { error, at: end, pause, count });
            }
        }
    }

    /// The age from which on a token is replaced because the cloud rejects it.
    fn rejected_age(&self, token: &Token) -> Duration {
        let max = token.lifetime.map_or(REJECTED_AGE_MAX, |lifetime| REJECTED_AGE_MAX.min(lifetime / 2));
        doubled(REJECTED_AGE_MIN, self.rejections, max.max(REJECTED_AGE_MIN))
    }

    /// Begins a login, unless one is under way or the last one failed just now.
    fn begin(
        &mut self,
        now: Instant,
        account: &Account,
        is_rejected: bool,
        log_in: impl FnOnce() -> BoxFuture<'static, Result<Issued, LoginError>>,
    ) -> Result<(), LoginError> {
        if self.under_way.is_some() {
            return Ok(());
        }
        let shared = account.lock();
        let waits = [self.failure.as_ref(), shared.as_ref()].into_iter().flatten();
        if let Some(failed) = waits.into_iter().find(|failed| now.duration_since(failed.at) < failed.pause) {
            return Err(failed.error.clone());
        }
        drop(shared);
        self.replaces_rejected = is_rejected;
        let (end, ended) = oneshot::channel();
        let login = log_in();
        self.tasks.spawn(async move {
            let result = login.await;
            // Nobody waits for a renewal of a token that is still valid.
            drop(end.send((now, Instant::now(), result)));
        });
        self.under_way = Some(ended.shared());
        Ok(())
    }
}

// === impl LoginError ===

impl LoginError {
    /// The same error with another text.
    pub(crate) fn map(self, text: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Refused(before) => Self::Refused(text(before)),
            Self::Unauthenticated(before) => Self::Unauthenticated(text(before)),
            Self::Unavailable(before) => Self::Unavailable(text(before)),
        }
    }

    /// Names the URL of the login: sessions of an account share an error.
    fn at(self, url: &str) -> Self {
        self.map(|text| format!("log in at {url}: {text}"))
    }
}

// === impl Account ===

impl Account {
    fn lock(&self) -> MutexGuard<'_, Option<Failed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn doubled(first: Duration, times: u32, max: Duration) -> Duration {
    first.saturating_mul(1 << times.min(12)).min(max)
}

fn too_slow() -> LoginError {
    let seconds = LOGIN_TIME_MAX.as_secs();
    LoginError::Unavailable(format!("no token after {seconds} s; check the URL and the network"))
}

fn cancelled() -> LoginError {
    LoginError::Unavailable("the login was cancelled".to_owned())
}

// === impl Token ===

impl Token {
    fn new(issued: Issued, began: Instant) -> Self {
        let Issued { proof, secrets: _, lifetime } = issued;
        Self { proof, began, lifetime: lifetime.map(|lifetime| lifetime.max(LIFETIME_MIN)) }
    }

    fn is_valid(&self, now: Instant) -> bool {
        self.lifetime.is_none_or(|lifetime| now.duration_since(self.began) < lifetime)
    }

    /// Whether nine tenths of the lifetime have passed.
    fn is_due(&self, now: Instant) -> bool {
        self.lifetime.is_some_and(|lifetime| now.duration_since(self.began) >= lifetime / 10 * 9)
    }
}

#[cfg(test)]
mod tests;
