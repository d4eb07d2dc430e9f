//! The search that every test of a manager ends with.

use anyhow::{Result, ensure};
use skysail_test_e2e::{api_server::ApiServer, leaks, objects::create_service};

#[tokio::test]
async fn a_value_of_a_credential_is_found_in_an_object() -> Result<()> {
    let server = ApiServer::start()?;
    create_service(&server.client().await?, "web", 8080, 30_080).await?;
    leaks::watch("s3cret-in-an-annotation");
    ensure!(leaks::in_objects(&server.kubeconfig()).is_empty(), "found before the value was written");
    server.kubectl(&["annotate", "service", "web", "why=it is s3cret-in-an-annotation"])?;
    let found = leaks::in_objects(&server.kubeconfig());
    ensure!(found == ["services"], "found in {found:?}");
    Ok(())
}
