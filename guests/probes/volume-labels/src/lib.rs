//! A probe with invalid labels of a volume: too many, too long, duplicate or not label values; the
//! volume's handle selects the case.

use skysail_guest_sdk::{
    Error, Identity, Info, Pair, PersistentVolume, PersistentVolumeLabels, Problem, Result, provider,
};

struct Probe;
provider!(Probe: identity, persistent_volume_labels);

impl Identity for Probe {
    fn describe() -> Info {
        Info::new("volume-labels", "0.1.0", "A probe of the sandbox")
    }
    fn check_config(_text: String) -> Vec<Problem> {
        Vec::new()
    }
    fn origins(_text: String) -> Vec<String> {
        Vec::new()
    }
}

impl PersistentVolumeLabels for Probe {
    fn labels(cluster: String, volume: PersistentVolume) -> Result<Vec<Pair>> {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Ok(match &*volume.handle {
            "many" => (0..10_000).map(|n| (format!("key-{n}"), "v".to_owned())).collect(),
            "long" => vec![pair("key", &"v".repeat(1 << 20))],
            "twice" => vec![pair("key", "a"), pair("key", "b")],
            "control" => vec![pair("key", "\u{1b}[2J")],
            "gone" => return Err(Error::NotFound("no such volume".to_owned())),
            // The received values, for the test to check.
            "good" => {
                let PersistentVolume { name, uid, storage_class, source, driver, .. } = &volume;
                let mut labels = [("cluster", &cluster), ("name", name), ("uid", uid), ("class", storage_class)]
                    .map(|(key, value)| pair(key, value))
                    .to_vec();
                labels.extend([("source", source), ("driver", driver)].map(|(key, value)| pair(key, value)));
                labels.extend(volume.labels.into_iter().chain(volume.annotations).chain(volume.attributes));
                labels
            }
            handle => return Err(Error::Invalid(format!("{handle:?} is not a volume"))),
        })
    }
}
