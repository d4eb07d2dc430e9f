//! The provider of the simulated cloud, as operators would configure it.

/// A provider file for a simulated cloud at this URL. It expects the component as `provider.wasm`
/// and the bearer token as `token` beside it.
#[must_use]
pub fn provider_file(url: &str) -> String {
    format!(
        "apiVersion: skysail.dev/v1alpha1\n\
         kind: Provider\n\
         metadata: {{name: sim}}\n\
         spec:\n\
         \x20 default: true\n\
         \x20 source: {{file: provider.wasm}}\n\
         \x20 loadBalancerCidrs: [127.0.0.0/8]\n\
         \x20 nodeCidrs: [127.0.0.0/8]\n\
         \x20 config: |\n\
         \x20   [Global]\n\
         \x20   endpoint = {url}\n\
         \x20 egress:\n\
         \x20   rules: [{{origins: [\"{url}\"]}}]\n\
         \x20   allowCidrs: [127.0.0.1/32]\n\
         \x20 credentials:\n\
         \x20   api: {{origins: [\"{url}\"], bearer: {{file: token}}}}\n"
    )
}
