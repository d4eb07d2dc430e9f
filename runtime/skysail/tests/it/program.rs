//! Paths of the program and of components.

use std::path::{Path, PathBuf};

/// The program.
pub(crate) const SKYSAIL: &str = env!("CARGO_BIN_EXE_skysail");

/// A component that `make guests` has built.
#[track_caller]
pub(crate) fn built(name: &str) -> PathBuf {
    // TARGET/PROFILE/skysail
    let target = Path::new(SKYSAIL).ancestors().nth(2).unwrap();
    let file = target.join("components").join(format!("{name}.wasm"));
    assert!(file.is_file(), "{} is missing: run make guests", file.display());
    file
}
