//! What a call uses, the limits for it, and limits that leave room.

use std::time::Duration;

use skysail_host::{BOUNDS, Bound, CallRecord};

/// How much more a limit allows than the largest use that was seen. A larger cluster, and a busier
/// cloud, take more CPU; memory and requests follow the size of a page.
pub(in crate::commands) const ROOM: [(&str, u64); 4] =
    [("fuel", 4), ("cpuTimeMs", 4), ("memoryBytes", 2), ("httpRequests", 2)];

/// The same for every other limit.
const OTHER_ROOM: u64 = 2;

/// What a call used, and the limit for it.
#[derive(Clone, Copy)]
pub(in crate::commands) struct Row {
    pub(in crate::commands) name: &'static str,
    pub(in crate::commands) used: fn(&CallRecord) -> u64,
    pub(in crate::commands) limit: Option<&'static str>,
    unit: Unit,
}

/// How an amount is written. Amounts of time are microseconds here and milliseconds in a limit.
#[derive(Clone, Copy)]
enum Unit {
    Time,
    KiB,
    Number,
}

pub(in crate::commands) const ROWS: [Row; 8] = [
    Row { name: "wall, ms", used: |call| micros(call.wall), limit: Some("deadlineMs"), unit: Unit::Time },
    Row { name: "guest, ms", used: |call| micros(call.guest), limit: None, unit: Unit::Time },
    Row { name: "HTTP, ms", used: |call| micros(call.http.time), limit: None, unit: Unit::Time },
    Row { name: "CPU, ms", used: |call| micros(call.cpu), limit: Some("cpuTimeMs"), unit: Unit::Time },
    Row { name: "fuel", used: |call| call.fuel, limit: Some("fuel"), unit: Unit::Number },
    Row { name: "memory, KiB", used: |call| call.memory_peak, limit: Some("memoryBytes"), unit: Unit::KiB },
    Row { name: "requests", used: |call| call.http.requests, limit: Some("httpRequests"), unit: Unit::Number },
    Row { name: "received, bytes", used: |call| call.http.bytes_received, limit: None, unit: Unit::Number },
];

impl Row {
    /// An amount in the unit of the limit.
    pub(in crate::commands) const fn in_limit(&self, amount: u64) -> u64 {
        match self.unit {
            Unit::Time => amount.div_ceil(1_000),
            Unit::KiB | Unit::Number => amount,
        }
    }

    /// The reverse of [`Self::in_limit`].
    pub(in crate::commands) const fn amount(&self, limit: u64) -> u64 {
        match self.unit {
            Unit::Time => limit.saturating_mul(1_000),
            Unit::KiB | Unit::Number => limit,
        }
    }

    pub(in crate::commands) fn shown(&self, amount: u64) -> String {
        match self.unit {
            Unit::Time => format!("{}.{}", amount / 1_000, amount % 1_000 / 100),
            Unit::KiB => (amount >> 10).to_string(),
            Unit::Number => amount.to_string(),
        }
    }
}

/// The range of a limit, by its name in the provider file.
pub(in crate::commands) fn bound(name: &str) -> Option<&'static Bound> {
    BOUNDS.iter().find(|bound| bound.name == name)
}

/// A limit with room above this use, within the limit's range; none if there is no such limit.
pub(in crate::commands) fn with_room(name: &str, used: u64) -> Option<u64> {
    let bound = bound(name)?;
    let room = ROOM.iter().find(|(known, _)| *known == name).map_or(OTHER_ROOM, |(_, room)| *room);
    Some(round_up(used.saturating_mul(room)).clamp(bound.min, bound.max))
}

/// The next number with two digits before its zeros.
fn round_up(value: u64) -> u64 {
    let mut unit = 1;
    while value / unit >= 100 {
        unit *= 10;
    }
    value.div_ceil(unit).saturating_mul(unit)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::round_up;

    #[test]
    fn a_limit_has_two_digits_before_its_zeros() {
        assert_eq!([0, 7, 99, 100, 101, 12_345, u64::MAX].map(round_up)[..6], [0, 7, 99, 100, 110, 13_000]);
    }
}
