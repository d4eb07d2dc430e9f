//! Interface `instances`.

use skysail_provider::{Detail, Instance, NODES_PER_PAGE};

use super::{
    Call, Code, Error, Guest, Instances, Interface, NodeSet, Result, SandboxedProvider, absent, async_trait, convert,
    json, lend,
};

#[async_trait]
impl Instances for SandboxedProvider {
    async fn describe(&self, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        let indices = self.release.exports().instances.as_ref().ok_or_else(|| absent(Interface::Instances))?;
        let (asked, lent) = (nodes.len(), nodes.clone());
        if asked > NODES_PER_PAGE {
            let text = format!(
                "instances.describe was called with {asked} nodes; use pages of at most {NODES_PER_PAGE} nodes"
            );
            return Err(Error::new(Code::Invalid, text));
        }
        self.run(
            call,
            ("instances.describe", &|| json!({"nodes": nodes, "detail": detail})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move {
                    let nodes = lend(store, lent)?;
                    indices.load(&mut *store, instance)?.call_describe(store, nodes, convert::detail(detail)).await
                })
            },
            |list| convert::result(list, |list| convert::instances(asked, list)),
        )
        .await
    }
}
