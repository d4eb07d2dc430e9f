//! The flags of `skysail test`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueHint};

use super::{OutputFormat, ProviderOfCallArgs, QuietLogArgs, SymbolsArgs, object_name, parse_duration};

const HELP: &str = "\
With --recordings, each recorded call is one case: the component gets the call
as with `skysail replay`, and has to send the same requests and return the same
answer. No request leaves the process.

With --provider-file, the component is tested against its cloud. Each case is a
requirement of the contract on one interface that the component exports:

  instances                known machines are described, unknown ones are
                           not found, a failed request makes none of them gone
  load-balancers           created once, changed completely, deleted completely,
                           apart from those of other Services and clusters
  load-balancer-inventory  lists what the cluster has, and deletes it
  routes                   created once, listed, deleted

Then requests of `ensure` fail, one after the other: 429 with Retry-After, 500,
503, a connection that is cut before and after the cloud carried out the
request. Skysail makes these failures; the cloud sees none of them. `ensure` has
to return the right error, and the next `ensure` has to complete the work.

The command knows nothing of the cloud's objects. It judges the answers of the
component and the requests that the component sends. A request is a read if its
method is GET, HEAD or OPTIONS, if the provider file says so
(egress.rules[].reads), or if --reads names it. What the cloud keeps although
no answer of the component shows it, the command cannot find.

The machines of --node or --nodes have to exist; they are not changed. The load
balancers and the routes of the run are deleted at its end, also after a failure
and after Ctrl-C; the report names those that could not be deleted. Without
--yes the command asks before it writes to the cloud.

Exit code: 0 if no case failed, 1 if a case failed or something is left in the
cloud, 2 for wrong input, 3 if the component is refused.

Examples:
  skysail test provider.wasm --recordings recordings
  skysail test --provider-file providers.yaml \\
    --node node-1=cloud://17,node-2=cloud://18
  kubectl get nodes -o yaml > nodes.yaml
  skysail test provider.wasm --provider-file providers.yaml \\
    --nodes nodes.yaml --service service.yaml --yes --junit results.xml
  skysail test provider.wasm --provider-file providers.yaml \\
    --nodes nodes.yaml --reads 'POST /graphql' --fault-requests 0";

/// `skysail test`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct TestArgs {
    /// File of the component. Default: the file in `spec.source` of the provider file.
    #[arg(value_name = "COMPONENT", value_hint = ValueHint::FilePath, required_unless_present = "provider_file")]
    pub(crate) component: Option<PathBuf>,
    /// Recordings, or folders with recordings: each recorded call is one case.
    #[arg(long, value_name = "FOLDER|FILE", num_args = 1.., value_hint = ValueHint::AnyPath)]
    pub(crate) recordings: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) provider: ProviderOfCallArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    /// A machine that exists in the cloud, as the node that it would be: the node's name and
    /// `spec.providerID`. Give two or more, separated by commas or with the flag for each.
    #[arg(long, value_name = "NAME=PROVIDER-ID", value_delimiter = ',', value_parser = parse_node, requires = "provider_file")]
    pub(crate) node: Vec<(String, String)>,
    /// The same as a file, in JSON or YAML: what `kubectl get nodes -o yaml` prints.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "provider_file", conflicts_with = "node")]
    pub(crate) nodes: Option<PathBuf>,
    /// A Service of type LoadBalancer, in JSON or YAML, with the annotations and ports that the
    /// cloud requires; the Services of the cases are copies with other names and UIDs. Default: a
    /// Service with the TCP ports 80 and 443.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "provider_file")]
    pub(crate) service: Option<PathBuf>,
    /// Requests that only read although their method is not GET, HEAD or OPTIONS: method and path,
    /// or the beginning of a path and `*`. Give the flag once for each.
    #[arg(long, value_name = "METHOD PATH", value_parser = parse_read, requires = "provider_file")]
    pub(crate) reads: Vec<ReadRequest>,
    /// Name of the cluster of the cases. It keeps what the run creates apart from that of other
    /// clusters in the cloud; the second cluster of some cases has `-2` at the end.
    #[arg(long, value_name = "NAME", default_value = "skysail-test", value_parser = object_name)]
    pub(crate) cluster_name: String,
    /// Destinations of the routes that are created, one for each of the first two machines.
    #[arg(long, value_name = "CIDR", value_delimiter = ',', default_value = "198.18.1.0/24,198.18.2.0/24")]
    pub(crate) route_cidrs: Vec<String>,
    /// How many requests of `ensure` fail for each kind of failure. Each costs the creation and the
    /// deletion of a load balancer. 0 tests no failures of load balancers; at most 100.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) fault_requests: u32,
    /// The longest time until the component must have finished one step, while it returns
    /// `retry-after`.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    pub(crate) wait: Duration,
    /// Write to the cloud without asking.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Also write the report to this file, as XML of `JUnit`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) junit: Option<PathBuf>,
    /// Output format.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) log: QuietLogArgs,
}

/// A request that only reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    method: String,
    path: String,
    is_prefix: bool,
}

impl ReadRequest {
    /// Whether this is such a request; `path` has no query.
    pub(crate) fn covers(&self, method: &str, path: &str) -> bool {
        self.method == method && if self.is_prefix { path.starts_with(&self.path) } else { self.path == path }
    }
}

fn parse_read(text: &str) -> Result<ReadRequest, String> {
    let parts = text.split_once(' ').map(|(method, path)| (method, path.trim()));
    let is_method = |method: &str| !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let Some((method, path)) = parts.filter(|(method, path)| is_method(method) && path.starts_with('/')) else {
        return Err("it is not a method and a path; write 'POST /graphql', or 'POST /v1/search/*'".to_owned());
    };
    let (path, is_prefix) = path.strip_suffix('*').map_or((path, false), |path| (path, true));
    Ok(ReadRequest { method: method.to_owned(), path: path.to_owned(), is_prefix })
}

fn parse_node(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, id)| !name.is_empty() && !id.is_empty());
    let (name, id) = parts.ok_or("it is not a name and a provider ID; write node-1=cloud://17")?;
    Ok((name.to_owned(), id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{parse_node, parse_read};

    #[test]
    fn a_request_that_only_reads_is_a_method_and_a_path_or_the_beginning_of_one() {
        let read = parse_read("POST /graphql").unwrap();
        assert!(
            read.covers("POST", "/graphql") && !read.covers("POST", "/graphql/2") && !read.covers("PUT", "/graphql")
        );
        let read = parse_read("POST /v1/search/*").unwrap();
        assert!(read.covers("POST", "/v1/search/machines") && !read.covers("POST", "/v1/searches"));
        for wrong in ["/graphql", "POST", "POST graphql", "post /graphql", ""] {
            assert!(parse_read(wrong).unwrap_err().contains("write 'POST /graphql'"), "{wrong}");
        }
    }

    #[test]
    fn a_node_is_a_name_and_a_provider_id_which_may_contain_the_separator() {
        assert_eq!(parse_node("a=x:///r?id=7").unwrap(), ("a".to_owned(), "x:///r?id=7".to_owned()));
        for wrong in ["node-1", "=x://1", "a="] {
            assert!(parse_node(wrong).unwrap_err().contains("write node-1=cloud://17"), "{wrong}");
        }
    }
}
