//! The page `deploy/docs/quickstart.md`, followed to its first load balancer. A real API server
//! stands for the clusters of kind and of k3s.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::Stdio,
};

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use skysail_test_e2e::{
    api_server::ApiServer,
    objects::{SHUTDOWN, UNINITIALIZED, has_taint, initialized, nodes, register_node},
    tools::link_programs,
    wait::eventually,
    workspace::{Process, command, component, run},
};
use skysail_test_support::ports;
use tempfile::TempDir;

use crate::documents::{Block, blocks, page};

const PAGE: &str = "deploy/docs/quickstart.md";
/// The provider ID of kind's first node.
const KIND_ID: &str = "kind://docker/kind/kind-control-plane";
/// The command after which the reader types what the cloud has printed.
const BEFORE_THE_PRINTED: &str = "--for=condition=Established";

/// The clusters that the page offers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cluster {
    K3s,
    Kind,
}

impl Cluster {
    /// The name of the only node.
    fn node(self) -> &'static str {
        match self {
            Self::K3s => "laptop",
            Self::Kind => "kind-control-plane",
        }
    }
}

/// A user with several terminals.
struct User {
    cluster: Cluster,
    folder: TempDir,
    server: ApiServer,
    terminals: Vec<Process>,
}

impl User {
    /// A user with a cluster and the programs of the page.
    async fn start(cluster: Cluster) -> Result<Self> {
        let (folder, server) = (TempDir::new()?, ApiServer::start()?);
        component("simcloud")?;
        link_programs(folder.path(), &[])?;
        fs::copy(server.kubeconfig(), folder.path().join("kubeconfig"))?;
        let client = server.client().await?;
        register_node(&client, cluster.node()).await?;
        if cluster == Cluster::Kind {
            let spec = json!({"spec": {"providerID": KIND_ID, "taints": null}});
            nodes(&client).patch(cluster.node(), &PatchParams::default(), &Patch::Merge(spec)).await?;
        }
        Ok(Self { cluster, folder, server, terminals: Vec::new() })
    }

    /// Commands, in the user's folder with the user's programs.
    fn script(&self, commands: &str) -> String {
        let folder = self.folder.path().display();
        // A busy machine gives the test a tenth of a core.
        let commands = commands.replace("--timeout=1m", "--timeout=5m").replace("--timeout=2m", "--timeout=10m");
        format!(
            "set -euo pipefail\ncd {folder}\nexport PATH={folder}/bin:$PATH TMPDIR={folder} \
             KUBECONFIG={folder}/kubeconfig NO_PROXY='*'\n{commands}"
        )
    }

    fn run(&self, commands: &str) -> Result<String> {
        run("bash", &["-c", &self.script(commands)])
    }

    async fn follow(&mut self, block: &Block) -> Result<()> {
        match block.mark.as_str() {
            "cluster" => Ok(()),
            "terminal" => self.open_terminal(&block.text),
            _ => {
                self.run(&block.text)?;
                if block.text.contains(BEFORE_THE_PRINTED) { self.type_what_the_cloud_printed().await } else { Ok(()) }
            }
        }
    }

    /// Begins a command that goes on. The port of the manager is a free one.
    fn open_terminal(&mut self, begun: &str) -> Result<()> {
        let port = ports::free()?;
        let begun = begun.replace("skysail run", &format!("skysail run --secure-port={port}"));
        let output = File::create(self.output(self.terminals.len()))?;
        let errors = output.try_clone()?;
        let mut shell = command("bash");
        shell.args(["-c", &self.script(&format!("exec {begun}"))]);
        self.terminals.push(Process(shell.stdin(Stdio::null()).stdout(output).stderr(errors).spawn()?));
        Ok(())
    }

    fn output(&self, terminal: usize) -> PathBuf {
        self.folder.path().join(format!("terminal-{terminal}"))
    }

    async fn the_node_is_as_the_page_says(&self) -> Result<()> {
        let (client, name) = (self.server.client().await?, self.cluster.node());
        if self.cluster == Cluster::K3s {
            return eventually("the node is initialised", 60, || initialized(&client, name)).await.map(drop);
        }
        let node = nodes(&client).get(name).await?;
        ensure!(!has_taint(&node, UNINITIALIZED) && !has_taint(&node, SHUTDOWN), "the node has a taint of a cloud");
        let id = node.spec.and_then(|spec| spec.provider_id);
        ensure!(id.as_deref() == Some(KIND_ID), "the node has the provider ID {id:?}");
        Ok(())
    }

    async fn type_what_the_cloud_printed(&self) -> Result<()> {
        let printed = || async {
            let text = fs::read_to_string(self.output(0))?;
            ensure!(text.contains("kubectl apply"), "{text}");
            anyhow::Ok(text)
        };
        let printed = eventually("the cloud prints its commands", 60, printed).await?;
        let lines =
            |program: &'static str| printed.lines().map(str::trim).filter(move |line| line.starts_with(program));
        ensure!(
            lines("kubectl").count() == 3 && lines("curl").count() == 1,
            "the page names other commands: {printed}"
        );
        lines("kubectl").try_for_each(|line| self.run(line).map(drop))?;
        if self.cluster == Cluster::K3s {
            let node = format!("\"{}\"", self.cluster.node());
            let lines: String = lines("curl").collect();
            self.run(&lines.replace("\"NODE\"", &node).replace("curl ", "curl --fail --silent --show-error "))?;
        }
        Ok(())
    }
}

async fn follow_the_page(cluster: Cluster) -> Result<()> {
    let mut user = User::start(cluster).await?;
    for block in blocks(&page(PAGE)?) {
        ensure!(["", "cluster", "terminal"].contains(&block.mark.as_str()), "a block with the mark {:?}", block.mark);
        // The last block deletes what the page has made.
        if block.text.contains("delete provider") {
            user.the_node_is_as_the_page_says().await?;
        }
        let followed = user.follow(&block).await;
        let manager = fs::read_to_string(user.output(1)).unwrap_or_default();
        followed.with_context(|| format!("{}\nthe manager: {manager}", block.text))?;
    }
    let left = user.run("kubectl get providers -o name; kubectl get service web --ignore-not-found -o name")?;
    ensure!(left.is_empty(), "left behind: {left}");
    Ok(())
}

#[tokio::test]
async fn a_user_of_k3s_gets_a_load_balancer_and_an_initialised_node() -> Result<()> {
    follow_the_page(Cluster::K3s).await
}

#[tokio::test]
async fn a_user_of_kind_gets_a_load_balancer_and_keeps_the_node_of_kind() -> Result<()> {
    follow_the_page(Cluster::Kind).await
}
