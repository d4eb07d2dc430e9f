//! The report: what passed, what failed and why, what was not tested, what the calls used.

use std::{fmt::Write as _, time::Duration};

use serde::Serialize;
use serde_json::{Map, Value, json};
use skysail_provider::Interface;

use super::{
    suite::{Judged, Verdict},
    used::{Largest, Used},
};
use crate::{
    args::OutputFormat,
    output::{self, plain},
};

/// One case, and how it ended.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tested {
    /// The interface, or the function of a recording.
    pub(super) subject: String,
    pub(super) name: String,
    pub(super) outcome: Outcome,
    /// Why the case failed or was not tested, or what the author should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// Lines below the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) details: Vec<String>,
    #[serde(skip)]
    pub(super) took: Duration,
}

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Outcome {
    Passed,
    Failed,
    NotTested,
}

impl Outcome {
    const fn shown(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::NotTested => "not tested",
        }
    }
}

/// All results of a run.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The component as the command line or the provider file names it.
    pub(super) component: String,
    pub(super) results: Vec<Tested>,
    pub(super) used: Used,
    /// What could not be deleted.
    pub(super) left: Vec<String>,
}

impl Report {
    /// Adds a case of the suite.
    pub(super) fn judged(&mut self, (interface, name): (Interface, &str), judged: Judged, took: Duration) {
        let (outcome, reason) = match judged {
            Ok(Verdict::Passed) => (Outcome::Passed, None),
            Ok(Verdict::Noted(note)) => (Outcome::Passed, Some(note)),
            Ok(Verdict::NotTested(why)) => (Outcome::NotTested, Some(why)),
            Err(error) => (Outcome::Failed, Some(format!("{error:#}"))),
        };
        let subject = interface.name().to_owned();
        self.results.push(Tested { subject, name: name.to_owned(), outcome, reason, details: Vec::new(), took });
    }

    /// Adds an interface without a case.
    pub(super) fn not_tested(&mut self, interface: Interface, why: &str) {
        let judged = Ok(Verdict::NotTested(why.to_owned()));
        self.judged((interface, "all cases"), judged, Duration::ZERO);
    }

    pub(super) fn count(&self, outcome: Outcome) -> usize {
        self.results.iter().filter(|result| result.outcome == outcome).count()
    }

    /// Whether no case failed and nothing is left in the cloud.
    pub(super) fn is_good(&self) -> bool {
        self.count(Outcome::Failed) == 0 && self.left.is_empty()
    }

    /// The report in this format.
    ///
    /// # Errors
    /// The report cannot be encoded.
    pub(super) fn shown(&self, format: OutputFormat) -> anyhow::Result<String> {
        match format {
            OutputFormat::Json => output::json(&self.document()),
            OutputFormat::Text => Ok(self.text()),
        }
    }

    fn document(&self) -> Value {
        json!({
            "component": self.component,
            "passed": self.count(Outcome::Passed),
            "failed": self.count(Outcome::Failed),
            "notTested": self.count(Outcome::NotTested),
            "cases": self.results,
            "limits": self.used.largest(),
            "setLimits": to_set(&self.used.largest()).map(|(limit, value)| (limit, json!(value))).collect::<Map<_, _>>(),
            "leftInCloud": self.left,
        })
    }

    /// All texts are of a provider or a cloud.
    fn text(&self) -> String {
        let mut lines = vec![format!("skysail test {}", self.component)];
        let mut subject = None;
        for result in &self.results {
            if subject != Some(&result.subject) {
                subject = Some(&result.subject);
                lines.extend([String::new(), result.subject.clone()]);
            }
            lines.push(format!("  {:<10}  {}", result.outcome.shown(), result.name));
            let reason = result.reason.iter().map(|reason| format!("{:14}{}", "", plain(reason)));
            let details = result.details.iter().map(|line| format!("{:14}{}", "", line.trim_end()));
            lines.extend(reason.chain(details));
        }
        lines.push(String::new());
        lines.extend(limit_lines(&self.used.largest()));
        lines.extend(self.left.iter().map(|left| format!("LEFT IN THE CLOUD: {left}")));
        lines.push(self.summary());
        lines.iter().fold(String::new(), |mut all, line| {
            let indent: String = line.chars().take_while(|c| *c == ' ').collect();
            // Writing to a String cannot fail.
            let _infallible = writeln!(all, "{indent}{}", plain(line.trim_start()));
            all
        })
    }

    /// The numbers.
    pub(super) fn summary(&self) -> String {
        let [passed, failed, not_tested] =
            [Outcome::Passed, Outcome::Failed, Outcome::NotTested].map(|outcome| self.count(outcome));
        format!("{passed} passed, {failed} failed, {not_tested} not tested")
    }
}

/// The limits to set, by their names.
fn to_set(limits: &[Largest]) -> impl Iterator<Item = (String, u64)> {
    limits.iter().filter_map(|largest| Some((largest.limit.to_owned(), largest.set?)))
}

fn limit_lines(limits: &[Largest]) -> Vec<String> {
    if limits.is_empty() {
        return Vec::new();
    }
    let header = ["LIMIT", "LARGEST USE", "OF", "SHARE", "FUNCTION"].map(str::to_owned);
    let row = |Largest { limit, used, max, percent, reached, function, set: _ }: &Largest| {
        let share = if *reached { "reached".to_owned() } else { format!("{percent} %") };
        [(*limit).to_owned(), used.to_string(), max.to_string(), share, (*function).to_owned()]
    };
    let rows: Vec<_> = std::iter::once(header).chain(limits.iter().map(row)).collect();
    let set: Vec<_> = to_set(limits).map(|(limit, value)| format!("{limit}: {value}")).collect();
    let advice = match (set.is_empty(), limits.iter().any(|largest| largest.reached)) {
        (false, _) => format!("set in spec.limits of the Provider: {{{}}}", set.join(", ")),
        (true, true) => "a limit was reached that has its largest value; let the component use less".to_owned(),
        (true, false) => "no call used more than half of a limit".to_owned(),
    };
    output::table(&rows).into_iter().chain([advice, String::new()]).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::{sync::Arc, time::Duration};

    use anyhow::anyhow;
    use expect_test::expect;
    use skysail_host::{CallOutcome, CallRecord, Limits};
    use skysail_provider::Interface;

    use super::{super::suite::Verdict, Outcome, Report};
    use crate::args::OutputFormat;

    /// A report with every kind of result.
    pub(in super::super) fn example() -> Report {
        let mut report = Report { component: "provider.wasm".to_owned(), ..Report::default() };
        let took = Duration::from_millis(1_250);
        report.judged((Interface::Instances, "known machines are described"), Ok(Verdict::Passed), took);
        let failed = Err(anyhow!("the second `ensure` sent a write: PUT <https://a/\u{1b}[2J>"));
        report.judged((Interface::LoadBalancers, "a second ensure changes nothing"), failed, took);
        let noted = Ok(Verdict::Noted("another protocol: refused".to_owned()));
        report.judged((Interface::LoadBalancers, "every field of a port"), noted, took);
        report.not_tested(Interface::Routes, "the component does not export the interface");
        let record = CallRecord { fuel: 600_000_000, ..record() };
        report.used.add(&Arc::new(record), &Limits::default());
        report.left.push("the load balancer of the Service a/b: Denied".to_owned());
        report
    }

    fn record() -> CallRecord {
        CallRecord::new("p".into(), "sha256:0".into(), "load-balancers.ensure", CallOutcome::Ok)
    }

    #[test]
    fn the_text_names_each_case_each_reason_the_limits_and_what_is_left() {
        expect![[r#"
            skysail test provider.wasm

            instances
              passed      known machines are described

            load-balancers
              FAILED      a second ensure changes nothing
                          the second `ensure` sent a write: PUT <https://a/ [2J>
              passed      every field of a port
                          another protocol: refused

            routes
              not tested  all cases
                          the component does not export the interface

            LIMIT               LARGEST USE   OF           SHARE   FUNCTION
            fuel                600000000     1000000000   60 %    load-balancers.ensure
            cpuTimeMs           0             5000         0 %     load-balancers.ensure
            deadlineMs          0             30000        0 %     load-balancers.ensure
            httpRequests        0             64           0 %     load-balancers.ensure
            httpResponseBytes   0             8388608      0 %     load-balancers.ensure
            memoryBytes         0             67108864     0 %     load-balancers.ensure
            set in spec.limits of the Provider: {fuel: 2400000000}

            LEFT IN THE CLOUD: the load balancer of the Service a/b: Denied
            2 passed, 1 failed, 1 not tested
        "#]]
        .assert_eq(&example().shown(OutputFormat::Text).unwrap());
    }

    #[test]
    fn the_document_has_the_same_and_a_run_with_a_failure_or_a_rest_is_not_good() {
        let report = example();
        let document: serde_json::Value = serde_json::from_str(&report.shown(OutputFormat::Json).unwrap()).unwrap();
        assert_eq!(
            (&document["passed"], &document["failed"], &document["notTested"]),
            (&2.into(), &1.into(), &1.into())
        );
        assert_eq!(document["cases"][1]["outcome"], "failed");
        assert_eq!(document["setLimits"]["fuel"], 2_400_000_000_u64);
        assert_eq!(document["limits"][0]["limit"], "fuel");
        assert_eq!(document["leftInCloud"].as_array().unwrap().len(), 1);
        assert!(!report.is_good());
        let mut report = report;
        report.results.retain(|result| result.outcome != Outcome::Failed);
        assert!(!report.is_good());
        report.left.clear();
        assert!(report.is_good());
    }
}
