//! A slot as in the manager, with a simulated cloud for its provider.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use skysail_dev::cloud::{Knobs, SimCloud, SimOptions, SimServer};
use skysail_host::{
    CallRecorder, Engine, Limits, Panics, SandboxOptions,
    credentials::{CredentialSpec, Credentials, SecretValues, ValueFrom},
    egress::{EgressPolicy, EgressRuleSpec, EgressSpec},
    http_client::HttpClient,
    jail::{Compiler, JailCommand},
    slot::{Offer, Slot, SlotMetrics, SlotOptions, SlotServices, SlotStatus, SourceFailure, Stage},
};
use skysail_sources::Offers;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

use super::releases::Release;

/// Longer than any swap, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The subcommand of the manager's executable that compiles.
const COMPILE: &str = "__compile";

/// The settings of the slot.
pub(super) struct Setting {
    /// Latency of each request to the cloud.
    pub(super) latency: Duration,
    /// The executable that compiles.
    pub(super) jail: PathBuf,
    /// The folder for machine code on disk, if any.
    pub(super) keeping: Option<PathBuf>,
}

/// See the module.
pub(super) struct World {
    pub(super) slot: Arc<Slot>,
    cloud: SimCloud,
    // The cloud serves until this is dropped.
    _server: SimServer,
}

/// A subscription to the slot's status that misses no change after its creation.
pub(super) struct Look(watch::Receiver<SlotStatus>);

/// The times at which a release reached each stage; a stage that was too short to be seen has the
/// time of the next.
pub(super) struct Reached {
    pub(super) offered: Instant,
    pub(super) verified: Instant,
    pub(super) compiled: Instant,
    pub(super) serving: Instant,
}

impl Look {
    async fn until_decided(&mut self, digest: &str) -> Result<Reached> {
        let (mut offered, mut verified, mut compiled) = (None, None, None);
        loop {
            let status = self.0.borrow_and_update().clone();
            let now = Instant::now();
            let stage =
                status.candidate.filter(|candidate| candidate.digest == digest).map(|candidate| candidate.stage);
            if stage >= Some(Stage::Offered) {
                offered = offered.or(Some(now));
            }
            if stage >= Some(Stage::Verified) {
                verified = verified.or(Some(now));
            }
            if stage >= Some(Stage::Compiled) {
                compiled = compiled.or(Some(now));
            }
            if status.active.is_some_and(|active| active.digest == digest) {
                let compiled = compiled.unwrap_or(now);
                let verified = verified.unwrap_or(compiled);
                return Ok(Reached { offered: offered.unwrap_or(verified), verified, compiled, serving: now });
            }
            if let Some(refusal) = status.refused.filter(|refusal| refusal.digest == digest) {
                bail!("release {digest} is refused: {refusal}");
            }
            self.0.changed().await.context("the slot is gone")?;
        }
    }
}

/// The maximum number of bytes of machine code on disk: more than all alternating components need.
const KEPT_BYTES_MAX: u64 = 256 << 20;

impl World {
    pub(super) async fn new(setting: Setting) -> Result<Self> {
        let Setting { latency, jail, keeping } = setting;
        let latency_ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        let cloud =
            SimCloud::new(SimOptions { knobs: Knobs { latency_ms, ..Knobs::default() }, ..SimOptions::isolated() });
        let server = cloud.serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.context("serving the cloud")?;
        let jailed = Compiler::jailed(JailCommand { program: jail, args: vec![COMPILE.into()] });
        let compiler = match keeping {
            Some(folder) => jailed.keeping(folder, KEPT_BYTES_MAX, &[7; 32]).context("a folder for machine code")?,
            None => jailed,
        };
        let services = SlotServices {
            engine: Engine::new()?,
            recorder: CallRecorder::default(),
            compiler,
            metrics: SlotMetrics::default(),
            panics: Panics::default(),
        };
        let options = SlotOptions::new(sandbox(&server)?);
        let slot = Arc::new(Slot::new(services, options)?);
        Ok(Self { slot, cloud, _server: server })
    }

    /// Offers the releases of the source to the slot, as the manager does.
    pub(super) fn feed(&self, mut offers: Offers) -> JoinSet<()> {
        let slot = Arc::clone(&self.slot);
        let mut feeder = JoinSet::new();
        feeder.spawn(async move {
            while let Some(report) = offers.next().await {
                match report {
                    // The caller reads a refusal from the status.
                    Ok(offer) => drop(slot.offer(Offer { bytes: offer.bytes, origin: offer.origin }).await),
                    Err(error) => {
                        slot.source_failed(SourceFailure { code: error.category(), reason: error.message() }).await;
                    }
                }
            }
        });
        feeder
    }

    /// Waits until this release serves, and returns the times of its stages.
    ///
    /// # Errors
    /// The release is refused, the source fails, or the wait times out.
    pub(super) async fn until_serving(&self, mut look: Look, release: &Release) -> Result<Reached> {
        match timeout(PATIENCE, look.until_decided(&release.digest)).await {
            Ok(decided) => decided,
            Err(_) => {
                bail!("{} does not serve after {PATIENCE:?}; the slot says {:?}", release.digest, look.0.borrow())
            }
        }
    }

    /// Subscribes to the status; call it before the offer.
    pub(super) fn look(&self) -> Look {
        Look(self.slot.status())
    }

    /// Waits until no release is draining, and clears the request log of the simulated cloud, which
    /// would count as memory of the swaps.
    pub(super) async fn until_drained(&self) -> Result<()> {
        self.cloud.clear_requests();
        let mut status = self.slot.status();
        let drained = timeout(PATIENCE, status.wait_for(|status| status.draining == 0)).await;
        drained.context("an old release does not end")?.context("the slot is gone")?;
        Ok(())
    }
}

/// The settings of simcloud's sandbox, with a request limit that is high enough for the calls.
fn sandbox(cloud: &SimServer) -> Result<SandboxOptions> {
    let (url, token) = (cloud.url.clone(), cloud.token.clone());
    let rule = EgressRuleSpec { origins: vec![url.clone()], ..EgressRuleSpec::default() };
    let egress =
        EgressSpec { rules: vec![rule], allow_cidrs: vec!["127.0.0.1/32".to_owned()], ..EgressSpec::default() };
    let bearer = Some(ValueFrom::Env("TOKEN".to_owned()));
    let api = CredentialSpec { origins: vec![url.clone()], bearer, ..CredentialSpec::default() };
    let token = |_: &str| Some(token.clone());
    let credentials = Credentials::load(&BTreeMap::from([("api".to_owned(), api)]), &token, &SecretValues::new())?;
    let limits = Limits { http_requests_per_second: 10_000, ..Limits::default() };
    let client = HttpClient::new(Arc::new(EgressPolicy::new(&egress)?), Arc::new(credentials), &limits.http())?;
    let config = format!("[Global]\nendpoint = {url}\n");
    Ok(SandboxOptions { name: "bench".to_owned(), limits, config, http: Some(Arc::new(client)) })
}
