//! The cost of one function, in one line. A long list of nodes is described in pages, so the cost
//! may be that of several calls.

use std::{fmt, sync::Arc, time::Duration};

use skysail_host::CallRecord;

/// The sum over the calls of a function.
#[derive(Debug, Default)]
pub(super) struct Cost {
    function: String,
    calls: u32,
    /// The outcome of the last call; no call follows one that failed.
    outcome: &'static str,
    wall: Duration,
    guest: Duration,
    http: Duration,
    fuel: u64,
    /// The largest peak of one call.
    memory_peak: u64,
    requests: u64,
    bytes_sent: u64,
    bytes_received: u64,
}

impl Cost {
    /// The sum of these calls of the function; `None` if there is none.
    pub(super) fn of(function: &str, calls: &[Arc<CallRecord>]) -> Option<Self> {
        let mut cost = Self { function: function.to_owned(), ..Self::default() };
        calls.iter().for_each(|record| cost.add(record));
        (cost.calls > 0).then_some(cost)
    }

    fn add(&mut self, record: &CallRecord) {
        self.calls += 1;
        self.outcome = record.outcome.category();
        self.wall += record.wall;
        self.guest += record.guest;
        self.http += record.http.time;
        self.fuel += record.fuel;
        self.memory_peak = self.memory_peak.max(record.memory_peak);
        self.requests += record.http.requests;
        self.bytes_sent += record.http.bytes_sent;
        self.bytes_received += record.http.bytes_received;
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        f.write_str(&self.function)?;
        if self.calls > 1 {
            write!(f, ", {} calls", self.calls)?;
        }
        write!(
            f,
            ": {} in {:.1} ms ({:.1} ms in the guest, {:.1} ms in HTTP), {} fuel, {} KiB of memory, {} requests, {} bytes out, {} in",
            self.outcome,
            milliseconds(self.wall),
            milliseconds(self.guest),
            milliseconds(self.http),
            self.fuel,
            self.memory_peak / 1024,
            self.requests,
            self.bytes_sent,
            self.bytes_received,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use skysail_host::{CallOutcome, CallRecord, HttpUse};

    use super::Cost;

    fn record(function: &'static str, fuel: u64, memory_peak: u64) -> Arc<CallRecord> {
        let time = Duration::from_millis(2);
        Arc::new(CallRecord {
            fuel,
            wall: 2 * time,
            guest: time,
            http: HttpUse { requests: 3, bytes_sent: 10, bytes_received: 100, time, in_flight_max: 1 },
            memory_peak,
            ..CallRecord::new("p".into(), "sha256:0".into(), function, CallOutcome::Ok)
        })
    }

    #[test]
    fn the_calls_for_the_pages_of_one_list_are_summed() {
        let calls = [(1_000, 2 << 20), (20, 1 << 20)].map(|(fuel, memory)| record("instances.describe", fuel, memory));
        let cost = Cost::of("instances.describe", &calls).unwrap();
        expect_test::expect!["instances.describe, 2 calls: Ok in 8.0 ms (4.0 ms in the guest, 4.0 ms in HTTP), 1020 fuel, 2048 KiB of memory, 6 requests, 20 bytes out, 200 in"].assert_eq(&cost.to_string());
        assert!(Cost::of("routes.list", &[]).is_none());
    }
}
