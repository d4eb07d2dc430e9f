//! Follows what the providers are described by while the manager runs: the provider file, taken up
//! whole or not at all, or the objects of the cluster, each by itself.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::sync::watch;

use super::resources::{Resources, Standing};
use crate::{
    provider_file::{self, Claims, Files, ProviderFile},
    providers::{Complaint, Fleet},
};

/// How often the provider file and the files that it names are read for changes. A Secret or
/// ConfigMap mount takes a minute to follow its object, so that seconds do not matter; the
/// component itself is watched by inotify.
const FILES_PERIOD: Duration = Duration::from_secs(5);

/// Which provider is left out, and why.
pub(super) type LeftOut = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// What describes the providers.
pub(super) enum Follow {
    /// A file.
    File(FollowFile),
    /// Objects of the cluster.
    Resources(Resources),
}

impl Follow {
    /// Follows until the providers claim something else than `started`, which the controllers run
    /// with.
    ///
    /// # Errors
    /// What follows has ended.
    pub(super) async fn until_ownership_changes(
        &mut self,
        fleet: &mut Fleet,
        started: &[Claims],
    ) -> anyhow::Result<()> {
        match self {
            Self::File(file) => file.until_ownership_changes(fleet, started).await,
            Self::Resources(resources) => return resources.until_ownership_changes(fleet, started).await,
        }
        Ok(())
    }

    /// What becomes of each provider, now and from now on.
    pub(super) fn standings(&self) -> watch::Receiver<Vec<Standing>> {
        match self {
            Self::File(file) => file.standings.subscribe(),
            Self::Resources(resources) => resources.standings(),
        }
    }

    /// Tells, whenever it is asked, which provider is left out, and why; of a file none is, for it
    /// is taken up whole.
    pub(super) fn left_out(&self) -> Option<LeftOut> {
        match self {
            Self::File(_) => None,
            Self::Resources(resources) => Some(Box::new(resources.left_out())),
        }
    }
}

/// The provider file, and what of it was seen.
pub(crate) struct FollowFile {
    path: PathBuf,
    files: Files,
    /// What was said last, so that it is said once.
    refused: Option<String>,
    standings: watch::Sender<Vec<Standing>>,
}

/// What one look found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Look {
    Unchanged,
    TakenUp,
    /// With the reason: the last good file stays in force.
    Refused(String),
}

impl FollowFile {
    /// From a file that the fleet has taken up, and the files that were read for it.
    pub(crate) fn new(path: &Path, files: Files, fleet: &Fleet) -> Self {
        let standings = watch::Sender::new(standings(fleet, None));
        Self { path: path.to_owned(), files, refused: None, standings }
    }

    pub(crate) async fn until_ownership_changes(&mut self, fleet: &mut Fleet, started: &[Claims]) {
        let mut period = tokio::time::interval(FILES_PERIOD);
        while fleet.ownership() == started {
            period.tick().await;
            match self.look(fleet).await {
                Look::Unchanged => {}
                Look::TakenUp => tracing::info!("provider file taken up"),
                Look::Refused(reason) => {
                    if self.refused.replace(reason.clone()).as_ref() != Some(&reason) {
                        tracing::error!("the provider file is refused, the last good one stays in force: {reason}");
                    }
                }
            }
        }
    }

    async fn look(&mut self, fleet: &mut Fleet) -> Look {
        let (path, files) = (self.path.clone(), self.files.clone());
        // A disk may be slow, or a mount without its server.
        let read = tokio::task::spawn_blocking(move || files.changed().then(|| provider_file::load(&path))).await;
        let Ok(Some(loaded)) = read else { return Look::Unchanged };
        let applied = match loaded {
            Ok(ProviderFile { providers, files }) => {
                self.files = files;
                fleet.apply(providers).await
            }
            Err(error) => {
                // Also of the files that are missing: one that is mounted later mends the error.
                self.files = error.files().clone();
                Err(error.into())
            }
        };
        match applied {
            Ok(()) => {
                self.refused = None;
                self.standings.send_replace(standings(fleet, None));
                Look::TakenUp
            }
            Err(error) => {
                let reason = format!("{error:#}");
                let told = format!("the provider file is refused, the last good one stays in force: {reason}");
                self.standings.send_replace(standings(fleet, Some(&Complaint::Refused(told))));
                Look::Refused(reason)
            }
        }
    }
}

/// A file is refused whole, so that what is wrong with it is said of each of its providers.
fn standings(fleet: &Fleet, complaint: Option<&Complaint>) -> Vec<Standing> {
    fleet.served.values().map(|served| Standing::of_file(served, complaint.cloned())).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::{FollowFile, Look};
    use crate::{
        commands::run::board::Board,
        provider_file,
        providers::{Fleet, services},
    };

    const PROVIDER: &str =
        "apiVersion: skysail.dev/v1alpha1\nkind: Provider\nmetadata: {name: sim}\nspec:\n  source: {file: sim.wasm}\n";
    const CREDENTIAL: &str = "  credentials: {api: {origins: [\"https://api.example.com\"], bearer: {file: token}}}\n";

    struct World {
        folder: TempDir,
        fleet: Fleet,
        follow: FollowFile,
    }

    impl World {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("providers.yaml");
            fs::write(&path, PROVIDER).unwrap();
            let file = provider_file::load(&path).unwrap();
            let mut fleet = Fleet::new(services(&mut Registry::default()).unwrap());
            fleet.apply(file.providers).await.unwrap();
            let follow = FollowFile::new(&path, file.files, &fleet);
            Self { folder, fleet, follow }
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.folder.path().join(name), text).unwrap();
        }

        async fn look(&mut self) -> Look {
            self.follow.look(&mut self.fleet).await
        }
    }

    #[tokio::test]
    async fn what_did_not_change_is_not_read_again() {
        let mut world = World::new().await;
        assert_eq!(world.look().await, Look::Unchanged);
        world.write("providers.yaml", &format!("{PROVIDER}  config: other\n"));
        assert_eq!(world.look().await, Look::TakenUp);
        assert_eq!(world.look().await, Look::Unchanged);
        assert_eq!(world.fleet.served["sim"].spec.config, "other");
    }

    #[tokio::test]
    async fn a_secret_that_is_mounted_late_is_noticed() {
        let mut world = World::new().await;
        world.write("providers.yaml", &format!("{PROVIDER}{CREDENTIAL}"));
        let Look::Refused(reason) = world.look().await else { panic!("the token is missing") };
        assert!(reason.contains("token"), "{reason}");
        assert_eq!(world.look().await, Look::Unchanged, "it is not read again for nothing");
        world.write("token", "a-long-token");
        assert_eq!(world.look().await, Look::TakenUp);
    }

    #[tokio::test]
    async fn a_wrong_file_keeps_what_is_claimed_and_a_good_one_ends_the_wait() {
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
    async fn a_file_that_is_refused_is_said_of_each_of_its_providers_until_it_is_right() {
        let mut world = World::new().await;
        let board = Board::new(world.follow.standings.subscribe());
        let degraded = || {
            let document = board.document();
            let conditions = document.pointer("/items/0/status/conditions").unwrap().as_array().unwrap().clone();
            let is_it = |condition: &Value| condition["type"] == "Degraded" && condition["reason"] == "SpecRefused";
            conditions.into_iter().find(is_it).map(|condition| condition["message"].to_string())
        };
        assert_eq!(degraded(), None);
        world.write("providers.yaml", "kind: x\n");
        assert!(matches!(world.look().await, Look::Refused(_)));
        let told = degraded().unwrap();
        assert!(told.contains("the provider file is refused, the last good one stays in force: "), "{told}");
        world.write("providers.yaml", PROVIDER);
        assert_eq!(world.look().await, Look::TakenUp);
        assert_eq!(degraded(), None);
    }

    #[tokio::test]
    async fn the_board_is_a_list_of_providers_whose_conditions_keep_their_time() {
        let world = World::new().await;
        let board = Board::new(world.follow.standings.subscribe());
        let at = |document: &Value, place: &str| document.pointer(place).cloned().unwrap_or_default();
        let before = board.document();
        assert_eq!(at(&before, "/kind"), "ProviderList");
        assert_eq!(at(&before, "/items/0/metadata"), json!({ "name": "sim" }));
        assert_eq!(at(&before, "/items/0/status/conditions/0/type"), "Ready");
        let mut slot = world.fleet.served["sim"].slot.status();
        slot.wait_for(|status| status.source_failure.is_some()).await.unwrap();
        let after = board.document();
        assert_eq!(at(&after, "/items/0/status/sourceFailure/code"), "SourceMissing", "{after:#}");
        let since = "/items/0/status/conditions/0/lastTransitionTime";
        assert_eq!(at(&before, since), at(&after, since), "it was not ready and is not");
    }

    /// The controllers may have been started with something else than what is in force: they must
    /// not wait for the next change.
    #[tokio::test]
    async fn claims_that_differ_from_those_of_the_controllers_end_the_wait_at_once() {
        let mut world = World::new().await;
        world.follow.until_ownership_changes(&mut world.fleet, &[]).await;
    }
}
