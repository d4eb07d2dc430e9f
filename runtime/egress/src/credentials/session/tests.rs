//! Tests of the time of logins, with a paused clock.

use std::{
    collections::VecDeque,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt as _, future::join_all};
use http::HeaderValue;
use tokio::{
    sync::Notify,
    time::{Instant, advance},
};

use super::{Issued, LOGIN_TIME_MAX, LoginError, REJECTED_AGE_MIN, Session, Token};
use crate::credentials::{
    Secret,
    login::{ClientIdentity, Endpoint, Login, OAuth2, TokenProof},
};

const URL: &str = "https://issuer.example.com/token";
const LIFETIME: Duration = Duration::from_secs(1000);

/// An issuer that waits for `open`, and then gives the prepared results, one for each login; then
/// tokens that are valid for [`LIFETIME`].
#[derive(Default)]
struct Issuer {
    results: Mutex<VecDeque<Result<Option<Duration>, LoginError>>>,
    logins: AtomicUsize,
    closed: Mutex<Option<Arc<Notify>>>,
}

impl Issuer {
    fn will(results: impl IntoIterator<Item = Result<Option<Duration>, LoginError>>) -> Arc<Self> {
        Arc::new(Self { results: Mutex::new(results.into_iter().collect()), ..Self::default() })
    }

    fn logins(&self) -> usize {
        self.logins.load(Ordering::SeqCst)
    }

    fn close(&self) -> Arc<Notify> {
        let notify = Arc::new(Notify::new());
        *self.closed.lock().unwrap() = Some(Arc::clone(&notify));
        notify
    }

    async fn log_in(self: Arc<Self>) -> Result<Issued, LoginError> {
        let number = self.logins.fetch_add(1, Ordering::SeqCst) + 1;
        let closed = self.closed.lock().unwrap().take();
        if let Some(closed) = closed {
            closed.notified().await;
        }
        let result = self.results.lock().unwrap().pop_front().unwrap_or(Ok(Some(LIFETIME)));
        let header = HeaderValue::from_str(&format!("token-{number}")).unwrap();
        result.map(|lifetime| Issued { proof: TokenProof::Header(header), secrets: Vec::new(), lifetime })
    }
}

fn session() -> Session {
    let endpoint = Endpoint::parse(URL, "").unwrap();
    let identity = ClientIdentity::Body(Secret::new("the-client-secret"));
    Session::new(Login::OAuth2(OAuth2::new(endpoint, "client".to_owned(), identity, Default::default())))
}

async fn token(session: &Session, issuer: &Arc<Issuer>) -> Result<Arc<Token>, LoginError> {
    session.token(None, || Arc::clone(issuer).log_in().boxed()).await
}

async fn replaced(session: &Session, issuer: &Arc<Issuer>, rejected: &Arc<Token>) -> Result<Arc<Token>, LoginError> {
    session.token(Some(rejected), || Arc::clone(issuer).log_in().boxed()).await
}

fn text(token: &Token) -> &str {
    match &token.proof {
        TokenProof::Header(value) => value.to_str().unwrap(),
        TokenProof::AwsKeys(keys) => panic!("{keys:?}"),
    }
}

fn unavailable() -> LoginError {
    LoginError::Unavailable("down".to_owned())
}

/// Lets the tasks that are ready run.
async fn settled() {
    advance(Duration::from_millis(1)).await;
    tokio::task::yield_now().await;
}

#[tokio::test(start_paused = true)]
async fn all_that_wait_share_one_login() {
    let (session, issuer) = (session(), Issuer::will([]));
    let tokens = join_all((0..20).map(|_| token(&session, &issuer))).await;
    assert!(tokens.iter().all(|token| text(token.as_ref().unwrap()) == "token-1"));
    assert_eq!(issuer.logins(), 1);

    let (session, issuer) = (self::session(), Issuer::will([Err(unavailable())]));
    let tokens = join_all((0..20).map(|_| token(&session, &issuer))).await;
    assert!(tokens.iter().all(|token| token.as_ref().is_err_and(|error| *error == unavailable().at(URL))));
    assert_eq!(issuer.logins(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_it_expires_and_no_request_waits() {
    let (session, issuer) = (session(), Issuer::will([]));
    let first = token(&session, &issuer).await.unwrap();
    advance(LIFETIME * 8 / 10).await;
    assert!(Arc::ptr_eq(&token(&session, &issuer).await.unwrap(), &first));
    assert_eq!(issuer.logins(), 1);
    advance(LIFETIME / 10).await;
    let open = issuer.close();
    for _ in 0..5 {
        let now = token(&session, &issuer).now_or_never().unwrap().unwrap();
        assert!(Arc::ptr_eq(&now, &first), "the login is under way");
        settled().await;
    }
    assert_eq!(issuer.logins(), 2);
    open.notify_one();
    settled().await;
    assert_eq!(text(&token(&session, &issuer).now_or_never().unwrap().unwrap()), "token-2");
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_is_down_harms_nothing_until_the_token_expires() {
    let (session, issuer) =
        (session(), Issuer::will([Ok(Some(LIFETIME))].into_iter().chain((0..30).map(|_| Err(unavailable())))));
    let start = Instant::now();
    let first = token(&session, &issuer).await.unwrap();
    advance(LIFETIME * 9 / 10).await;
    while start.elapsed() < LIFETIME - Duration::from_secs(1) {
        assert!(Arc::ptr_eq(&token(&session, &issuer).await.unwrap(), &first));
        settled().await;
        advance(Duration::from_millis(500)).await;
    }
    advance(Duration::from_secs(1)).await;
    assert_eq!(token(&session, &issuer).await.err(), Some(unavailable().at(URL)));
}

#[tokio::test(start_paused = true)]
async fn failed_logins_are_repeated_at_a_rate() {
    // After 0, 1, 3, 7, 15 and 31 s, then every 30 s; with a wrong password at 0, 1 and 3 minutes;
    // with a wrong URL every minute.
    for (error, expected) in [
        (unavailable(), 5 + 1 + 269 / 30),
        (LoginError::Unauthenticated("the password is wrong".to_owned()), 3),
        (LoginError::Refused("the URL is wrong".to_owned()), 5),
    ] {
        let (session, issuer) = (session(), Issuer::will((0..1000).map(|_| Err(error.clone()))));
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(300) {
            assert_eq!(token(&session, &issuer).await.err(), Some(error.clone().at(URL)));
            advance(Duration::from_millis(100)).await;
        }
        assert_eq!(issuer.logins(), expected, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_forgets_the_failures() {
    let results = [Err(unavailable()), Err(unavailable()), Ok(Some(LIFETIME)), Err(unavailable())];
    let (session, issuer) = (session(), Issuer::will(results));
    for wait in [1, 2] {
        token(&session, &issuer).await.err().unwrap();
        advance(Duration::from_secs(wait)).await;
    }
    token(&session, &issuer).await.unwrap();
    advance(LIFETIME).await;
    token(&session, &issuer).await.err().unwrap();
    advance(Duration::from_secs(1)).await;
    token(&session, &issuer).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_replaced_once_unless_it_is_new() {
    let (session, issuer) = (session(), Issuer::will([Ok(None)]));
    let first = token(&session, &issuer).await.unwrap();
    advance(REJECTED_AGE_MIN - Duration::from_millis(1)).await;
    assert!(Arc::ptr_eq(&replaced(&session, &issuer, &first).await.unwrap(), &first));
    advance(Duration::from_millis(1)).await;
    let replacements = join_all((0..20).map(|_| replaced(&session, &issuer, &first))).await;
    assert!(replacements.iter().all(|token| text(token.as_ref().unwrap()) == "token-2"));
    // An answer to a request with the first token, which took longer.
    assert_eq!(text(&replaced(&session, &issuer, &first).await.unwrap()), "token-2");
    assert_eq!(issuer.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_login_goes_on_when_its_request_has_ended() {
    let (session, issuer) = (session(), Issuer::will([]));
    let open = issuer.close();
    assert!(token(&session, &issuer).now_or_never().is_none());
    settled().await;
    open.notify_one();
    settled().await;
    assert_eq!(text(&token(&session, &issuer).now_or_never().unwrap().unwrap()), "token-1");
    assert_eq!(issuer.logins(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_login_without_an_answer_ends() {
    let session = session();
    let start = Instant::now();
    let error = session.token(None, || pending().boxed()).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "log in at https://issuer.example.com/token: no token after 20 s; check the URL and the network"
    );
    assert_eq!(start.elapsed(), LOGIN_TIME_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_token_without_a_lifetime_causes_no_login_for_each_request() {
    let (session, issuer) = (session(), Issuer::will((0..100).map(|_| Ok(Some(Duration::ZERO)))));
    for _ in 0..100 {
        token(&session, &issuer).await.unwrap();
        advance(Duration::from_millis(100)).await;
    }
    assert_eq!(issuer.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn rejected_tokens_are_replaced_less_and_less_often() {
    let (session, issuer) = (session(), Issuer::will((0..1000).map(|_| Ok(None))));
    let start = Instant::now();
    let mut current = token(&session, &issuer).await.unwrap();
    while start.elapsed() < Duration::from_hours(1) {
        current = replaced(&session, &issuer, &current).await.unwrap();
        advance(Duration::from_secs(1)).await;
    }
    // After 30 s, then 1, 2, 4, 8 and 16 minutes.
    assert_eq!(issuer.logins(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_stays_in_use_where_no_other_can_be_had() {
    let (session, issuer) = (session(), Issuer::will([Ok(None), Err(unavailable())]));
    let first = token(&session, &issuer).await.unwrap();
    advance(REJECTED_AGE_MIN).await;
    assert_eq!(replaced(&session, &issuer, &first).await.err(), Some(unavailable().at(URL)));
    assert!(Arc::ptr_eq(&token(&session, &issuer).await.unwrap(), &first));
}

#[tokio::test(start_paused = true)]
async fn sessions_of_one_account_share_the_wait_after_a_wrong_password() {
    let refused = || Err(LoginError::Unauthenticated("no".to_owned()));
    let issuer = Issuer::will((0..100).map(|_| refused()));
    let one = session();
    let other = Session::of(one.login().clone(), Arc::clone(&one.account));
    let start = Instant::now();
    let mut in_three_minutes = 0;
    while start.elapsed() < Duration::from_hours(1) {
        for session in [&one, &other] {
            assert!(token(session, &issuer).await.is_err());
        }
        if start.elapsed() < Duration::from_mins(3) {
            in_three_minutes = issuer.logins();
        }
        advance(Duration::from_secs(1)).await;
    }
    assert!(in_three_minutes < 5 && issuer.logins() <= 7, "{in_three_minutes} {}", issuer.logins());
}

#[tokio::test(start_paused = true)]
async fn one_refusal_after_a_long_outage_is_repeated_after_a_minute() {
    for refusal in [LoginError::Refused("no".to_owned()), LoginError::Unauthenticated("no".to_owned())] {
        let results = (0..20).map(|_| Err(unavailable())).chain([Err(refusal.clone())]);
        let (session, issuer) = (session(), Issuer::will(results));
        while token(&session, &issuer).await.err() != Some(refusal.clone().at(URL)) {
            advance(Duration::from_secs(1)).await;
        }
        advance(Duration::from_secs(60)).await;
        token(&session, &issuer).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_one_session_does_not_delay_the_other_session_of_its_account() {
    let failing = Issuer::will((0..100).map(|_| Err(LoginError::Refused("404".to_owned()))));
    let (one, issuer) = (session(), Issuer::will([]));
    let other = Session::of(one.login().clone(), Arc::clone(&one.account));
    assert!(token(&one, &failing).await.is_err());
    token(&other, &issuer).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_short_lifetime_is_replaced_however_often_tokens_were_rejected() {
    let lifetime = Some(Duration::from_mins(20));
    let (session, issuer) = (session(), Issuer::will((0..1000).map(|_| Ok(lifetime))));
    let mut current = token(&session, &issuer).await.unwrap();
    for _ in 0..20 {
        advance(Duration::from_mins(10)).await;
        let next = replaced(&session, &issuer, &current).await.unwrap();
        assert!(!Arc::ptr_eq(&next, &current));
        current = next;
    }
}
