//! Applies changes of the provider definitions while the manager runs: the provider file, as a
//! whole or not at all, or the objects of the cluster, each independently.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{sync::watch, time::sleep};

use super::resources::{ProviderState, Resources};
use crate::{
    provider_file::{self, Files, ProviderFile},
    providers::{Fleet, Owner, Problem},
};

/// How often the provider file and the files that it names are read for changes. A Secret or
/// ConfigMap mount takes a minute to follow its object, so that seconds do not matter; the
/// component itself is watched by inotify.
const FILES_PERIOD: Duration = Duration::from_secs(5);

/// Returns which provider is not served and why.
pub(super) type LeftOut = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// The origin of the provider definitions.
pub(super) enum Follow {
    /// A file.
    File(FollowFile),
    /// Objects of the cluster.
    Resources(Resources),
}

impl Follow {
    /// Applies changes until the claims or the slots of the providers differ from `started`, with
    /// which the controllers run.
    ///
    /// # Errors
    /// The watch has ended.
    pub(super) async fn until_ownership_changes(&mut self, fleet: &mut Fleet, started: &[Owner]) -> anyhow::Result<()> {
        match self {
            Self::File(file) => file.until_ownership_changes(fleet, started).await,
            Self::Resources(resources) => return resources.until_ownership_changes(fleet, started).await,
        }
        Ok(())
    }

    /// The state of each provider and its changes.
    pub(super) fn provider_states(&self) -> watch::Receiver<Vec<ProviderState>> {
        match self {
            Self::File(file) => file.provider_states.subscribe(),
            Self::Resources(resources) => resources.provider_states(),
        }
    }

    /// Returns a function that tells which provider is not served and why; `None` for a provider
    /// file, which is applied as a whole.
    pub(super) fn left_out(&self) -> Option<LeftOut> {
        match self {
            Self::File(_) => None,
            Self::Resources(resources) => Some(Box::new(resources.left_out())),
        }
    }
}

/// How long a changed file has to stay as it was read. A part of a file that is being written may
/// be valid, with fewer providers.
const SETTLED: Duration = Duration::from_millis(50);

/// The provider file and its last content.
pub(crate) struct FollowFile {
    path: PathBuf,
    files: Files,
    /// The last logged reason, so that each reason is logged once.
    refused: Option<String>,
    provider_states: watch::Sender<Vec<ProviderState>>,
}

/// The result of one look at the provider file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Look {
    Unchanged,
    TakenUp,
    /// With the reason; the last valid version stays in force.
    Refused(String),
}

impl FollowFile {
    /// From a file that the fleet has applied, and the files that it names.
    pub(crate) fn new(path: &Path, files: Files, fleet: &Fleet) -> Self {
        let provider_states = watch::Sender::new(provider_states(fleet, None));
        Self { path: path.to_owned(), files, refused: None, provider_states }
    }

    pub(crate) async fn until_ownership_changes(&mut self, fleet: &mut Fleet, started: &[Owner]) {
        let mut period = tokio::time::interval(FILES_PERIOD);
        while fleet.ownership() == started {
            period.tick().await;
            match self.look(fleet).await {
                Look::Unchanged => {}
                Look::TakenUp => tracing::info!("the changed provider file is applied"),
                Look::Refused(reason) => {
                    if self.refused.replace(reason.clone()).as_ref() != Some(&reason) {
                        tracing::error!(
                            "the provider file is invalid, so its last valid version stays in force: {reason}"
                        );
                    }
                }
            }
        }
    }

    async fn look(&mut self, fleet: &mut Fleet) -> Look {
        let (path, files) = (self.path.clone(), self.files.clone());
        // A disk may be slow, and a network file system may not answer.
        let read = tokio::task::spawn_blocking(move || files.changed().then(|| provider_file::load(&path))).await;
        let Ok(Some(loaded)) = read else { return Look::Unchanged };
        let (loaded, files) = match loaded {
            Ok(ProviderFile { providers, files }) => (Ok(providers), files),
            // Includes missing files, so that a file that is mounted later is noticed.
            Err(error) => {
                let files = error.files().clone();
                (Err(error), files)
            }
        };
        sleep(SETTLED).await;
        let seen = files.clone();
        if tokio::task::spawn_blocking(move || seen.changed()).await.unwrap_or(true) {
            return Look::Unchanged;
        }
        self.files = files;
        let applied = match loaded {
            Ok(providers) => fleet.apply(providers).await,
            Err(error) => Err(error.into()),
        };
        match applied {
            Ok(()) => {
                self.refused = None;
                self.provider_states.send_replace(provider_states(fleet, None));
                Look::TakenUp
            }
            Err(error) => {
                let reason = format!("{error:#}");
                let message =
                    format!("the provider file is invalid, so its last valid version stays in force: {reason}");
                self.provider_states.send_replace(provider_states(fleet, Some(&Problem::Refused(message))));
                Look::Refused(reason)
            }
        }
    }
}

/// The states of the providers. A file is refused as a whole, so each provider gets its problem.
fn provider_states(fleet: &Fleet, problem: Option<&Problem>) -> Vec<ProviderState> {
    fleet.served.values().map(|served| ProviderState::of_file(served, problem.cloned())).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};
    use tempfile::TempDir;
    use tokio::{sync::watch, time::sleep};

    use super::{FollowFile, Look, SETTLED};
    use crate::{
        commands::run::{provider_statuses::ProviderStatuses, resources::ProviderState},
        provider_file,
        providers::{Fleet, services},
    };

    const PROVIDER: &str =
        "apiVersion: skysail.dev/v1alpha1\nkind: Provider\nmetadata: {name: sim}\nspec:\n  source: {file: sim.wasm}\n";
    const CREDENTIAL: &str = "  credentials: {api: {origins: [\"https://api.example.com\"], bearer: {file: token}}}\n";

    /// A provider file with one provider, whose component does not exist.
    pub(in crate::commands::run) struct World {
        folder: TempDir,
        fleet: Fleet,
        follow: FollowFile,
    }

    impl World {
        pub(in crate::commands::run) async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("providers.yaml");
            fs::write(&path, PROVIDER).unwrap();
            let file = provider_file::load(&path).unwrap();
            let mut fleet = Fleet::new(services(&mut Registry::default()).unwrap());
            fleet.apply(file.providers).await.unwrap();
            let follow = FollowFile::new(&path, file.files, &fleet);
            Self { folder, fleet, follow }
        }

        pub(in crate::commands::run) fn provider_states(&self) -> watch::Receiver<Vec<ProviderState>> {
            self.follow.provider_states.subscribe()
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.folder.path().join(name), text).unwrap();
        }

        async fn look(&mut self) -> Look {
            self.follow.look(&mut self.fleet).await
        }
    }

    #[tokio::test]
    async fn a_file_without_a_change_is_not_read_again() {
        let mut world = World::new().await;
        assert_eq!(world.look().await, Look::Unchanged);
        world.write("providers.yaml", &format!("{PROVIDER}  config: other\n"));
        assert_eq!(world.look().await, Look::TakenUp);
        assert_eq!(world.look().await, Look::Unchanged);
        assert_eq!(world.fleet.served["sim"].spec.config, "other");
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_of_a_file_that_is_being_written_is_not_applied() {
        let mut world = World::new().await;
        let path = world.folder.path().join("providers.yaml");
        world.write("providers.yaml", &format!("{PROVIDER}  config: part\n"));
        let written = async {
            sleep(SETTLED / 2).await;
            fs::write(path, format!("{PROVIDER}  config: whole\n")).unwrap();
        };
        let (look, ()) = tokio::join!(world.follow.look(&mut world.fleet), written);
        assert_eq!(look, Look::Unchanged);
        assert_eq!(world.look().await, Look::TakenUp);
        assert_eq!(world.fleet.served["sim"].spec.config, "whole");
    }

    #[tokio::test]
    async fn a_secret_that_is_mounted_late_is_noticed() {
        let mut world = World::new().await;
        world.write("providers.yaml", &format!("{PROVIDER}{CREDENTIAL}"));
        let Look::Refused(reason) = world.look().await else { panic!("the token is missing") };
        assert!(reason.contains("token"), "{reason}");
        assert_eq!(world.look().await, Look::Unchanged, "the unchanged file was read again");
        world.write("token", "a-long-token");
        assert_eq!(world.look().await, Look::TakenUp);
    }

    #[tokio::test]
    async fn an_invalid_file_keeps_the_claims_and_a_valid_one_ends_the_wait() {
        let mut world = World::new().await;
        let started = world.fleet.ownership();
        world.write("providers.yaml", &format!("{PROVIDER}  loadBalancerClasses: [a/b]\n---\nkind: x\n"));
        assert!(matches!(world.look().await, Look::Refused(_)));
        assert_eq!(world.fleet.ownership(), started);
        world.write("providers.yaml", &format!("{PROVIDER}  loadBalancerClasses: [a/b]\n"));
        world.follow.until_ownership_changes(&mut world.fleet, &started).await;
        assert_ne!(world.fleet.ownership(), started);
    }

    /// `/providers` reports it, although nothing of the providers has changed.
    #[tokio::test]
    async fn each_provider_of_a_refused_file_is_degraded_until_the_file_is_valid() {
        let mut world = World::new().await;
        let statuses = ProviderStatuses::new(world.provider_states());
        let degraded = || {
            let document = statuses.document();
            let conditions = document.pointer("/items/0/status/conditions").unwrap().as_array().unwrap().clone();
            let is_it = |condition: &Value| condition["type"] == "Degraded" && condition["reason"] == "SpecRefused";
            conditions.into_iter().find(is_it).map(|condition| condition["message"].to_string())
        };
        assert_eq!(degraded(), None);
        world.write("providers.yaml", "kind: x\n");
        assert!(matches!(world.look().await, Look::Refused(_)));
        let message = degraded().unwrap();
        let expected = "the provider file is invalid, so its last valid version stays in force: ";
        assert!(message.contains(expected), "{message}");
        world.write("providers.yaml", PROVIDER);
        assert_eq!(world.look().await, Look::TakenUp);
        assert_eq!(degraded(), None);
    }

    #[tokio::test]
    async fn the_document_is_a_list_of_providers_whose_conditions_keep_their_time() {
        let world = World::new().await;
        let statuses = ProviderStatuses::new(world.provider_states());
        let at = |document: &Value, place: &str| document.pointer(place).cloned().unwrap_or_default();
        let before = statuses.document();
        assert_eq!(at(&before, "/kind"), "ProviderList");
        assert_eq!(at(&before, "/items/0/metadata"), json!({ "name": "sim" }));
        assert_eq!(at(&before, "/items/0/status/conditions/0/type"), "Ready");
        let mut slot = world.fleet.served["sim"].slot.status();
        slot.wait_for(|status| status.source_failure.is_some()).await.unwrap();
        let after = statuses.document();
        assert_eq!(at(&after, "/items/0/status/sourceFailure/code"), "SourceMissing", "{after:#}");
        let since = "/items/0/status/conditions/0/lastTransitionTime";
        assert_eq!(at(&before, since), at(&after, since), "the condition Ready was False and still is");
    }

    /// Controllers that run with other claims than those in force must not wait for the next
    /// change.
    #[tokio::test]
    async fn claims_that_differ_from_those_of_the_controllers_end_the_wait_at_once() {
        let mut world = World::new().await;
        world.follow.until_ownership_changes(&mut world.fleet, &[]).await;
    }
}
