//! Three hostile components beside the good one: each is stopped, and the good one does not notice.

use std::{fs, sync::Arc};

use anyhow::{Context as _, bail, ensure};
use skysail_host::{
    CallRecord,
    slot::{Offer, Slot},
};
use skysail_provider::{Call, Clusters as _, Code, Limit};
use tokio::time::Instant;

use super::{Dev, Shown, load::Load};
use crate::{component_file, provider_file::ProviderSpec, providers};

/// A component that attacks, and what has to stop it.
pub(super) struct Hostile {
    pub(super) title: &'static str,
    probe: &'static str,
    expected: Expected,
}

enum Expected {
    /// The call is stopped by this limit.
    Limit(Limit),
    /// The guest is told that its request is forbidden, and nothing is sent.
    Forbidden,
}

pub(super) const ALL: &[Hostile] = &[
    Hostile {
        title: "A guest loops for ever: fuel stops it",
        probe: "probe-fuel",
        expected: Expected::Limit(Limit::Fuel),
    },
    Hostile {
        title: "A guest hoards memory: the limit stops it",
        probe: "probe-memory",
        expected: Expected::Limit(Limit::Memory),
    },
    Hostile {
        title: "A guest asks 169.254.169.254 for the machine's credentials: it is refused",
        probe: "probe-http-metadata",
        expected: Expected::Forbidden,
    },
];

/// Lets it attack while the good provider is under load.
pub(super) async fn attack(dev: &Dev, hostile: &Hostile) -> anyhow::Result<Shown> {
    let Hostile { title: _, probe, expected } = hostile;
    let slot = slot(dev, probe).await?;
    let load = Load::start(dev).await?;
    let mut records = dev.fleet.services.recorder.subscribe();
    let start = Instant::now();
    let outcome = slot.master(&Call::default(), "attack").await;
    let took = start.elapsed();
    let record = loop {
        let record = records.recv().await.context("the call left no record")?;
        if *record.provider == **probe {
            break record;
        }
    };
    let after = slot.master(&Call::default(), "again").await;
    ensure!(after.as_deref() == Ok("again"), "the call after the attack answered {after:?}");
    let what = match (expected, outcome) {
        (Expected::Limit(limit), Err(error)) if error.code == Code::LimitExceeded => {
            let hit = error.limit.context("the error does not name the limit")?;
            ensure!(hit.limit == *limit, "another limit stopped it: {hit}");
            format!("stopped by {hit}; its next call works")
        }
        (Expected::Forbidden, Ok(answer)) => {
            ensure!(answer.contains("Forbidden") && record.http.requests == 0, "it was answered: {answer}");
            "refused before a socket was opened; its next call works".to_owned()
        }
        (_, outcome) => bail!("it was not stopped as it should be: {outcome:?}"),
    };
    let counts = load.stop().await?;
    ensure!(
        counts.failed == 0,
        "{} of {} calls of the good provider failed: {}",
        counts.failed,
        counts.all(),
        counts.first_failure
    );
    ensure!(counts.all() > 0, "the good provider was not called meanwhile");
    Ok(Shown {
        what,
        figures: format!(
            "{} ms, {}; meanwhile 0 of {} calls of the good provider failed",
            took.as_millis(),
            cost(&record),
            counts.all()
        ),
    })
}

fn cost(record: &CallRecord) -> String {
    format!("{} M fuel, {} MiB at most", record.fuel / 1_000_000, record.memory_peak >> 20)
}

/// A slot beside the good one, with the same default limits and no egress rule at all.
async fn slot(dev: &Dev, probe: &str) -> anyhow::Result<Arc<Slot>> {
    let path = component_file::bundled(&dev.components, probe)?;
    let spec = ProviderSpec::closed(probe)?;
    let slot = Slot::new(dev.fleet.services.clone(), providers::slot_options(&spec)?).context("cannot make a slot")?;
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    slot.offer(Offer { bytes: bytes.into(), origin: format!("file {}", path.display()) })
        .await
        .context("the probe is refused")?;
    Ok(Arc::new(slot))
}
