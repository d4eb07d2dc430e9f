//! Where the tests' components come from: the folder that `make guests` fills.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The top of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A component that `make guests` has built: `SKYSAIL_COMPONENTS` names another folder than `target/components`.
#[track_caller]
pub(crate) fn built(name: &str) -> Vec<u8> {
    #[expect(clippy::disallowed_methods, reason = "tests have no arguments of their own")]
    let folder =
        std::env::var("SKYSAIL_COMPONENTS").map_or_else(|_| repository().join("target/components"), PathBuf::from);
    let file = folder.join(format!("{name}.wasm"));
    fs::read(&file).unwrap_or_else(|error| panic!("{} is missing ({error}): run make guests", file.display()))
}
