//! `skysail crd`: the resource `Provider`, as a cluster takes it.

use crate::{custom_resource, output};

/// Prints the definition.
///
/// # Errors
/// It cannot be written.
pub(crate) fn run() -> anyhow::Result<()> {
    output::print(custom_resource::yaml()?.as_bytes())
}
