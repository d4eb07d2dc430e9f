//! `skysail call`: one function of a component by hand, in the same sandbox as in the manager.
//!
//! Arguments and answers are JSON. Services and Nodes are given as Kubernetes objects, as `kubectl get -o json` prints them, and become the
//! provider's words by the controllers' own conversion.

mod functions;

use std::{
    io::{Read as _, Write as _},
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, anyhow, bail};
use prometheus_client::registry::Registry;
use serde_json::Value;
use skysail_host::{
    CallRecord,
    slot::{Offer, Slot, SlotServices},
};
use skysail_provider::{Call, EventSink, ProviderEvent};
use tokio::sync::broadcast;

use crate::{
    args::{CallArgs, LogFormat},
    component_file,
    exit::{MarkExt as _, Reason},
    provider_file::{self, ProviderSpec},
    providers, telemetry,
};

pub(crate) const HELP: &str = "\
Functions and their arguments (--json):
  identity.describe                 {}
  identity.check-config             {\"text\": \"...\"}
  load-balancers.name               {\"cluster\": \"kubernetes\", \"service\": {a Service}}
  load-balancers.get                {\"cluster\": ..., \"service\": ...}
  load-balancers.ensure             {\"cluster\": ..., \"service\": ..., \"nodes\": [Nodes]}
  load-balancers.update             {\"cluster\": ..., \"service\": ..., \"nodes\": [Nodes]}
  load-balancers.ensure-deleted     {\"cluster\": ..., \"service\": ...}
  load-balancer-inventory.list      {\"cluster\": ...}
  load-balancer-inventory.delete    {\"cluster\": ..., \"name\": \"...\"}
  instances.describe                {\"nodes\": [Nodes], \"detail\": \"metadata\" or \"state\"}
  routes.list                       {\"cluster\": ...}
  routes.create                     {\"cluster\": ..., \"routes\": [{\"nameHint\": \"...\", \"destinationCidr\": \"...\", \"targetNode\": \"...\"}]}
  routes.delete                     {\"cluster\": ..., \"routes\": [{\"name\": \"...\", \"destinationCidr\": \"...\"}]}
  zones.current                     {}
  zones.by-provider-id              {\"providerId\": \"...\"}
  zones.by-node-name                {\"node\": \"...\"}
  clusters.list                     {}
  clusters.master                   {\"cluster\": ...}
  node-legacy.add-ssh-key-to-all-instances  {\"user\": \"...\", \"key\": \"ssh-ed25519 ...\"}
  node-legacy.current-node-name     {\"hostname\": \"...\"}
  node-legacy.scrub-dns             {\"nameservers\": [...], \"searches\": [...]}

\"cluster\" may be left out: it is kubernetes. The answer goes to standard output as JSON, what the call cost to standard error.

Example:
  kubectl get service web -o json | jq '{service: .}' | skysail call provider.wasm load-balancers.get --json -";

/// Longest text of arguments, in bytes: two thousand nodes as `kubectl` prints them are about twenty megabytes.
const ARGUMENTS_BYTES_MAX: u64 = 64 << 20;

/// Makes the call.
///
/// # Errors
/// Wrong arguments, a refused component, or the error that the call answered with.
pub(crate) fn run(args: CallArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log.log, LogFormat::Text).or_exit(Reason::Usage)?;
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(call(args))
}

async fn call(args: CallArgs) -> anyhow::Result<()> {
    let arguments = arguments(&args.json).or_exit(Reason::Usage)?;
    let spec = spec(&args).or_exit(Reason::Usage)?;
    let function = functions::parse(&args.function, arguments, &spec.config).or_exit(Reason::Usage)?;
    let bytes = component_file::read(&args.file, spec.limits.component_bytes).or_exit(Reason::Usage)?;
    let services = providers::services(&mut Registry::default())?;
    let slot = slot(&services, &spec)?;
    let offer = Offer { bytes, origin: format!("file {}", args.file.display()) };
    slot.offer(offer).await.or_exit(Reason::Refused)?;

    let mut records = services.recorder.subscribe();
    let context = Call { object: None, events: Some(Arc::new(PrintedEvents)) };
    let outcome = function.call(&slot, &context).await;
    print_cost(&mut records);
    let answer = outcome.map_err(|error| anyhow!("{} answered {}: {error}", args.function, error.code.category()))?;
    let text = serde_json::to_string_pretty(&answer).context("cannot encode the answer")? + "\n";
    std::io::stdout().lock().write_all(text.as_bytes()).context("cannot write the answer")
}

fn arguments(json: &str) -> anyhow::Result<Value> {
    let mut text = json.to_owned();
    if json == "-" {
        text.clear();
        std::io::stdin()
            .lock()
            .take(ARGUMENTS_BYTES_MAX)
            .read_to_string(&mut text)
            .context("--json -: cannot read standard input")?;
    }
    serde_json::from_str(&text).context("--json is not JSON")
}

/// The provider file's provider, or one with default limits and no way out.
fn spec(args: &CallArgs) -> anyhow::Result<ProviderSpec> {
    let mut spec = match &args.provider_file {
        Some(path) => choose(path, args.provider.as_deref())?,
        None => ProviderSpec::closed("call")?,
    };
    if let Some(path) = &args.cloud_config {
        spec.config =
            provider_file::read_config(path).map_err(|reason| anyhow!("--cloud-config {} {reason}", path.display()))?;
    }
    Ok(spec)
}

fn choose(path: &Path, name: Option<&str>) -> anyhow::Result<ProviderSpec> {
    let mut providers = provider_file::load(path)?.providers;
    let names: Vec<_> = providers.iter().map(|spec| spec.name.clone()).collect();
    let index = match name {
        Some(name) => names.iter().position(|known| known == name),
        None if names.len() == 1 => Some(0),
        None => bail!("{} has several providers; choose one with --provider: {}", path.display(), names.join(", ")),
    };
    match index {
        Some(index) => Ok(providers.swap_remove(index)),
        None => {
            bail!("{} has no provider {:?}; it has: {}", path.display(), name.unwrap_or_default(), names.join(", "))
        }
    }
}

fn slot(services: &SlotServices, spec: &ProviderSpec) -> anyhow::Result<Slot> {
    Slot::new(services.clone(), providers::slot_options(spec)?).context("cannot make the sandbox")
}

/// What the call cost, one line on standard error.
fn print_cost(records: &mut broadcast::Receiver<Arc<CallRecord>>) {
    let mut last = None;
    while let Ok(record) = records.try_recv() {
        last = Some(record);
    }
    let Some(record) = last else { return };
    let line = format!(
        "{}: {} in {:.1} ms ({:.1} ms in the guest, {:.1} ms in HTTP), {} fuel, {} KiB of memory, {} requests, {} bytes out, {} in",
        record.function,
        record.outcome.category(),
        record.wall.as_secs_f64() * 1e3,
        record.guest.as_secs_f64() * 1e3,
        record.http.time.as_secs_f64() * 1e3,
        record.fuel,
        record.memory_peak / 1024,
        record.http.requests,
        record.http.bytes_sent,
        record.http.bytes_received,
    );
    // Nothing is left to tell if even standard error is closed.
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

/// There is no cluster to publish Events in: they are shown.
struct PrintedEvents;

impl EventSink for PrintedEvents {
    fn emit(&self, event: ProviderEvent) {
        let ProviderEvent { object: _, kind, reason, message } = event;
        drop(writeln!(std::io::stderr().lock(), "event: {kind:?} {reason}: {message}"));
    }
}
