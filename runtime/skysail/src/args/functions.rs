//! The list of functions in `skysail call --help`. A test of `commands/call` compares the
//! list with the contract.

use std::ffi::OsStr;

use clap::{
    Arg, Command,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};

/// Accepts any text, so that `functions` reports the error; a shell completes the functions of the
/// contract.
#[derive(Clone)]
pub(crate) struct FunctionName;

impl TypedValueParser for FunctionName {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(function_names().map(PossibleValue::new)))
    }
}

/// `<interface>.<function>` of each line of [`HELP`] that has one.
pub(crate) fn function_names() -> impl Iterator<Item = &'static str> {
    let names = HELP.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| name.contains('.') && name.starts_with(|c: char| c.is_ascii_lowercase()))
}

pub(crate) const HELP: &str = "\
Functions and their arguments (--json):
  identity.describe               {}
  identity.check-config           {\"text\": \"...\"}
  identity.origins                {\"text\": \"...\"}
  load-balancers.name             {\"service\": SERVICE}
  load-balancers.get              {\"service\": SERVICE}
  load-balancers.ensure           {\"service\": SERVICE, \"nodes\": [NODE, ...]}
  load-balancers.update           {\"service\": SERVICE, \"nodes\": [NODE, ...]}
  load-balancers.ensure-deleted   {\"service\": SERVICE}
  load-balancer-inventory.list    {}
  load-balancer-inventory.delete  {\"name\": \"...\", \"service\": SERVICE-ID}
  instances.describe              {\"nodes\": [NODE, ...], \"detail\": DETAIL}
  routes.list                     {}
  routes.create                   {\"routes\": [NEW-ROUTE, ...]}
  routes.delete                   {\"routes\": [ROUTE, ...]}
  zones.current                   {}
  zones.by-provider-id            {\"providerId\": \"...\"}
  zones.by-node-name              {\"node\": \"...\"}
  clusters.list                   {}
  clusters.master                 {}
  node-legacy.add-ssh-key-to-all-instances  {\"user\": \"...\", \"key\": \"...\"}
  node-legacy.current-node-name   {\"hostname\": \"...\"}
  node-legacy.scrub-dns           {\"nameservers\": [...], \"searches\": [...]}
  persistent-volume-labels.labels {\"volume\": VOLUME}

  SERVICE, NODE, VOLUME  objects as `kubectl get -o json` prints them
  NEW-ROUTE      {\"nameHint\": \"...\", \"node\": \"node-1\", \"providerId\": \"...\",
                 \"destinationCidr\": \"10.0.1.0/24\"}
  ROUTE          an entry of the result of routes.list
  DETAIL         \"metadata\", the default, or \"state\"
  SERVICE-ID     [\"NAMESPACE\", \"NAME\", \"UID\"] as listed, or null

The functions of load-balancers, load-balancer-inventory, routes and
persistent-volume-labels, and clusters.master, also take \"cluster\", the name
of the cluster; the default is \"kubernetes\".
Without \"text\", identity.check-config and identity.origins take the
cloud-config of the call.

The functions of identity need no cloud-config. For all others the component
has to accept the cloud-config. The result goes to standard output as JSON, the
cost of the call to standard error.

Examples:
  skysail call provider.wasm identity.describe
  kubectl get service web -o json | jq '{service: .}' |
    skysail call provider.wasm load-balancers.get --json - \\
      --provider-file providers.yaml";
