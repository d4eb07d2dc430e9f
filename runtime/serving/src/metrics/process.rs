//! The standard process metrics of Prometheus' clients: CPU time, memory, descriptors. They are
//! read from /proc at each scrape; a value that cannot be read is left out.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use rustix::time::{ClockId, clock_gettime};

/// Clock ticks per second in /proc (`USER_HZ`), the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// The collector; register it with `Registry::register_collector`.
#[derive(Debug)]
pub struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        #[expect(clippy::cast_precision_loss, reason = "seconds of CPU time are far below what a f64 holds exactly")]
        let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        let metric = encoder.encode_descriptor("process_cpu_seconds", "CPU time used", None, MetricType::Counter)?;
        ConstCounter::new(cpu).encode(metric)?;
        for (name, help, value) in gauges() {
            let Some(value) = value else { continue };
            ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}

type Row = (&'static str, &'static str, Option<f64>);

fn gauges() -> [Row; 6] {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let (status, limits) = (read("status"), read("limits"));
    let kibibytes = |key: &str| field(&status, key, 0).map(|value| value * 1024.0);
    [
        ("process_resident_memory_bytes", "Memory in RAM", kibibytes("VmRSS:")),
        ("process_virtual_memory_bytes", "Address space", kibibytes("VmSize:")),
        ("process_threads", "Count of threads", field(&status, "Threads:", 0)),
        ("process_open_fds", "Count of open file descriptors", open_descriptors()),
        ("process_max_fds", "File descriptors that may be open", field(&limits, "Max open files", 0)),
        ("process_start_time_seconds", "When the process started, since 1970", start_time(&read("stat"))),
    ]
}

/// A number of a line that begins with `key`.
fn field(text: &str, key: &str, index: usize) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().nth(index)?.parse().ok()
}

fn open_descriptors() -> Option<f64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    // One descriptor is that of the folder itself.
    u32::try_from(count.saturating_sub(1)).ok().map(f64::from)
}

/// The 22nd field of `stat`: ticks since the machine started. The second field is the process name,
/// which may contain any character, so the fields are counted after it.
fn start_time(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: f64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    let boot = field(&fs::read_to_string("/proc/stat").ok()?, "btime", 0)?;
    Some(boot + ticks / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::Process;

    #[test]
    fn the_metrics_of_the_process_are_plausible() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name} in\n{text}")).parse().unwrap()
        };
        let (resident, virtual_) = (value("process_resident_memory_bytes"), value("process_virtual_memory_bytes"));
        assert!(1e6 < resident && resident < virtual_);
        assert!(value("process_cpu_seconds_total") > 0.0 && value("process_threads") >= 1.0);
        assert!((3.0..value("process_max_fds")).contains(&value("process_open_fds")));
        assert!(value("process_start_time_seconds") > 1.7e9);
    }
}
