//! Recorded calls as test cases: the component sends the same requests and returns the same answer.

use std::path::PathBuf;

use skysail_host::slot::{Offer, SlotServices};
use tokio::time::Instant;

use super::report::{Outcome, Report, Tested};
use crate::{
    commands::{
        recordings,
        replay::{
            compared,
            comparison::{self, Comparison},
            file_name,
        },
    },
    exit::{MarkExt as _, Reason},
    output,
};

/// Adds one case for each recording.
///
/// # Errors
/// A recording cannot be replayed, or the component is refused.
pub(super) async fn test(
    services: &SlotServices,
    offer: &Offer,
    paths: &[PathBuf],
    report: &mut Report,
) -> anyhow::Result<()> {
    let files = recordings::files(paths).or_exit(Reason::Usage)?;
    for (number, file) in files.iter().enumerate() {
        output::say(&format!("recording {} of {}: {}", number + 1, files.len(), file.display()));
        let began = Instant::now();
        let (subject, name, outcome, reason, details) = match compared(services, offer.clone(), file).await? {
            Ok(compared) => {
                report.used.add(&compared.record, &compared.limits);
                let comparison = compared.comparison;
                let (outcome, reason, details) = judged(&comparison);
                (comparison.function, comparison.file, outcome, reason, details)
            }
            Err(missing) => {
                let reason = Some(missing.to_string());
                (missing.function, file_name(file), Outcome::Failed, reason, Vec::new())
            }
        };
        report.results.push(Tested { subject, name, outcome, reason, details, took: began.elapsed() });
    }
    Ok(())
}

/// The outcome, the reason and the details of a case.
fn judged(comparison: &Comparison) -> (Outcome, Option<String>, Vec<String>) {
    if comparison.equal {
        return (Outcome::Passed, None, Vec::new());
    }
    let details = comparison::text(comparison).lines().skip(1).map(str::to_owned).collect();
    let reason = "the requests or the answer differ from the recording (-: only the recording, +: only the component)";
    (Outcome::Failed, Some(reason.to_owned()), details)
}
