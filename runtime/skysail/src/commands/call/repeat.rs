//! The cost of one function that was called several times: how often it ended how, percentiles for
//! one call, and limits for the provider file.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use skysail_host::{CallRecord, Limits};
use tokio::{
    sync::broadcast::{Receiver, error::TryRecvError},
    time::Instant,
};

use super::{
    amounts::{ROOM, ROWS, bound, with_room},
    cost::Cost,
};
use crate::{commands::recordings::Folder, output};

/// Between two lines about the progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// The percentiles of the table.
const PERCENTILES: [usize; 3] = [50, 90, 99];

/// What one call used, in the order of [`ROWS`], and how it ended.
struct Used {
    outcome: &'static str,
    amounts: [u64; ROWS.len()],
}

/// The calls of a function that is called once or several times. One call of the user is several
/// of the provider where a list of nodes has several pages.
pub(super) struct Spent<'a> {
    function: &'a str,
    limits: &'a Limits,
    records: Receiver<Arc<CallRecord>>,
    /// Where the calls are recorded.
    folder: Option<Folder>,
    /// Why a recording was not written.
    unwritten: Option<anyhow::Error>,
    /// Those of the last turn.
    turn: Vec<Arc<CallRecord>>,
    /// Those of all turns.
    calls: Vec<Used>,
    /// Calls whose records were lost.
    lost: u64,
    /// For each row, the largest amount that a limit refused.
    refused: [u64; ROWS.len()],
}

impl<'a> Spent<'a> {
    pub(super) const fn new(function: &'a str, limits: &'a Limits, records: Receiver<Arc<CallRecord>>) -> Self {
        Self {
            function,
            limits,
            records,
            folder: None,
            unwritten: None,
            turn: Vec::new(),
            calls: Vec::new(),
            lost: 0,
            refused: [0; ROWS.len()],
        }
    }

    /// The same, and each call is written into this folder.
    pub(super) fn recorded(self, folder: Option<Folder>) -> Self {
        Self { folder, ..self }
    }

    /// Whether all recordings are written.
    ///
    /// # Errors
    /// The first one that is not.
    pub(super) fn written(&mut self) -> anyhow::Result<()> {
        self.unwritten.take().map_or(Ok(()), Err)
    }

    /// Makes the call as often as the user wants, and returns its last outcome.
    pub(super) async fn repeat<T>(&mut self, times: u32, call: impl AsyncFn() -> T) -> T {
        let mut outcome = call().await;
        self.collect();
        let mut said = Instant::now();
        for made in 1..times {
            if said.elapsed() >= PROGRESS_EVERY {
                said = Instant::now();
                output::say(&format!("{made} of {times} times"));
            }
            outcome = call().await;
            self.collect();
        }
        outcome
    }

    /// Takes the records of one turn.
    fn collect(&mut self) {
        self.turn.clear();
        loop {
            match self.records.try_recv() {
                Ok(record) if record.function == self.function => self.take(record),
                Ok(_) => {}
                Err(TryRecvError::Lagged(lost)) => self.lost += lost,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
    }

    fn take(&mut self, record: Arc<CallRecord>) {
        if let (Some(folder), Some(recording), None) = (&mut self.folder, &record.recording, &self.unwritten) {
            self.unwritten = folder.write(recording).err();
        }
        self.calls.push(Used { outcome: record.outcome.category(), amounts: ROWS.map(|row| (row.used)(&record)) });
        for hit in &record.limits_hit {
            for (row, refused) in ROWS.iter().zip(&mut self.refused) {
                if row.limit == Some(hit.limit.name()) {
                    *refused = (*refused).max(row.amount(hit.used));
                }
            }
        }
        self.turn.push(record);
    }

    /// What the user reads after so many turns; `None` if the function was not called.
    pub(super) fn shown(&self, times: u32) -> Option<String> {
        match times {
            1 => Cost::of(self.function, &self.turn).map(|cost| cost.to_string()),
            _ if self.calls.is_empty() => None,
            _ => Some(Repeated { spent: self, times }.to_string()),
        }
    }
}

/// The table.
struct Repeated<'a> {
    spent: &'a Spent<'a>,
    times: u32,
}

impl fmt::Display for Repeated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spent { function, limits, calls, lost, .. } = self.spent;
        let mut outcomes = BTreeMap::<_, u32>::new();
        for call in calls {
            *outcomes.entry(call.outcome).or_default() += 1;
        }
        let outcomes: Vec<_> = outcomes.iter().map(|(outcome, number)| format!("{outcome} {number}")).collect();
        writeln!(f, "{function}, {} times, {} calls: {}", self.times, calls.len(), outcomes.join(", "))?;
        if *lost > 0 {
            writeln!(f, "{lost} more calls are not counted: one turn makes more calls than are kept")?;
        }
        let line = |f: &mut fmt::Formatter<'_>, name: &str, cells: [String; 5]| {
            let [p50, p90, p99, max, limit] = cells;
            writeln!(f, "{}", format!("{name:<16}{p50:>14}{p90:>14}{p99:>14}{max:>14}{limit:>16}").trim_end())
        };
        line(f, "one call", ["p50", "p90", "p99", "max", "limit"].map(str::to_owned))?;
        for (at, row) in ROWS.iter().enumerate() {
            let mut used: Vec<_> = calls.iter().filter_map(|call| call.amounts.get(at).copied()).collect();
            used.sort_unstable();
            let [p50, p90, p99] = PERCENTILES.map(|percent| row.shown(percentile(&used, percent)));
            let limit = row.limit.and_then(bound).map(|bound| row.shown(row.amount((bound.value)(limits))));
            line(f, row.name, [p50, p90, p99, row.shown(percentile(&used, 100)), limit.unwrap_or_default()])?;
        }
        match self.suggested() {
            Some(limits) => write!(
                f,
                "these limits leave room for {function}: {{{limits}}}; a provider needs the largest of all its functions"
            ),
            None => write!(f, "no call was answered, so nothing is said about limits"),
        }
    }
}

impl Repeated<'_> {
    /// The limits of [`ROOM`], within their ranges, after the answered calls and what was refused.
    fn suggested(&self) -> Option<String> {
        let answered: Vec<_> = self.spent.calls.iter().filter(|call| call.outcome == "Ok").collect();
        if answered.is_empty() {
            return None;
        }
        let suggested = |(name, _): &(&str, u64)| {
            let at = ROWS.iter().position(|row| row.limit == Some(name))?;
            let (row, refused) = (ROWS.get(at)?, self.spent.refused.get(at)?);
            let largest = answered.iter().filter_map(|call| call.amounts.get(at)).chain([refused]).max()?;
            Some(format!("{name}: {}", with_room(name, row.in_limit(*largest))?))
        };
        Some(ROOM.iter().filter_map(suggested).collect::<Vec<_>>().join(", "))
    }
}

/// The value that so many percent of the sorted values do not exceed (nearest rank).
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use skysail_host::{CallOutcome, CallRecord, HttpUse, Limits};
    use skysail_provider::{Limit, LimitHit};
    use tokio::sync::broadcast;

    use super::{Spent, percentile};

    fn record(n: u64, outcome: CallOutcome) -> Arc<CallRecord> {
        let time = Duration::from_millis(n);
        Arc::new(CallRecord {
            fuel: n * 1_000_000,
            wall: 3 * time,
            cpu: time,
            guest: time,
            http: HttpUse { requests: n % 3, bytes_sent: 10, bytes_received: 100 * n, time, in_flight_max: 1 },
            memory_peak: 2 << 20,
            ..CallRecord::new("p".into(), "sha256:0".into(), "instances.describe", outcome)
        })
    }

    #[tokio::test]
    async fn the_table_has_the_percentiles_of_one_call_and_limits_with_room() {
        let (sender, records) = broadcast::channel(256);
        let limits = Limits::default();
        let mut spent = Spent::new("instances.describe", &limits, records);
        let turn = std::sync::atomic::AtomicU64::new(0);
        let last = spent.repeat(100, async || {
            let n = turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            let outcome = if n == 7 { CallOutcome::Cancelled } else { CallOutcome::Ok };
            sender.send(record(n, outcome)).unwrap();
            n
        });
        assert_eq!(last.await, 100);
        expect_test::expect![[r#"
            instances.describe, 100 times, 100 calls: Cancelled 1, Ok 99
            one call                   p50           p90           p99           max           limit
            wall, ms                 150.0         270.0         297.0         300.0         30000.0
            guest, ms                 50.0          90.0          99.0         100.0
            HTTP, ms                  50.0          90.0          99.0         100.0
            CPU, ms                   50.0          90.0          99.0         100.0          5000.0
            fuel                  50000000      90000000      99000000     100000000      1000000000
            memory, KiB               2048          2048          2048          2048           65536
            requests                     1             2             2             2              64
            received, bytes           5000          9000          9900         10000
            these limits leave room for instances.describe: {fuel: 400000000, cpuTimeMs: 400, memoryBytes: 4200000, httpRequests: 4}; a provider needs the largest of all its functions"#]].assert_eq(&spent.shown(100).unwrap());
    }

    #[tokio::test]
    async fn one_turn_is_one_line_and_a_function_that_was_not_called_has_none() {
        let (sender, records) = broadcast::channel(8);
        let limits = Limits::default();
        let mut spent = Spent::new("instances.describe", &limits, records);
        spent.repeat(1, async || ()).await;
        assert_eq!((spent.shown(1), spent.shown(2)), (None, None));
        spent.repeat(1, async || sender.send(record(1, CallOutcome::Ok)).unwrap()).await;
        assert!(spent.shown(1).unwrap().starts_with("instances.describe: Ok in 3.0 ms"));
    }

    #[tokio::test]
    async fn an_amount_that_a_limit_refused_raises_the_limit_and_failed_calls_lower_none() {
        let (sender, records) = broadcast::channel(8);
        let limits = Limits::default();
        let mut spent = Spent::new("instances.describe", &limits, records);
        let denied = async || sender.send(record(1, CallOutcome::Cancelled)).unwrap();
        spent.repeat(2, denied).await;
        assert!(spent.shown(2).unwrap().ends_with("no call was answered, so nothing is said about limits"));
        let mut hit = CallRecord::clone(&record(1, CallOutcome::Ok));
        hit.limits_hit = vec![
            LimitHit { limit: Limit::Memory, used: 100 << 20, max: 64 << 20 },
            LimitHit { limit: Limit::CpuTime, used: 6_000, max: 5_000 },
        ];
        spent.repeat(2, async || sender.send(Arc::new(hit.clone())).unwrap()).await;
        let shown = spent.shown(2).unwrap();
        assert!(
            shown.contains("{fuel: 4000000, cpuTimeMs: 24000, memoryBytes: 210000000, httpRequests: 2}"),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn the_table_says_how_many_calls_are_not_counted() {
        let (sender, records) = broadcast::channel(4);
        let limits = Limits::default();
        let mut spent = Spent::new("instances.describe", &limits, records);
        let pages = async || (0..6).for_each(|_| assert!(sender.send(record(1, CallOutcome::Ok)).is_ok()));
        spent.repeat(2, pages).await;
        assert!(spent.shown(2).unwrap().contains("\n4 more calls are not counted: "), "{:?}", spent.shown(2));
    }

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        assert_eq!([50, 90, 99, 100].map(|percent| percentile(&[1, 2, 3, 4], percent)), [2, 4, 4, 4]);
        assert_eq!([50, 100].map(|percent| percentile(&[7], percent)), [7, 7]);
    }
}
