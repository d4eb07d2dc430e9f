//! Interface `instances`, in pages.

use skysail_provider::{Detail, Instance};

use super::{
    Call, Guest, Instances, Interface, NodeSet, Result, SandboxedProvider, absent, async_trait, convert, lend,
};
use crate::limits::NODES_PER_PAGE;

#[async_trait]
impl Instances for SandboxedProvider {
    /// Asks in pages of at most [`NODES_PER_PAGE`] nodes, one call each. Where a later page fails, the nodes of it and of the pages after it
    /// have its error, and what was learnt before stays.
    async fn describe(&self, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        if nodes.len() <= NODES_PER_PAGE {
            return self.describe_page(call, nodes.clone(), detail).await;
        }
        let mut all = Vec::with_capacity(nodes.len());
        for page in nodes.pages(NODES_PER_PAGE) {
            match self.describe_page(call, page, detail).await {
                Ok(mut results) => all.append(&mut results),
                Err(error) if all.is_empty() => return Err(error),
                Err(error) => {
                    all.resize_with(nodes.len(), || Err(error.clone()));
                    break;
                }
            }
        }
        Ok(all)
    }
}

impl SandboxedProvider {
    async fn describe_page(&self, call: &Call, nodes: NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        let indices = self.release.exports().instances.as_ref().ok_or_else(|| absent(Interface::Instances))?;
        let asked = nodes.len();
        self.run(
            call,
            "instances.describe",
            |Guest { store, instance, env: _ }| {
                Box::pin(async move {
                    let nodes = lend(store, nodes)?;
                    indices.load(&mut *store, instance)?.call_describe(store, nodes, convert::detail(detail)).await
                })
            },
            |list| convert::result(list, |list| convert::instances(asked, list)),
        )
        .await
    }
}
