//! The world of one call, as its imports see it: the live one, which may be recorded, or a
//! recording of it.
//!
//! Every import takes what comes from outside through this module: the time, random bytes, values
//! of the cache, responses. So the imports do not know whether a call is live, recorded or
//! replayed. A replayed call is recorded, too: the comparison is one of two recordings.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use serde_json::{Value, json};
use skysail_provider::{Error, text::one_line};
use tokio::{sync::Notify, time::Instant};

use crate::{
    Limits, answer,
    bindings::CONTRACT_VERSION,
    cache::Cache,
    disturbance::Disturber,
    http_client::{Admitted, Failure, HttpBudget, HttpRequest, HttpResponse},
    recording::{
        Body, ClockReadings, Cost, Exchange, FORMAT, LogLevel, RECORDING_BYTES_MAX, Reading, Recording, Redact,
        each_text,
    },
};

/// Where the answers to the imports of one call come from.
pub(crate) enum World {
    /// From the machine and the cloud.
    Live,
    /// As [`Self::Live`], and recorded. A request may be disturbed on its way to the cloud.
    Recorded(Tape, Disturber),
    /// From a recording; the call is recorded once more.
    Replayed(Tape, Box<Playback>),
}

/// What a call has received so far.
pub(crate) struct Tape {
    redact: Redact,
    arguments: Value,
    so_far: Mutex<SoFar>,
}

#[derive(Default)]
struct SoFar {
    clock: ClockReadings,
    random: Vec<u8>,
    cache: BTreeMap<String, Option<Body>>,
    /// The keys that the call has read or written.
    touched: BTreeSet<String>,
    requests: Vec<Exchange>,
    answer: Option<Value>,
    bytes: u64,
    /// Whether the call has received more than a recording may have.
    is_beyond: bool,
}

/// A recording that answers a call.
pub(crate) struct Playback {
    recording: Arc<Recording>,
    redact: Redact,
    used: Mutex<Used>,
    /// The first request that the recording lacks.
    missing: Mutex<Option<NotRecorded>>,
    is_missing: Notify,
}

/// What a replayed call has used of its recording.
#[derive(Default)]
struct Used {
    wall: Clock,
    monotonic: Clock,
    random: usize,
    /// For each recorded request whether it was made.
    requests: Vec<bool>,
}

/// The position in the readings of one clock.
#[derive(Default)]
struct Clock {
    next: usize,
    /// The last recorded reading, and the live clock at that time.
    last: Option<(Duration, Duration)>,
}

/// A replayed call made a request to which the recording has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the recording has no answer to {0}; record the call again with this component")]
pub(crate) struct NotRecorded(String);

/// What is known of a call at its end, for its recording.
pub(crate) struct Ended<'a> {
    pub(crate) provider: &'a str,
    pub(crate) component: &'a str,
    pub(crate) function: &'a str,
    pub(crate) config: &'a str,
    pub(crate) limits: &'a Limits,
    pub(crate) log_level: LogLevel,
    pub(crate) redacts_responses: bool,
    pub(crate) cost: Cost,
}

impl World {
    /// A call whose answers are recorded, after the disturbance of a request.
    pub(crate) fn recorded(redact: Redact, disturber: Disturber, arguments: Value) -> Self {
        Self::Recorded(Tape::new(redact, arguments), disturber)
    }

    /// A call whose answers come from the recording.
    pub(crate) fn replayed(recording: Arc<Recording>, redact: Redact, arguments: Value) -> Self {
        let used = Used { requests: vec![false; recording.requests.len()], ..Used::default() };
        let playback = Playback {
            recording,
            redact: redact.clone(),
            used: Mutex::new(used),
            missing: Mutex::default(),
            is_missing: Notify::new(),
        };
        Self::Replayed(Tape::new(redact, arguments), Box::new(playback))
    }

    fn playback(&self) -> Option<&Playback> {
        match self {
            Self::Live | Self::Recorded(..) => None,
            Self::Replayed(_, playback) => Some(playback),
        }
    }

    /// What the call has received so far, if it is recorded.
    const fn recorder(&self) -> Option<&Tape> {
        match self {
            Self::Live => None,
            Self::Recorded(tape, _) | Self::Replayed(tape, _) => Some(tape),
        }
    }

    /// Changes the tape, if there is one; `bytes` were received.
    fn tape(&self, bytes: usize, note: impl FnOnce(&mut SoFar)) {
        let Some(tape) = self.recorder() else { return };
        let mut so_far = tape.so_far();
        so_far.bytes = so_far.bytes.saturating_add(bytes as u64);
        so_far.is_beyond |= so_far.bytes > RECORDING_BYTES_MAX;
        if !so_far.is_beyond {
            note(&mut so_far);
        }
    }

    // === clocks and randomness ===

    /// The time since 1970.
    pub(crate) fn wall(&self) -> Duration {
        #[expect(clippy::disallowed_methods, reason = "this is where guests get the time from")]
        let live = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time =
            self.playback().map_or(live, |playback| playback.used().wall.read(&playback.recording.clock.wall, live));
        self.tape(size_of::<Reading>(), |so_far| so_far.clock.wall.push(Reading(time)));
        time
    }

    /// The time since the start of the call.
    pub(crate) fn monotonic(&self, began: Instant) -> Duration {
        let live = began.elapsed();
        let time = self
            .playback()
            .map_or(live, |playback| playback.used().monotonic.read(&playback.recording.clock.monotonic, live));
        self.tape(size_of::<Reading>(), |so_far| so_far.clock.monotonic.push(Reading(time)));
        time
    }

    /// Random bytes; `live` are those of the machine.
    pub(crate) fn random<const N: usize>(&self, live: [u8; N]) -> [u8; N] {
        let mut bytes = live;
        self.random_bytes(&mut bytes);
        bytes
    }

    /// As [`Self::random`]. A call that takes more than the recorded one gets bytes of the machine.
    pub(crate) fn random_bytes(&self, bytes: &mut [u8]) {
        if let Some(playback) = self.playback() {
            let mut used = playback.used();
            let recorded = playback.recording.random.get(used.random..).unwrap_or_default();
            for (byte, recorded) in bytes.iter_mut().zip(recorded) {
                *byte = *recorded;
            }
            used.random = used.random.saturating_add(bytes.len());
        }
        self.tape(bytes.len(), |so_far| so_far.random.extend_from_slice(bytes));
    }

    // === cache ===

    /// The cache of a replayed call; none for any other call.
    pub(crate) fn cache(&self, limits: &Limits) -> Option<Cache> {
        let found = &self.playback()?.recording.cache;
        let values = found.iter().filter_map(|(key, value)| Some((key.clone(), value.as_ref()?.0.to_vec())));
        Some(Cache::with(limits, values))
    }

    /// The call reads this key; `find` looks for its value.
    pub(crate) fn cache_read(&self, key: &str, find: impl FnOnce() -> Option<Vec<u8>>) {
        self.tape(key.len(), |so_far| {
            if !so_far.touched.insert(key.to_owned()) {
                return;
            }
            let found = find().map(|value| Body(value.into()));
            so_far.bytes = so_far.bytes.saturating_add(found.as_ref().map_or(0, |Body(value)| value.len() as u64));
            so_far.cache.insert(key.to_owned(), found);
        });
    }

    /// The call writes this key.
    pub(crate) fn cache_written(&self, key: &str) {
        self.tape(key.len(), |so_far| {
            so_far.touched.insert(key.to_owned());
        });
    }

    // === log ===

    /// Whether lines of this level are kept; `live` is the answer of the host's log.
    pub(crate) fn keeps_lines(&self, level: LogLevel, live: bool) -> bool {
        self.playback().map_or(live, |playback| level <= playback.recording.log_level)
    }

    // === requests ===

    /// Answers one request. `live` sends it, and counts in the budget what it has come to; here
    /// that is done for an answer of a recording alone.
    pub(crate) async fn send<F: Future<Output = Result<HttpResponse, Failure>>>(
        &self,
        (budget, admitted): (&HttpBudget, Admitted),
        request: HttpRequest,
        live: impl FnOnce(Admitted, HttpRequest) -> F,
    ) -> Result<HttpResponse, Failure> {
        let mut asked = match self {
            Self::Live => return live(admitted, request).await,
            Self::Recorded(..) | Self::Replayed(..) => Exchange::new(&request),
        };
        let mut at = None;
        self.tape(request_bytes(&request), |so_far| {
            at = Some(so_far.requests.len());
            so_far.requests.push(asked.clone());
        });
        let answer = match self {
            Self::Live => live(admitted, request).await,
            Self::Recorded(_, disturber) => disturber.send((budget, admitted), request, live).await,
            Self::Replayed(_, playback) => {
                playback.redact.apply_to_request(&mut asked);
                let answer = playback.answer(&asked).await;
                budget.settle(&admitted, &answer);
                answer
            }
        };
        let bytes = answer.as_ref().map_or(0, |response| usize::try_from(response.size()).unwrap_or(usize::MAX));
        self.tape(bytes, |so_far| {
            if let Some(asked) = at.and_then(|at| so_far.requests.get_mut(at)) {
                asked.answered(&answer);
            }
        });
        answer
    }

    /// Whether the recorded call paid for the redaction of responses; none for a live call.
    pub(crate) fn redacts_responses(&self) -> Option<bool> {
        self.playback().map(|playback| playback.recording.redacts_responses)
    }

    /// Runs a call until it ends, or makes a request that its recording lacks.
    pub(crate) async fn while_recorded<T>(
        &self,
        call: impl Future<Output = wasmtime::Result<T>>,
    ) -> wasmtime::Result<T> {
        let Some(playback) = self.playback() else { return call.await };
        let missing = async {
            playback.is_missing.notified().await;
            lock(&playback.missing).clone()
        };
        tokio::select! {
            biased;
            ended = call => ended,
            Some(missing) = missing => Err(missing.into()),
        }
    }

    // === the end ===

    /// The call has an answer or an error; `answer` makes JSON of the former.
    pub(crate) fn ended(&self, result: Result<impl FnOnce() -> Value, &Error>) {
        let Some(tape) = self.recorder() else { return };
        let ended = match result {
            Ok(json) => json!({"ok": json()}),
            Err(error) => json!({"error": answer::error(error)}),
        };
        tape.so_far().answer = Some(ended);
    }

    /// The recording of the call, if it is recorded; `clean` is the text without credentials.
    pub(crate) fn recording(&self, ended: &Ended<'_>, clean: impl Fn(&str) -> String) -> Option<Recording> {
        let Tape { redact, arguments, so_far } = self.recorder()?;
        let SoFar { clock, random, cache, requests, answer, is_beyond, .. } = std::mem::take(&mut *lock(so_far));
        let mut recording = Recording {
            format: FORMAT.to_owned(),
            contract: CONTRACT_VERSION.to_owned(),
            provider: ended.provider.to_owned(),
            component: ended.component.to_owned(),
            function: ended.function.to_owned(),
            arguments: arguments.clone(),
            config: ended.config.to_owned(),
            limits: ended.limits.clone(),
            log_level: ended.log_level,
            redact: redact.rules(),
            clock,
            random,
            cache,
            redacts_responses: ended.redacts_responses,
            requests,
            answer,
            cost: ended.cost,
            complete: !is_beyond,
        };
        // An operator can write the value of a credential where it does not belong: into the
        // cloud-config, or into an annotation.
        each_text(&mut recording, &mut |text| Some(clean(text)));
        redact.apply(&mut recording);
        Some(recording)
    }
}

/// Bytes of a request that a recording has.
fn request_bytes(request: &HttpRequest) -> usize {
    let HttpRequest { method, url, headers, body, credential: _, timeout: _ } = request;
    let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    method.len() + url.len() + headers + body.as_ref().map_or(0, bytes::Bytes::len)
}

impl Tape {
    fn new(redact: Redact, arguments: Value) -> Self {
        Self { redact, arguments, so_far: Mutex::default() }
    }

    fn so_far(&self) -> MutexGuard<'_, SoFar> {
        lock(&self.so_far)
    }
}

impl Playback {
    fn used(&self) -> MutexGuard<'_, Used> {
        lock(&self.used)
    }

    /// The recorded answer: that of the first equal request that the call has not made yet. Waits
    /// without end where the recorded request had none, and where there is no such request, which
    /// ends the call ([`World::while_recorded`]).
    async fn answer(&self, asked: &Exchange) -> Result<HttpResponse, Failure> {
        let answer = {
            let mut used = self.used();
            let mut requests = self.recording.requests.iter().zip(&mut used.requests);
            match requests.find(|(recorded, is_used)| !**is_used && recorded.is_for(asked)) {
                Some((recorded, is_used)) => {
                    *is_used = true;
                    recorded.answer()
                }
                None => {
                    let text = one_line(&format!("{} {}", asked.method, asked.url), Failure::MESSAGE_BYTES_MAX);
                    lock(&self.missing).get_or_insert(NotRecorded(text));
                    self.is_missing.notify_one();
                    None
                }
            }
        };
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

impl Clock {
    /// The next recorded reading. A call that reads the clock more often than the recorded one gets
    /// the time that passes since the last recorded reading.
    fn read(&mut self, recorded: &[Reading], live: Duration) -> Duration {
        if let Some(Reading(time)) = recorded.get(self.next) {
            self.next += 1;
            self.last = Some((*time, live));
            return *time;
        }
        self.last.map_or(live, |(time, then)| time.saturating_add(live.saturating_sub(then)))
    }
}

/// A panicking thread leaves the values valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
