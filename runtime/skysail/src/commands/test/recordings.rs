//! Recorded calls as test cases: the component sends the same requests and returns the same answer.

use std::path::PathBuf;

use skysail_host::slot::{Offer, SlotServices};
use tokio::time::Instant;

use super::report::{Outcome, Report, Tested};
use crate::{
    commands::{
        recordings,
        replay::{compared, comparison},
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
        let compared = compared(services, offer.clone(), file).await?;
        report.used.add(&compared.record, &compared.limits);
        let comparison = compared.comparison;
        let text = comparison::text(&comparison);
        let (subject, name) = (comparison.function, comparison.file);
        let (outcome, reason, details) = if comparison.equal {
            (Outcome::Passed, None, Vec::new())
        } else {
            let lines = text.lines().skip(1).map(str::to_owned).collect();
            let reason =
                "the requests or the answer differ from the recording (-: only the recording, +: only the component)";
            (Outcome::Failed, Some(reason.to_owned()), lines)
        };
        report.results.push(Tested { subject, name, outcome, reason, details, took: began.elapsed() });
    }
    Ok(())
}
