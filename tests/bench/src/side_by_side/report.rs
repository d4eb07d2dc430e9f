//! The figures as Markdown: medians, spread and ratios.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use super::{
    contestant::Contestant,
    figures::{Figures, Growth, Record, Scenario},
};

/// A line of the table: its name, its value in the figures and its number of decimals.
struct Line {
    name: &'static str,
    of: fn(&Figures) -> f64,
    decimals: usize,
}

const START: &[Line] = &[
    Line { name: "all nodes initialised, s", of: |f| f.nodes_s, decimals: 1 },
    Line { name: "all Services have an address, s", of: |f| f.services_s, decimals: 1 },
    Line { name: "all load balancers have all nodes, s", of: |f| f.backends_s, decimals: 1 },
    Line { name: "last request to the cloud, s", of: |f| f.quiet_s, decimals: 1 },
    Line { name: "CPU until nodes, Services and load balancers are done, s", of: |f| f.cpu_s, decimals: 1 },
    Line { name: "CPU until the last request to the cloud, s", of: |f| f.cpu_quiet_s, decimals: 1 },
    Line { name: "CPU in the minute after, s", of: |f| f.cpu_idle_s, decimals: 2 },
    Line { name: "resident memory when done, MiB", of: |f| f.resident_mib, decimals: 0 },
    Line { name: "resident memory a minute later, MiB", of: |f| f.resident_idle_mib, decimals: 0 },
    Line { name: "resident memory at most, MiB", of: |f| f.peak_mib, decimals: 0 },
    Line { name: "ensure and update calls", of: |f| count(f.load_balancer_calls()), decimals: 0 },
    Line { name: "instance calls", of: |f| count(f.instance_calls()), decimals: 0 },
    Line { name: "cloud requests", of: |f| count(f.all_cloud_requests()), decimals: 0 },
    Line { name: "API writes of nodes", of: |f| count(f.api_writes("nodes")), decimals: 0 },
    Line { name: "API writes of Services", of: |f| count(f.api_writes("services")), decimals: 0 },
    Line { name: "API writes of Events", of: |f| count(f.api_writes("events")), decimals: 0 },
];
const DELETION: &[Line] =
    &[Line { name: "the node is out of every load balancer, s", of: |f| f.backends_s, decimals: 1 }];
const REPLACEMENT: &[Line] = &[
    Line { name: "all nodes replaced, s", of: |f| f.nodes_s, decimals: 1 },
    Line { name: "all load balancers exact, s", of: |f| f.backends_s, decimals: 1 },
    Line { name: "CPU until then, s", of: |f| f.cpu_s, decimals: 1 },
    Line { name: "ensure and update calls", of: |f| count(f.load_balancer_calls()), decimals: 0 },
    Line { name: "instance calls", of: |f| count(f.instance_calls()), decimals: 0 },
    Line { name: "cloud requests", of: |f| count(f.all_cloud_requests()), decimals: 0 },
];

/// A table for each scenario of the records: medians with the spread in brackets, and the ratio of
/// Skysail to Go.
#[must_use]
pub fn markdown(records: &[Record]) -> String {
    let mut text = String::new();
    for (scenario, lines) in
        [(Scenario::Start, START), (Scenario::Deletion, DELETION), (Scenario::Replacement, REPLACEMENT)]
    {
        let mut sizes: Vec<_> =
            records.iter().filter(|record| record.scenario == scenario).map(|record| record.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            let mut rounds = BTreeMap::<Contestant, Vec<Figures>>::new();
            for record in records.iter().filter(|record| record.scenario == scenario && record.size == size) {
                rounds.entry(record.contestant).or_default().push(record.figures.clone());
            }
            let title = match scenario {
                Scenario::Start => "A cluster waits for its manager",
                Scenario::Deletion => "A node is deleted while others register",
                Scenario::Replacement => "Nodes are replaced",
            };
            let _a_string_takes_all =
                table(&mut text, &format!("{title}: {} nodes, {} Services", size.nodes, size.services), &rounds, lines);
        }
    }
    text
}

/// The curves as a table.
#[must_use]
pub fn growth_table(curves: &BTreeMap<Contestant, Growth>) -> String {
    let mut text = String::from(
        "| nodes | Services | who | done, s | CPU until then, s | ensure and update calls | resident, MiB |\n|--:|--:|---|--:|--:|--:|--:|\n",
    );
    for (who, growth) in curves {
        for (size, rounds) in growth {
            let value = |of: fn(&Figures) -> f64| median(rounds, of);
            let _a_string_takes_all = writeln!(
                text,
                "| {} | {} | {who} | {:.1} | {:.1} | {:.0} | {:.0} |",
                size.nodes,
                size.services,
                value(Figures::done_s),
                value(|f| f.cpu_s),
                value(|f| count(f.load_balancer_calls())),
                value(|f| f.resident_mib),
            );
        }
    }
    text
}

fn table(text: &mut String, title: &str, rounds: &BTreeMap<Contestant, Vec<Figures>>, lines: &[Line]) -> fmt::Result {
    let pairs = [
        ("defaults", Contestant::GoDefaults, Contestant::SkysailDefaults),
        ("tuned", Contestant::GoTuned, Contestant::SkysailTuned),
    ];
    let pairs: Vec<_> =
        pairs.into_iter().filter(|(_, go, ours)| rounds.contains_key(go) && rounds.contains_key(ours)).collect();
    let runs = rounds.values().map(Vec::len).max().unwrap_or_default();
    writeln!(
        text,
        "### {title}\n\nMedian of {runs} rounds, minimum and maximum in brackets; the ratio is Skysail divided by Go.\n"
    )?;
    write!(text, "| |")?;
    for who in rounds.keys() {
        write!(text, " {who} |")?;
    }
    for (name, ..) in &pairs {
        write!(text, " ratio, {name} |")?;
    }
    writeln!(text, "\n|---|{}", "--:|".repeat(rounds.len() + pairs.len()))?;
    for Line { name, of, decimals } in lines {
        write!(text, "| {name} |")?;
        for figures in rounds.values() {
            let (least, most) = spread(figures, *of);
            write!(text, " {:.decimals$} ({least:.decimals$}..{most:.decimals$}) |", median(figures, *of))?;
        }
        for (_, go, ours) in &pairs {
            let value = |who: &Contestant| rounds.get(who).map_or(f64::NAN, |figures| median(figures, *of));
            match value(go) {
                0.0 => write!(text, " |")?,
                go => write!(text, " {:.2} |", value(ours) / go)?,
            }
        }
        writeln!(text)?;
    }
    writeln!(text)
}

pub(super) fn median(rounds: &[Figures], of: impl Fn(&Figures) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), middle.checked_sub(1).and_then(|before| values.get(before))) {
        (Some(value), Some(before)) if values.len().is_multiple_of(2) => f64::midpoint(*value, *before),
        (Some(value), _) => *value,
        (None, _) => f64::NAN,
    }
}

fn spread(rounds: &[Figures], of: impl Fn(&Figures) -> f64) -> (f64, f64) {
    let values = || rounds.iter().map(&of);
    (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
}

#[expect(clippy::cast_precision_loss, reason = "numbers of requests are far below 2^52")]
fn count(number: u64) -> f64 {
    number as f64
}
