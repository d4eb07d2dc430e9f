//! The manager as a process with a real API server and the provider of the simulated cloud: only
//! the cloud is simulated, and its virtual servers forward real TCP.

use std::{collections::BTreeMap, fs, net::SocketAddr};

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use skysail_dev::cloud::{NewInstance, SimCloud, SimOptions, SimServer};
use skysail_test_e2e::{
    api_server::ApiServer,
    leaks,
    manager::Manager,
    objects::{
        SHUTDOWN, address_of, addresses, create_service, delete_service, has_taint, initialized, nodes, register_node,
        service_gone, set_ready,
    },
    traffic::{swap, wait_for_answers},
    wait::eventually,
    workspace::{component, run, skysail},
};
use skysail_test_support::simcloud;
use tempfile::TempDir;

const NODE_PORT: u16 = 30_080;
const NODES: [&str; 3] = ["a", "b", "c"];

/// A simulated cloud with machines that answer on the node port.
pub(crate) struct Simulated {
    pub(crate) cloud: SimCloud,
    server: SimServer,
}

impl Simulated {
    /// Starts a cloud with these machines, each with a private and a public address.
    pub(crate) async fn start(names: &[&str]) -> Result<Self> {
        let cloud = SimCloud::new(SimOptions::isolated());
        for name in names {
            let (name, tags) = ((*name).to_owned(), BTreeMap::new());
            let instance =
                cloud.create_instance(NewInstance { name, zone: None, instance_type: None, public: true, tags })?;
            cloud.serve_backend(&instance.id, NODE_PORT).await?;
        }
        let server = cloud.serve(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        leaks::watch(&server.token);
        Ok(Self { cloud, server })
    }

    /// A provider file for it.
    pub(crate) fn provider_file(&self) -> String {
        simcloud::provider_file(&self.server.url)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.server.url.trim_start_matches("http://").parse()?)
    }

    /// The bearer token, as the file `token` beside the provider file.
    pub(crate) fn token(&self) -> (&'static str, &str) {
        ("token", &self.server.token)
    }

    /// Deletes a machine.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        Ok(self.cloud.delete_instance(&self.id(name)?).await?)
    }

    /// Switches a machine off.
    pub(crate) async fn stop(&self, name: &str) -> Result<()> {
        self.cloud.stop_instance(&self.id(name)?).await?;
        Ok(())
    }

    fn id(&self, name: &str) -> Result<String> {
        let machines = self.cloud.snapshot().instances;
        machines.into_iter().find(|machine| machine.name == name).map(|machine| machine.id).context("no such machine")
    }
}

/// A simulated cloud and a real API server.
pub(crate) struct Site {
    pub(crate) cloud: Simulated,
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
}

impl Site {
    /// Starts a cloud with these machines, and an API server without nodes.
    pub(crate) async fn start(names: &[&str]) -> Result<Self> {
        let (cloud, server) = (Simulated::start(names).await?, ApiServer::start()?);
        let client = server.client().await?;
        Ok(Self { cloud, server, client })
    }

    /// Runs a command of a document for kubectl.
    pub(crate) fn kubectl(&self, command: &str) -> Result<String> {
        let mut words = command.split_whitespace();
        ensure!(words.next() == Some("kubectl"), "this test does not run {command:?}");
        self.server.kubectl(&words.collect::<Vec<_>>())
    }
}

/// A site with a manager, and an operator who asks the manager.
pub(crate) struct Served {
    pub(crate) site: Site,
    pub(crate) manager: Manager,
    folder: TempDir,
}

impl Served {
    /// Starts a site with one machine, and a manager with the provider file that `edit` makes of
    /// that of the cloud.
    pub(crate) async fn start(edit: impl FnOnce(String) -> String) -> Result<Self> {
        let site = Site::start(&["a"]).await?;
        let (file, component) = (edit(site.cloud.provider_file()), component("simcloud")?);
        let manager = Manager::start(&site.server.kubeconfig(), &component, &file, &[site.cloud.token()]).await?;
        let folder = TempDir::new()?;
        fs::write(folder.path().join("token"), site.server.token())?;
        Ok(Self { site, manager, folder })
    }

    /// Checks that the answer of the manager to this command has these texts.
    pub(crate) fn says(&self, command: &[&str], texts: &[&str]) -> Result<()> {
        let token = self.folder.path().join("token").display().to_string();
        let flags = ["--server", self.manager.address(), "--token-file", &token, "--insecure-skip-tls-verify"];
        let page = run(skysail()?, &[command, &flags].concat())?;
        let missing: Vec<_> = texts.iter().filter(|text| !page.contains(**text)).collect();
        ensure!(missing.is_empty(), "{missing:?} is not in\n{page}");
        Ok(())
    }

    /// Waits until the manager says so.
    pub(crate) async fn until_said(&self, what: &str, command: &[&str], texts: &[&str]) -> Result<()> {
        self.until(what, || std::future::ready(self.says(command, texts))).await
    }

    /// Waits until the Service does not exist any more.
    pub(crate) async fn until_gone(&self, name: &str) -> Result<()> {
        self.until("the Service is gone", || service_gone(&self.site.client, name)).await
    }

    /// Waits until the Service has an address.
    pub(crate) async fn until_served(&self, name: &str) -> Result<String> {
        self.until("the Service gets an address", || address_of(&self.site.client, name)).await
    }

    async fn until<T, F: Future<Output = Result<T>>>(&self, what: &str, look: impl FnMut() -> F) -> Result<T> {
        eventually(what, 60, look).await.map_err(|error| error.context(self.manager.log_tail()))
    }
}

#[tokio::test]
async fn the_manager_serves_a_real_api_server_while_machines_and_releases_change() -> Result<()> {
    let cloud = Simulated::start(&NODES).await?;
    let server = ApiServer::start()?;
    let manager =
        Manager::start(&server.kubeconfig(), &component("simcloud")?, &cloud.provider_file(), &[cloud.token()]).await?;
    let mut world = World { cloud, client: server.client().await?, manager };
    if let Err(error) = world.story().await {
        return Err(error.context(world.manager.log_tail()));
    }
    let status = world.manager.end().await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}

struct World {
    cloud: Simulated,
    client: Client,
    manager: Manager,
}

impl World {
    async fn story(&mut self) -> Result<()> {
        let client = self.client.clone();
        self.i1_tainted_nodes_lose_the_taint_and_get_the_clouds_addresses().await.context("I1")?;
        create_service(&client, "web", 8080, NODE_PORT).await?;
        let address = eventually("the Service gets an address", 60, || address_of(&client, "web")).await?;
        wait_for_answers(&address, 8080, &NODES).await?;
        swap(&mut self.manager, &client, &address, NODE_PORT, &NODES).await?;
        self.cloud.stop("b").await?;
        set_ready(&client, "b", "Unknown").await?;
        let tainted = || async {
            ensure!(has_taint(&nodes(&client).get("b").await?, SHUTDOWN), "not tainted");
            Ok(())
        };
        eventually("the node of the stopped machine is tainted", 60, tainted).await?;
        self.e1_the_node_of_a_deleted_machine_goes("c").await?;
        wait_for_answers(&address, 9090, &["a"]).await?;
        delete_service(&client, "web").await?;
        eventually("the Service goes", 60, || service_gone(&client, "web")).await?;
        ensure!(self.cloud.cloud.snapshot().has_no_load_balancers(), "something is left in the cloud");
        self.manager.still_runs()
    }

    async fn i1_tainted_nodes_lose_the_taint_and_get_the_clouds_addresses(&self) -> Result<()> {
        for name in NODES {
            register_node(&self.client, name).await?;
        }
        for machine in self.cloud.cloud.snapshot().instances {
            let name = &machine.name;
            let node = eventually("the node is initialised", 60, || initialized(&self.client, name)).await?;
            let public = machine.public_address.context("the machine has no public address")?;
            let expected = [
                format!("Hostname {name}"),
                format!("InternalIP {}", machine.private_address),
                format!("ExternalIP {public}"),
            ];
            ensure!(addresses(&node) == expected, "{name} has {:?}, not {expected:?}", addresses(&node));
        }
        Ok(())
    }

    async fn e1_the_node_of_a_deleted_machine_goes(&self, name: &str) -> Result<()> {
        self.cloud.delete(name).await?;
        set_ready(&self.client, name, "Unknown").await?;
        let node_gone = || async {
            ensure!(nodes(&self.client).get_opt(name).await?.is_none(), "the node is still there");
            Ok(())
        };
        // Upstream's own test allows five minutes.
        eventually("the node of the deleted machine goes", 120, node_gone).await
    }
}
