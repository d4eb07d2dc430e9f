//! `skysail dev --no-manager` and `skysail dev --cloud-only`: the simulated environment for a
//! manager that runs elsewhere.

use anyhow::anyhow;

use super::{
    component_of,
    display::{self, Screen},
    files::{Files, OBJECT},
    why, world,
};
use crate::{args::DevArgs, signals::Signals};

/// Serves the cluster and the cloud until a signal.
///
/// # Errors
/// An argument is invalid, an address is in use, or a part of the environment failed.
pub(super) async fn serve_without_manager(args: &DevArgs, mut signals: Signals) -> anyhow::Result<()> {
    let component = component_of(args)?;
    let (world, mut ties) = world::start(args.api_address, args.nodes, args.cloud_latency).await?;
    let files = Files::new()?;
    files.write_kubeconfig(&world.serving)?;
    files.write_provider(&world.cloud_server, &component, args.cloud_config.as_deref())?;
    let screen = Screen::new();
    screen.say(&format!(
        "A simulated Kubernetes API and a simulated cloud run in this process, without a manager; Ctrl-C stops them.\n\n  \
         cluster    {}\n  cloud      {} ({} machines; OpenAPI at /openapi.json)\n  files      {}\n\nIn another terminal:\n\n  \
         export KUBECONFIG={}\n  kubectl get nodes\n  skysail run --provider-file {} --bind-address=127.0.0.1 \
         --authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics,/providers\n  \
         skysail status --server https://127.0.0.1:10258 --insecure-skip-tls-verify\n",
        world.serving.url(),
        world.cloud_server.url,
        args.nodes,
        files.provider_file().display(),
        files.kubeconfig().display(),
        files.provider_file().display(),
    ));
    tokio::select! {
        () = display::show_cloud(screen, world.cloud.changes()) => Err(anyhow!("the simulated cloud stopped")),
        Some(ended) = ties.join_next() => Err(why("the simulated cluster", ended)),
        _ = signals.end() => Ok(()),
    }
}

/// Serves the cloud until a signal.
///
/// # Errors
/// An argument is invalid, or no port is free.
pub(super) async fn serve_cloud(args: &DevArgs, mut signals: Signals) -> anyhow::Result<()> {
    let component = component_of(args)?;
    let (cloud, server) = world::start_cloud(args.nodes, args.cloud_latency).await?;
    let files = Files::new()?;
    files.write_provider(&server, &component, args.cloud_config.as_deref())?;
    let (token, url) = (files.token().display().to_string(), &server.url);
    let screen = Screen::new();
    screen.say(&format!(
        "A simulated cloud runs in this process; Ctrl-C stops it. It has loopback addresses only; run the manager on this machine.\n\n  \
         cloud      {url} ({} machines, node-1 and so on; OpenAPI at /openapi.json)\n  token      {token}\n  \
         files      {}\n\nA machine for a node of your cluster:\n\n  \
         curl -H \"Authorization: Bearer $(cat {token})\" -H 'Content-Type: application/json' -d '{{\"name\": \"NODE\"}}' {url}/v1/instances\n\n\
         The provider as a file:\n\n  \
         skysail run --kubeconfig KUBECONFIG --provider-file {}\n\n\
         The provider as an object, for a manager with --provider-resources:\n\n  \
         kubectl -n default create secret generic {OBJECT} --from-file={token}\n  \
         kubectl -n default create configmap {OBJECT} --from-file=provider.wasm={}\n  \
         kubectl apply -f {}\n",
        args.nodes,
        files.provider_file().display(),
        files.provider_file().display(),
        component.display(),
        files.object().display(),
    ));
    tokio::select! {
        () = display::show_cloud(screen, cloud.changes()) => Err(anyhow!("the simulated cloud stopped")),
        _ = signals.end() => Ok(()),
    }
}
