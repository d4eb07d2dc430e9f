//! A component that is too large for one ConfigMap: the recipe of `deploy/docs/sources.md`, with
//! the tools that it names.

use super::*;

/// As the document has it: packed, cut, and each part with the digest of the whole.
const RECIPE: &str = r#"set -e
cd "$1"
digest=sha256:$(sha256sum <provider.wasm | cut -d' ' -f1)
gzip --force --keep provider.wasm
split --number=2 --numeric-suffixes=1 --suffix-length=1 provider.wasm.gz provider-
for part in provider-1 provider-2; do
  kubectl -n default create configmap $part --from-file=provider.wasm=$part --dry-run=client -o yaml |
    kubectl annotate --local -f - skysail.dev/component-digest=$digest -o yaml |
    kubectl --kubeconfig "$2" apply --server-side -f -
done
"#;

pub(super) async fn in_parts(world: &World, wasm: &Path) -> Result<()> {
    let kubeconfig = world.server.kubeconfig().display().to_string();
    let folder = world.folder.path().display().to_string();
    let write = |mark| -> Result<String> {
        let file = world.marked(wasm, mark)?;
        run("sh", &["-c", RECIPE, "sh", &folder, &kubeconfig])?;
        digest_of(&file)
    };
    let first = write(5)?;
    let names = json!({ "namespace": "default", "name": null, "names": ["provider-1", "provider-2"] });
    world.patch(&json!({ "spec": { "source": { "configMap": names } } }))?;
    world.until_serving(&first).await?;
    let second = write(6)?;
    let status = world.until_serving(&second).await?;
    ensure!(at(&status, "/active/origin").contains("provider-1"), "{status:#}");
    world.wait("Ready").map(drop)
}
