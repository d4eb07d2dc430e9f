//! Three hostile components run beside the good provider. The sandbox stops each of them, and no
//! call of the good provider fails.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use anyhow::{Context as _, bail, ensure};
use futures::{FutureExt as _, future::BoxFuture};
use skysail_host::{
    CallRecord,
    egress::{EgressPolicy, EgressRuleSpec, EgressSpec},
    http_client::{HttpClient, Resolver},
    slot::{Offer, Slot},
};
use skysail_provider::{Call, Clusters as _, Code, Limit};
use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::Instant,
};

use super::{super::files::PROVIDER as GOOD, Dev, Shown, load::Load};
use crate::{commands::dev::components, provider_file::ProviderSpec, providers};

/// A component that attacks, and the limit or rule that must stop it.
pub(super) struct Hostile {
    pub(super) title: &'static str,
    probe: &'static str,
    expected: Expected,
}

enum Expected {
    /// The call is stopped by this limit.
    Limit(Limit),
    /// The host name is allowed, but its address is forbidden: the guest gets an error, and no
    /// request is sent.
    ForbiddenAddress,
}

/// The origin that the egress rules of the hostile guests allow. The attacker controls its DNS.
const ALLOWED_ORIGIN: &str = "http://api.example.com";
/// The metadata service, which gives a machine its cloud credentials.
const METADATA_SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));

pub(super) const ALL: &[Hostile] = &[
    Hostile {
        title: "A guest loops without end: the fuel limit stops it",
        probe: "probe-fuel",
        expected: Expected::Limit(Limit::Fuel),
    },
    Hostile {
        title: "A guest allocates too much memory: the memory limit stops it",
        probe: "probe-memory",
        expected: Expected::Limit(Limit::Memory),
    },
    Hostile {
        title: "A guest requests the machine's credentials, by an allowed host name that resolves to 169.254.169.254: refused",
        probe: "probe-http-metadata",
        expected: Expected::ForbiddenAddress,
    },
];

/// Runs the attack while the good provider is under load.
pub(super) async fn attack(dev: &Dev, hostile: &Hostile) -> anyhow::Result<Shown> {
    let Hostile { title: _, probe, expected } = hostile;
    let slot = slot(dev, probe).await?;
    let mut records = dev.fleet.services.recorder.subscribe();
    let load = Load::start(dev).await?;
    // Waits for the first call of the load: an attack that ends before it would prove nothing about
    // the good provider.
    next(&mut records, GOOD).await?;
    let start = Instant::now();
    let outcome = slot.master(&Call::default(), "attack").await;
    let took = start.elapsed();
    let record = next(&mut records, probe).await?;
    let after = slot.master(&Call::default(), "again").await;
    ensure!(after.as_deref() == Ok("again"), "the call after the attack returned {after:?}");
    let what = match (expected, outcome) {
        (Expected::Limit(limit), Err(error)) if error.code == Code::LimitExceeded => {
            let hit = error.limit.context("the error does not name the limit")?;
            ensure!(hit.limit == *limit, "another limit stopped the guest: {hit}");
            format!("stopped by {hit}; its next call succeeds")
        }
        (Expected::ForbiddenAddress, Ok(answer)) => {
            ensure!(answer.starts_with("0 answered") && record.http.requests == 0, "a request was sent: {answer}");
            let reason = format!("{METADATA_SERVICE} is refused (the metadata service)");
            ensure!(answer.contains(&reason), "the name was refused, so the address was not checked: {answer}");
            "the host name was allowed, its address was refused; its next call succeeds".to_owned()
        }
        (_, outcome) => bail!("the guest was not stopped by the expected limit or rule: {outcome:?}"),
    };
    let counts = load.stop().await?;
    ensure!(
        counts.failed == 0,
        "{} of {} calls of the good provider failed: {}",
        counts.failed,
        counts.all(),
        counts.first_failure
    );
    ensure!(counts.all() > 0, "the good provider was not called during the attack");
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

/// The next call of this provider.
async fn next(records: &mut Receiver<Arc<CallRecord>>, provider: &str) -> anyhow::Result<Arc<CallRecord>> {
    loop {
        match records.recv().await {
            Ok(record) if *record.provider == *provider => return Ok(record),
            // A receiver that lags loses only old records.
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => bail!("there is no record of a call of {provider}"),
        }
    }
}

fn cost(record: &CallRecord) -> String {
    format!("{} M fuel, {} MiB at most", record.fuel / 1_000_000, record.memory_peak >> 20)
}

/// A slot beside that of the good provider, with the default limits and one egress rule, for
/// [`ALLOWED_ORIGIN`].
async fn slot(dev: &Dev, probe: &str) -> anyhow::Result<Arc<Slot>> {
    let path = components::bundled(dev.components.as_deref(), probe)?;
    let spec = ProviderSpec { config: format!("{ALLOWED_ORIGIN}/latest/meta-data/"), ..ProviderSpec::closed(probe)? };
    let mut options = providers::slot_options(&spec, None)?;
    options.sandbox.http = Some(Arc::new(http(&spec)?));
    let slot = Slot::new(dev.fleet.services.clone(), options).context("cannot make a slot")?;
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    slot.offer(Offer { bytes: bytes.into(), origin: format!("file {}", path.display()) })
        .await
        .context("the probe is refused")?;
    Ok(Arc::new(slot))
}

/// The HTTP client of a provider whose DNS the attacker controls.
fn http(spec: &ProviderSpec) -> anyhow::Result<HttpClient> {
    let rule = EgressRuleSpec { origins: vec![ALLOWED_ORIGIN.to_owned()], ..EgressRuleSpec::default() };
    let egress = EgressPolicy::new(&EgressSpec { rules: vec![rule], ..EgressSpec::default() })?;
    let (credentials, limits) = (Arc::clone(&spec.credentials), spec.limits.http());
    Ok(HttpClient::with_resolver(Arc::new(egress), credentials, &limits, Arc::new(AttackersNames))?)
}

/// Resolves every name to the metadata service.
struct AttackersNames;

impl Resolver for AttackersNames {
    fn resolve<'a, 'b, 'f>(&'a self, _name: &'b str) -> BoxFuture<'f, io::Result<Vec<IpAddr>>>
    where
        'a: 'f,
        'b: 'f,
        Self: 'f,
    {
        async { Ok(vec![METADATA_SERVICE]) }.boxed()
    }
}
