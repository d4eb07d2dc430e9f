//! The cache folder for files that are slow to build, and the environment that names it.

use std::path::PathBuf;

use anyhow::Context as _;

/// Made where it is not there.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    let base = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    let folder =
        base.context("neither XDG_CACHE_HOME nor HOME is set: the tests have no cache folder; set one of them")?;
    let folder = folder.join("skysail").join("tests");
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

#[expect(
    clippy::disallowed_methods,
    reason = "test harnesses are configured by the environment, as the ecosystem's are"
)]
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var(name).ok().filter(|v| !v.is_empty()).map(PathBuf::from)
}
