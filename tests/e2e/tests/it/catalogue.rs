//! The page `deploy/docs/catalogue.md` against the components and the example Providers.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use skysail_test_e2e::workspace::{component, root};

use crate::documents::page;

const PAGE: &str = "deploy/docs/catalogue.md";
/// By how much a size on the page may differ from the component's, in percent: a new version of
/// the compiler changes it by a few.
const SIZE_PERCENT: u64 = 10;

/// The rows of the tables by provider: cells by the name of their column.
fn rows(page: &str) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
    let (mut found, mut header) = (BTreeMap::new(), Vec::new());
    for line in page.lines() {
        let Some(cells) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else { continue };
        let cells: Vec<&str> = cells.split(" | ").collect();
        if cells.first() == Some(&"provider") {
            header = cells;
            continue;
        }
        let name = cells.first().and_then(|cell| cell.strip_prefix('[')?.split_once("](../../guests/"));
        let (name, _) = name.with_context(|| format!("{PAGE}: no link to a folder of guests in {line}"))?;
        ensure!(cells.len() == header.len(), "{PAGE}: {line} has other columns than {header:?}");
        let cells = header.iter().zip(cells).map(|(column, cell)| ((*column).to_owned(), cell.to_owned()));
        found.insert(name.to_owned(), cells.collect());
    }
    Ok(found)
}

#[test]
fn the_catalogue_has_each_provider_with_its_interfaces_and_its_size() -> Result<()> {
    let rows = rows(&page(PAGE)?)?;
    for entry in fs::read_dir(root().join("guests"))? {
        let folder = entry?;
        let name = folder.file_name().to_string_lossy().into_owned();
        let listed = rows.contains_key(&name);
        ensure!(listed || !folder.path().join("README.md").exists(), "{PAGE} lacks the provider {name}");
    }
    for (name, row) in &rows {
        is_as_built(name, row).with_context(|| format!("{PAGE}: {name}"))?;
    }
    Ok(())
}

fn is_as_built(name: &str, row: &BTreeMap<String, String>) -> Result<()> {
    let cell = |column: &str| row.get(column).with_context(|| format!("no column {column}"));
    let file = component(name)?;
    let bytes = fs::read(&file)?;
    for (column, interface) in [("load balancers", "load-balancers"), ("routes", "routes")] {
        // A component may only export these interfaces, so their names stand for exports. `skysail
        // inspect` says the same after it has compiled the component.
        let name = format!("skysail:provider/{interface}@");
        let exported = bytes.windows(name.len()).any(|window| window == name.as_bytes());
        ensure!(exported == (cell(column)? != "no"), "{column}: {}, exported: {exported}", cell(column)?);
    }
    let said: u64 = cell("size")?.strip_suffix(" KiB").context("the size has another unit than KiB")?.parse()?;
    let built = u64::try_from(bytes.len())? / 1024;
    ensure!(said.abs_diff(built) * 100 <= built * SIZE_PERCENT, "the component has {built} KiB, the page says {said}");
    let example = root().join(format!("guests/{name}/provider.yaml"));
    if example.exists() {
        let object: Value = serde_saphyr::from_str(&fs::read_to_string(example)?)?;
        let credentials = object.pointer("/spec/credentials").and_then(Value::as_object).context("no credentials")?;
        let scheme = cell("credential")?.trim_matches('`');
        let has = credentials.values().all(|credential| credential.get(scheme).is_some());
        ensure!(has, "the credentials of the example are {credentials:?}, and the page says {scheme}");
    }
    Ok(())
}
