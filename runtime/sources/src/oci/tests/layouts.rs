//! Tests with manifests of other tools; `layouts/README.md` has the origin of each file.

use expect_test::expect;

use super::{
    pull, refused,
    server::{Server, manifest},
};
use crate::Digest;

/// The smallest possible component, which the recorded manifests refer to.
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

/// Names of tools and their manifests.
const LAYOUTS: &[(&str, &str)] = &[
    ("wkg", include_str!("layouts/wkg.json")),
    ("oras-python", include_str!("layouts/oras-python.json")),
    ("oras", include_str!("layouts/oras.json")),
    ("kwctl", include_str!("layouts/kwctl.json")),
    ("spin", include_str!("layouts/spin.json")),
    ("wasm-to-oci", include_str!("layouts/wasm-to-oci.json")),
    ("istio", include_str!("layouts/istio.json")),
];

#[tokio::test]
async fn the_layout_of_each_tool_is_read() {
    let server = Server::start().await;
    let component = server.blob(COMPONENT);
    // Further blobs: a config, and a static file of Spin.
    server.blob("{}");
    server.blob("\n");
    for (tool, manifest) in LAYOUTS {
        server.manifest(tool, *manifest);
        let pulled = pull(&server, &format!(":{tool}")).await.unwrap_or_else(|failure| panic!("{tool}: {failure}"));
        assert_eq!((pulled.digest, &pulled.bytes[..]), (component, COMPONENT), "{tool}");
    }
}

#[tokio::test]
async fn an_index_of_several_manifests_is_resolved_to_the_one_for_webassembly() {
    let server = Server::start().await;
    let component = server.blob(COMPONENT);
    server.manifest("wkg", include_str!("layouts/wkg.json"));
    for (tag, index) in
        [("oras", include_str!("layouts/index.json")), ("buildx", include_str!("layouts/buildx-index.json"))]
    {
        server.manifest(tag, index);
        let pulled = pull(&server, &format!(":{tag}")).await.unwrap_or_else(|failure| panic!("{tag}: {failure}"));
        assert_eq!(pulled.digest, component, "{tag}");
    }
}

#[tokio::test]
async fn a_file_pushed_without_its_type_is_refused_with_the_type_to_write() {
    let server = Server::start().await;
    let component = server.blob(COMPONENT);
    // What oras takes for a file without a given type.
    server.manifest("plain", manifest(&[("application/vnd.oci.image.layer.v1.tar", component, COMPONENT.len())]));
    refused(&server, ":plain", expect!["ArtifactLayout: the artifact holds no component among its layers (application/vnd.oci.image.layer.v1.tar); push the .wasm file with skysail push, wkg or oras as application/wasm"]).await;
    let digest = Digest::of(COMPONENT);
    assert!(!server.asked().iter().any(|line| line.contains(&digest.to_string())), "it was fetched");
}
