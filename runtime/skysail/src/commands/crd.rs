//! `skysail crd`: the `CustomResourceDefinition` of the resource `Provider`.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use semver::Version;
use tokio::time::{Instant, sleep};

use crate::{
    args::CrdArgs,
    cluster::Cluster,
    custom_resource::{self, VERSION_ANNOTATION},
    exit::{MarkExt as _, Reason},
    output,
};

/// The field manager of the definition. The fields of other managers of the definition, such as
/// Helm's, become this one's.
const FIELD_MANAGER: &str = "skysail-crd";
/// How long the API server may take until it serves a new definition: usually a second.
const ESTABLISHED_WITHIN: Duration = Duration::from_mins(1);
/// Pause between two looks at the definition.
const PAUSE: Duration = Duration::from_millis(500);

/// Prints the definition, or applies it to the cluster.
///
/// # Errors
/// The definition cannot be written, or the cluster cannot be reached, refuses the definition or
/// has a newer one.
pub(crate) fn run(args: &CrdArgs) -> anyhow::Result<()> {
    if !args.apply {
        return output::print(custom_resource::yaml()?.as_bytes());
    }
    let outcome =
        tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(apply(args.kubeconfig.as_deref()))?;
    output::print(outcome.as_bytes())
}

/// Applies the definition by server-side apply, and waits until the API server serves it. Returns
/// what kubectl would print.
async fn apply(kubeconfig: Option<&Path>) -> anyhow::Result<String> {
    let cluster = Cluster::of(kubeconfig).await.or_exit(Reason::Usage)?;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client("crd").await.or_exit(Reason::Usage)?);
    let definition = custom_resource::definition()?;
    let name = definition.name_any();
    let read = || async {
        definitions.get_opt(&name).await.context("cannot read the definition").or_exit(Reason::Unreachable)
    };
    if let Some(live) = read().await? {
        refuse_newer(&live, &definition)?;
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    definitions.patch(&name, &params, &Patch::Apply(&definition)).await.context("cannot apply the definition")?;
    let deadline = Instant::now() + ESTABLISHED_WITHIN;
    while !read().await?.as_ref().is_some_and(is_established) {
        if Instant::now() > deadline {
            bail!(
                "customresourcedefinition/{name}: not established within {} s; see its conditions by `kubectl describe crd {name}`",
                ESTABLISHED_WITHIN.as_secs()
            );
        }
        sleep(PAUSE).await;
    }
    Ok(format!("customresourcedefinition.apiextensions.k8s.io/{name} serverside-applied\n"))
}

/// Refuses to replace a definition of a newer program: the API server would drop the fields that
/// only the newer one has from each object that is written.
fn refuse_newer(live: &CustomResourceDefinition, definition: &CustomResourceDefinition) -> anyhow::Result<()> {
    let version =
        |definition: &CustomResourceDefinition| Version::parse(definition.annotations().get(VERSION_ANNOTATION)?).ok();
    match (version(live), version(definition)) {
        (Some(live), Some(ours)) if live > ours => bail!(
            "customresourcedefinition/{}: the cluster has the definition of Skysail {live}, and this is {ours}, which lacks its newer fields; apply the definition with Skysail {live} or newer",
            definition.name_any()
        ),
        // Without an annotation the definition is older than the annotation.
        _ => Ok(()),
    }
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;
    use rstest::rstest;

    use super::refuse_newer;
    use crate::custom_resource::{VERSION_ANNOTATION, definition};

    #[rstest]
    #[case("1.2.3", None, true)]
    #[case("1.2.3", Some("1.2.3"), true)]
    #[case("1.2.3", Some("1.2.2"), true)]
    #[case("1.2.3", Some("1.2.4-rc.1"), false)]
    #[case("1.2.3", Some("2.0.0"), false)]
    #[case("1.2.3", Some("of my own"), true)]
    fn a_definition_of_a_newer_version_is_not_replaced(
        #[case] ours: &str,
        #[case] live: Option<&str>,
        #[case] replaced: bool,
    ) {
        let of_version = |version: Option<&str>| {
            let mut definition = definition().unwrap();
            definition.annotations_mut().remove(VERSION_ANNOTATION);
            definition
                .annotations_mut()
                .extend(version.map(|version| (VERSION_ANNOTATION.to_owned(), version.to_owned())));
            definition
        };
        let outcome = refuse_newer(&of_version(live), &of_version(Some(ours)));
        assert_eq!(outcome.is_ok(), replaced, "{outcome:?}");
    }
}
