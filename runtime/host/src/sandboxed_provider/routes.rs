//! Interface `routes`.

use super::{
    Call, Guest, Interface, NewRoute, Result, Route, Routes, SandboxedProvider, absent, async_trait, convert, json,
};
use crate::bindings::exports::skysail::provider::routes::GuestIndices;

impl SandboxedProvider {
    fn route_indices(&self) -> Result<&GuestIndices> {
        self.release.exports().routes.as_ref().ok_or_else(|| absent(Interface::Routes))
    }
}

#[async_trait]
impl Routes for SandboxedProvider {
    async fn list(&self, call: &Call, cluster: &str) -> Result<Vec<Route>> {
        let indices = self.route_indices()?;
        self.run(
            call,
            ("routes.list", &|| json!({"cluster": cluster})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move { indices.load(&mut *store, instance)?.call_list(store, cluster).await })
            },
            |list| convert::result(list, convert::routes),
        )
        .await
    }

    async fn create(&self, call: &Call, cluster: &str, routes: &[NewRoute]) -> Result<Vec<Result<()>>> {
        let indices = self.route_indices()?;
        let asked = routes.len();
        let given: Vec<_> = routes.iter().map(convert::new_route_to_guest).collect();
        self.run(
            call,
            ("routes.create", &|| json!({"cluster": cluster, "routes": routes})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move { indices.load(&mut *store, instance)?.call_create(store, cluster, &given).await })
            },
            |list| convert::result(list, |list| convert::results(asked, list, Ok)),
        )
        .await
    }

    async fn delete(&self, call: &Call, cluster: &str, routes: &[Route]) -> Result<Vec<Result<()>>> {
        let indices = self.route_indices()?;
        let asked = routes.len();
        let given: Vec<_> = routes.iter().map(convert::route_to_guest).collect();
        self.run(
            call,
            ("routes.delete", &|| json!({"cluster": cluster, "routes": routes})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move { indices.load(&mut *store, instance)?.call_delete(store, cluster, &given).await })
            },
            |list| convert::result(list, |list| convert::results(asked, list, Ok)),
        )
        .await
    }
}
