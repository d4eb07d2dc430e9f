//! `skysail crd`: the `CustomResourceDefinition` of the resource `Provider`.

use crate::{custom_resource, output};

/// Prints the definition.
///
/// # Errors
/// The definition cannot be written.
pub(crate) fn run() -> anyhow::Result<()> {
    output::print(custom_resource::yaml()?.as_bytes())
}
