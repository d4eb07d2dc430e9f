//! `skysail componentize`: turns what a toolchain has made of a provider into a component.

use std::fs;

use anyhow::Context as _;
use skysail_host::write_file;

use crate::{
    args::ComponentizeArgs,
    exit::{MarkExt as _, Reason},
    output,
};

/// Writes the component, and prints its file and size.
///
/// # Errors
/// The input is not the module of a provider, or a file cannot be read or written.
pub(crate) fn run(args: &ComponentizeArgs) -> anyhow::Result<()> {
    let ComponentizeArgs { input, output: file } = args;
    let module = fs::read(input).with_context(|| format!("cannot read {}", input.display())).or_exit(Reason::Usage)?;
    let component = skysail_componentize::component(&module)
        .with_context(|| format!("cannot make a component of {}", input.display()))
        .or_exit(Reason::Refused)?;
    write_file(file, &component).with_context(|| format!("cannot write {}", file.display()))?;
    output::print(format!("{}: {} bytes\n", output::plain(&file.to_string_lossy()), component.len()).as_bytes())
}
