//! Looks up the machines of many nodes in pages (provider).

use skysail_provider::{Call, Code, Detail, Error, Instance, NODES_PER_PAGE, NodeSet, Result};

use crate::context::Context;

/// One result for each node, in the order of the set; where a page failed as a whole, its error for each of its nodes.
pub(crate) async fn describe(
    context: &Context,
    provider: usize,
    nodes: &NodeSet,
    detail: Detail,
) -> Vec<Result<Instance>> {
    let entry = context.provider(provider);
    // Many nodes are no one object.
    let call = Call { object: None, events: Some(context.reporter.sink(&entry.name)) };
    let mut results = Vec::with_capacity(nodes.len());
    for page in nodes.pages(NODES_PER_PAGE) {
        // Asked anew for each page: a swap may come in between.
        let answer = match entry.provider.instances() {
            Some(instances) => instances.describe(&call, &page, detail).await,
            None => Err(Error::new(Code::NotServing, "the provider has no instances, or no release of it serves")),
        };
        match answer {
            Ok(page_results) if page_results.len() == page.len() => results.extend(page_results),
            Ok(page_results) => {
                let text = format!("the provider gave {} results for {} nodes", page_results.len(), page.len());
                results.extend((0..page.len()).map(|_| Err(Error::new(Code::Internal, &text))));
            }
            // NotFound of the whole call is no word about any one machine: it must never read as "gone".
            Err(error) if error.code == Code::NotFound => {
                let error = Error::new(Code::Internal, format!("the look-up itself was not found: {}", error.message));
                results.extend((0..page.len()).map(|_| Err(error.clone())));
            }
            Err(error) => results.extend((0..page.len()).map(|_| Err(error.clone()))),
        }
    }
    results
}
