//! Values of credentials must be nowhere but where an operator wrote them.
//!
//! Not in the log, not in the state folder, not in an object of the cluster. Every
//! [`crate::manager::Manager`] is searched when its test ends.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::{api_server::ADMIN_KUBECONFIG, workspace::run};

/// What kubectl prints if the server is stopped, or does not have the kind.
const ABSENT: [&str; 2] = ["was refused", "the server doesn't have a resource type"];

/// The values of all tests of this process.
static WATCHED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Adds a value that later searches look for.
pub fn watch(value: &str) {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner).insert(value.trim().to_owned());
}

/// The place, if a value is in the text there. The value itself is not part of the answer.
fn search(place: &str, text: &str) -> Option<String> {
    let watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    watched.iter().any(|value| text.contains(value)).then(|| place.to_owned())
}

/// The files below a folder that have a value, except these.
pub(crate) fn in_files(folder: &Path, written: &[PathBuf]) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() && !written.contains(&path) => {
                    let bytes = fs::read(&path).unwrap_or_default();
                    found.extend(search(&path.display().to_string(), &String::from_utf8_lossy(&bytes)));
                }
                _ => {}
            }
        }
    }
    found
}

/// The kinds of objects that the manager writes and that have a value, or that cannot be read. A
/// server that the test has stopped has no objects, and one without CRDs no Providers.
#[must_use]
pub fn in_objects(kubeconfig: &Path) -> Vec<String> {
    // Not the manager's kubeconfig: an account may not read everything, and a proxy before the
    // server is a task of the test, which does not go on during this search.
    let kubeconfig = kubeconfig.with_file_name(ADMIN_KUBECONFIG).display().to_string();
    let get = |kinds: &str| {
        let arguments = ["--kubeconfig", &kubeconfig, "--request-timeout=10s", "get", kinds, "-A", "-o", "json"];
        match run("kubectl", &arguments).map_err(|error| error.to_string()) {
            Ok(text) => search(kinds, &text),
            Err(error) if ABSENT.iter().any(|absent| error.contains(absent)) => None,
            Err(error) => Some(format!("{kinds}, which cannot be read: {error}")),
        }
    };
    let kinds = ["events.events.k8s.io", "services", "nodes", "leases", "persistentvolumes", "providers.skysail.dev"];
    kinds.into_iter().filter_map(get).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_in_every_file_but_those_that_the_test_wrote() {
        watch("s3cret-of-a-unit-test\n");
        let folder = tempfile::tempdir().unwrap();
        let [token, log, deep] = ["token", "log", "state/archive"].map(|name| folder.path().join(name));
        fs::create_dir(folder.path().join("state")).unwrap();
        fs::write(&token, "s3cret-of-a-unit-test").unwrap();
        fs::write(&log, "harmless").unwrap();
        assert_eq!(in_files(folder.path(), std::slice::from_ref(&token)), Vec::<String>::new());
        for file in [&log, &deep] {
            fs::write(file, "a s3cret-of-a-unit-test in a line").unwrap();
            assert_eq!(in_files(folder.path(), std::slice::from_ref(&token)), [file.display().to_string()]);
            fs::write(file, "").unwrap();
        }
    }
}
