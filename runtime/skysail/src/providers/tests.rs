//! Provider files applied one after another.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use prometheus_client::registry::Registry;
use skysail_sources::{Archive, Digest, Quarantined, SourceFile};
use tempfile::TempDir;
use tokio::{
    runtime,
    task::{spawn_blocking, yield_now},
};

use super::{Desired, Fleet, Problem, Served, services};
use crate::provider_file::{self, ProviderSpec};

const PROVIDER: &str = "apiVersion: skysail.dev/v1alpha1\nkind: Provider\nmetadata: {name: sim}\nspec:\n  source: {file: sim.wasm}\n  \
                        credentials: {api: {origins: [\"https://api.example.com\"], bearer: {file: token}}}\n";

/// A folder with a provider file and a token, and the providers of it.
struct World {
    folder: TempDir,
    fleet: Fleet,
}

impl World {
    async fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("token"), "the-first-value").unwrap();
        let mut world = Self { folder, fleet: Fleet::new(services(&mut Registry::default()).unwrap()) };
        world.apply(text).await.unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn load(&self, text: &str) -> Vec<ProviderSpec> {
        fs::write(self.path("providers.yaml"), text).unwrap();
        provider_file::load(&self.path("providers.yaml")).unwrap().providers
    }

    async fn apply(&mut self, text: &str) -> anyhow::Result<()> {
        let specs = self.load(text);
        self.fleet.apply(specs).await
    }

    /// What the source said about the component of `sim`, as soon as it did.
    async fn source_failure(&self, part: &str) -> String {
        let mut status = self.fleet.served["sim"].slot.status();
        let says = |reason: &str| reason.contains(part);
        let status = status.wait_for(|status| status.source_failure.as_ref().is_some_and(|f| says(&f.reason))).await;
        status.unwrap().source_failure.clone().unwrap().code.to_owned()
    }
}

#[tokio::test]
async fn a_rotated_credential_is_exchanged_in_place() {
    let mut world = World::new(PROVIDER).await;
    let ownership = world.fleet.ownership();
    let in_use = Arc::clone(&world.fleet.served["sim"].spec.credentials);
    assert!(!in_use.redact("it is the-first-value").contains("the-first-value"));

    let rotations = world.fleet.served["sim"].rotations.subscribe();
    world.apply(PROVIDER).await.unwrap();
    assert!(!rotations.has_changed().unwrap(), "nothing is rotated");
    fs::write(world.path("token"), "another-value").unwrap();
    world.apply(PROVIDER).await.unwrap();
    assert!(rotations.has_changed().unwrap(), "what was denied is woken");
    assert_eq!(world.fleet.ownership(), ownership);
    assert!(Arc::ptr_eq(&in_use, &world.fleet.served["sim"].spec.credentials));
    // What was known before may still be in answers on their way.
    let both = in_use.redact("the-first-value, another-value");
    assert!(!both.contains("first") && !both.contains("another"), "{both}");
}

#[tokio::test(start_paused = true)]
async fn the_controllers_do_not_wait_for_a_component_that_is_not_there() {
    let world = World::new(PROVIDER).await;
    let decided = tokio::time::timeout(super::FIRST_RELEASES / 2, world.fleet.first_releases()).await;
    assert!(decided.is_ok(), "a missing file is a decision");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_late_is_named_and_a_longer_wait_sees_its_decision() {
    let world = World::new(PROVIDER).await;
    // No task has run yet.
    assert_eq!(world.fleet.decided(Duration::ZERO).await, Err(vec!["sim".to_owned()]));
    assert_eq!(world.fleet.decided(super::FIRST_RELEASES).await, Ok(()));
}

/// Of two providers one gets a class and a rotated credential, and the other settings that are
/// none.
#[tokio::test]
async fn an_error_in_one_provider_changes_no_other_provider() {
    let other = PROVIDER.replace("sim", "zoo");
    let mut world = World::new(&format!("{PROVIDER}---\n{other}")).await;
    let ownership = world.fleet.ownership();
    fs::write(world.path("token"), "another-value").unwrap();
    let text = format!(
        "{PROVIDER}  loadBalancerClasses: [example.com/new]\n---\n{other}---\n{}",
        PROVIDER.replace("sim", "new")
    );
    let mut specs = world.load(&text);
    specs[1].limits.fuel = 0;
    specs[1].fingerprint += 1;

    let error = world.fleet.apply(specs).await.unwrap_err();
    assert!(format!("{error:#}").starts_with("provider \"zoo\": "), "{error:#}");
    assert_eq!(world.fleet.ownership(), ownership);
    assert_eq!(world.fleet.served.len(), 2, "and none is new");
    let credentials = &world.fleet.served["sim"].spec.credentials;
    assert_eq!(credentials.redact("another-value"), "another-value", "the old value stays in force");

    world.apply(&text).await.unwrap();
    assert_ne!(world.fleet.ownership(), ownership, "mended, all of it is taken up");
    assert_eq!(world.fleet.served.len(), 3);
}

#[tokio::test]
async fn another_path_of_the_component_keeps_the_slot_with_what_serves() {
    let mut world = World::new(PROVIDER).await;
    let (slot, ownership) = (Arc::clone(&world.fleet.served["sim"].slot), world.fleet.ownership());
    assert_eq!(world.source_failure("sim.wasm is missing").await, "SourceMissing");
    world.apply(&PROVIDER.replace("sim.wasm", "next.wasm")).await.unwrap();
    assert!(Arc::ptr_eq(&slot, &world.fleet.served["sim"].slot));
    assert_eq!(world.fleet.ownership(), ownership, "the controllers go on");
    assert_eq!(world.source_failure("next.wasm is missing").await, "SourceMissing");
    fs::write(world.path("next.wasm"), "junk").unwrap();
    let mut status = slot.status();
    let status = status.wait_for(|status| status.refused.is_some()).await.unwrap().clone();
    assert_eq!((status.refused.unwrap().code, status.source_failure), ("Text", None));
}

#[tokio::test]
async fn a_raised_limit_of_the_component_holds_for_the_file_that_was_too_large() {
    let mut world = World::new(&format!("{PROVIDER}  limits: {{componentBytes: 1024}}\n")).await;
    fs::write(world.path("sim.wasm"), "a".repeat(2000)).unwrap();
    assert_eq!(world.source_failure("componentBytes is 1024").await, "SourceTooLarge");
    world.apply(&format!("{PROVIDER}  limits: {{componentBytes: 4096}}\n")).await.unwrap();
    let mut status = world.fleet.served["sim"].slot.status();
    let status = status.wait_for(|status| status.refused.is_some()).await.unwrap().clone();
    assert_eq!(status.source_failure, None);
}

#[tokio::test]
async fn a_provider_that_left_the_file_is_gone() {
    let mut world = World::new(&format!("{PROVIDER}---\n{}", PROVIDER.replace("sim", "zoo"))).await;
    world.apply(PROVIDER).await.unwrap();
    assert_eq!(world.fleet.served.keys().collect::<Vec<_>>(), ["sim"]);
}

// === each by itself ===

impl World {
    /// One after the other, oldest first: a name and its settings; `None` if they are wrong.
    async fn apply_each(&mut self, desired: &[(&str, Option<&str>)]) -> BTreeMap<String, Problem> {
        let spec = |(name, more): &(&str, Option<&str>)| {
            let spec = more.map(|more| self.load(&format!("{}{more}", PROVIDER.replace("sim", name))).remove(0));
            Desired { settings: spec, claims: ProviderSpec::closed(name).unwrap() }
        };
        let mut desired: Vec<_> = desired.iter().map(spec).collect();
        let settings = desired.iter_mut().filter_map(|one| one.settings.as_mut());
        for spec in settings.filter(|spec| spec.config == "wrong") {
            spec.limits.fuel = 0;
        }
        self.fleet.apply_each(desired, &[]).await
    }

    /// The providers with what each claims, and its cloud-config.
    fn shown(&self) -> String {
        let line = |served: &Served| {
            let ProviderSpec { name, config, .. } = &served.spec;
            let (default, schemes) = (served.spec.is_default(), served.spec.pinned_schemes());
            format!("{name} {config:?} default {default} schemes {schemes:?}; ")
        };
        self.fleet.served.values().map(line).collect()
    }
}

#[tokio::test]
async fn a_provider_whose_new_spec_is_refused_keeps_its_settings_and_delays_no_other_provider() {
    let mut world = World::new(PROVIDER).await;
    assert!(world.apply_each(&[("sim", Some("")), ("zoo", Some("")), ("old", Some(""))]).await.is_empty());
    let desired = [("sim", Some("  config: new\n")), ("zoo", Some("  config: wrong\n"))];
    let problems = world.apply_each(&desired).await;
    assert_eq!(problems.keys().collect::<Vec<_>>(), ["zoo"]);
    assert!(matches!(&problems["zoo"], Problem::Refused(reason) if reason.contains("fuel")), "{problems:?}");
    assert_eq!(world.shown(), "sim \"new\" default false schemes None; zoo \"\" default false schemes None; ");
}

/// Some mistakes are found after the checks of the object.
#[tokio::test]
async fn a_provider_whose_spec_was_never_valid_has_its_claims_and_no_release() {
    let mut world = World::new(PROVIDER).await;
    for fuel in [0, 1_000_000] {
        let mut settings = world.load(&format!("{PROVIDER}  config: new\n  default: true\n")).remove(0);
        settings.limits.fuel = fuel;
        let settings = ProviderSpec { name: "zoo".to_owned(), ..settings };
        let claims = ProviderSpec { default: true, ..ProviderSpec::closed("zoo").unwrap() };
        let problems = world.fleet.apply_each(vec![Desired { settings: Some(settings), claims }], &[]).await;
        let zoo = &world.fleet.served["zoo"];
        assert_eq!(
            (problems.len(), zoo.has_settings(), zoo.spec.is_default()),
            (usize::from(fuel == 0), fuel > 0, true)
        );
    }
}

/// Otherwise a Secret that cannot be read at a start would erase a quarantine.
#[tokio::test]
async fn the_archive_of_a_refused_provider_stays_on_disk() {
    let mut world = World::new(PROVIDER).await;
    let archive = Arc::new(Archive::open(world.path("state"), 1 << 20).unwrap());
    world.fleet.surroundings.archive = Some(Arc::clone(&archive));
    let bytes = Bytes::from_static(b"component");
    let offer = SourceFile { digest: Digest::of(&bytes), bytes, origin: "a test".to_owned() };
    archive.put("old", "source", &offer).unwrap();
    let desired = || vec![Desired { settings: None, claims: ProviderSpec::closed("sim").unwrap() }];
    let is_there = || archive.get("old", "source", 1 << 20).is_some();
    world.fleet.apply_each(desired(), &["old".to_owned()]).await;
    assert!(is_there());
    world.fleet.apply_each(desired(), &[]).await;
    while is_there() {
        yield_now().await;
    }
}

/// The only blocking thread is occupied, as by a write to a disk that does not answer.
#[test]
fn a_disk_that_hangs_delays_no_provider() {
    let runtime = runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let mut world = World::new(PROVIDER).await;
        let archive = Arc::new(Archive::open(world.path("state"), 1 << 20).unwrap());
        world.fleet.surroundings.archive = Some(Arc::clone(&archive));
        let (free, busy) = std::sync::mpsc::channel::<()>();
        let hangs = spawn_blocking(move || busy.recv());
        for name in ["old", "new", "old"] {
            let desired = Desired { settings: None, claims: ProviderSpec::closed(name).unwrap() };
            let problems = world.fleet.apply_each(vec![desired], &[]).await;
            assert_eq!((problems.len(), world.fleet.served.contains_key(name)), (0, true));
        }
        // Each is removed when its turn comes, and `old` is there again by then.
        for name in ["old", "new"] {
            archive.quarantine(name, quarantined()).unwrap();
        }
        free.send(()).unwrap();
        hangs.await.unwrap().unwrap();
        while !archive.quarantined("new").is_empty() {
            yield_now().await;
        }
        assert_eq!(archive.quarantined("old"), [quarantined()]);
    });
}

fn quarantined() -> Quarantined {
    Quarantined { digest: Digest::of(b"component").to_string(), reason: "why".to_owned(), retried: false }
}

/// The older provider also has a claim that the younger one had before, so that every process
/// assigns claims alike. When the older one gives it up, the younger one has it again.
#[tokio::test]
async fn the_older_of_two_providers_has_a_contested_claim_until_its_spec_drops_the_claim() {
    const CLAIMS: &str = "  default: true\n  providerIdSchemes: [cloud]\n";
    let mut world = World::new(&PROVIDER.replace("sim", "zoo")).await;
    assert!(world.apply_each(&[("zoo", Some(CLAIMS))]).await.is_empty());
    for zoo in [Some(CLAIMS), Some("  config: wrong\n"), None] {
        let problems = world.apply_each(&[("sim", Some(CLAIMS)), ("zoo", zoo)]).await;
        assert_eq!(problems.keys().collect::<Vec<_>>(), ["zoo"]);
        // A provider whose schemes an older provider claims has no scheme, not even those of its
        // component.
        let shown = "sim \"\" default true schemes Some({\"cloud\"}); zoo \"\" default false schemes Some({}); ";
        assert_eq!(world.shown(), shown);
    }
    assert!(world.apply_each(&[("sim", Some("")), ("zoo", None)]).await.is_empty());
    let shown = "sim \"\" default false schemes None; zoo \"\" default true schemes Some({\"cloud\"}); ";
    assert_eq!(world.shown(), shown);
}
