//! Upstream's flags that Skysail does not support. Each is known to the parser, so that its error
//! gives the reason and the alternative. A value that asks for what Skysail does anyway is
//! accepted.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// A flag of upstream that Skysail does not support.
pub(super) struct UnsupportedFlag {
    pub(super) name: &'static str,
    /// Values that are accepted, because Skysail behaves like that anyway.
    pub(super) taken: &'static [&'static str],
    /// Whether upstream accepts the flag without a value.
    switch: bool,
    /// Why other values are refused, and what to do instead.
    pub(super) why: &'static str,
}

const fn flag(name: &'static str, taken: &'static [&'static str], why: &'static str) -> UnsupportedFlag {
    UnsupportedFlag { name, taken, switch: false, why }
}

const fn switch(name: &'static str, taken: &'static [&'static str], why: &'static str) -> UnsupportedFlag {
    UnsupportedFlag { name, taken, switch: true, why }
}

const OFF: &[&str] = &["false", "0", "f", "F", "FALSE", "False"];
const ON_OR_OFF: &[&str] = &["true", "1", "t", "T", "TRUE", "True", "false", "0", "f", "F", "FALSE", "False"];
const NO_SPLIT: &str =
    "each log line goes to standard error at once; leave this flag out and let the log collector split lines by level";

/// All unsupported flags. `deploy/docs/flags.md` documents the same flags.
pub(super) const FLAGS: &[UnsupportedFlag] = &[
    flag(
        "cloud-provider",
        &["", "external"],
        "providers are not compiled in; name them with --provider-file and leave this flag out or set it to external",
    ),
    flag(
        "cloud-config",
        &[""],
        "each provider has its own cloud-config; put the text of the file into spec.config of the provider file",
    ),
    switch(
        "allow-untagged-cloud",
        OFF,
        "the provider decides whether a cluster without an ID is accepted; set it in the cloud-config and leave this flag out",
    ),
    switch(
        "allocate-node-cidrs",
        OFF,
        "Skysail has no node IPAM; use --allocate-node-cidrs of kube-controller-manager, or the IPAM of the CNI",
    ),
    flag(
        "cidr-allocator-type",
        &["RangeAllocator"],
        "Skysail has no node IPAM; use the IPAM of kube-controller-manager or of the CNI",
    ),
    flag("external-cloud-volume-plugin", &[""], "CSI drivers manage volumes; leave this flag out"),
    flag(
        "node-sync-period",
        &["0", "0s"],
        "the flag has no effect upstream; use --node-monitor-period and --node-status-update-frequency",
    ),
    flag(
        "min-resync-period",
        &["12h", "12h0m0s"],
        "Skysail does not replay objects from a cache, so there is no resync period; leave this flag out",
    ),
    flag(
        "kube-api-content-type",
        &["", "application/json"],
        "Skysail sends JSON to the API server; leave this flag out",
    ),
    switch("contention-profiling", OFF, "Skysail is not written in Go and has no Go profiles; leave this flag out"),
    switch(
        "permit-address-sharing",
        ON_OR_OFF,
        "the port is always bound with SO_REUSEADDR, as by every program in Go; leave this flag out",
    ),
    flag("vmodule", &[""], "set log levels by module with --log: --log=info,skysail_host=debug"),
    flag("log-flush-frequency", &["5s", "0", "0s"], "each log line is written at once; leave this flag out"),
    switch("log-text-split-stream", OFF, NO_SPLIT),
    flag("log-text-info-buffer-size", &["0"], NO_SPLIT),
    switch("log-json-split-stream", OFF, NO_SPLIT),
    flag("log-json-info-buffer-size", &["0"], NO_SPLIT),
];

impl UnsupportedFlag {
    fn arg(&'static self) -> Arg {
        let arg = Arg::new(self.name).long(self.name).hide(true).action(ArgAction::Set).help(self.why);
        let arg = arg.value_parser(|text: &str| self.judge(text));
        if self.switch { arg.num_args(0..=1).require_equals(true).default_missing_value("true") } else { arg }
    }

    fn judge(&self, text: &str) -> Result<String, String> {
        if self.taken.contains(&text) { Ok(text.to_owned()) } else { Err(self.why.to_owned()) }
    }
}

/// The unsupported flags as a group of clap. It has no fields: no accepted value has an effect.
#[derive(Debug)]
pub(crate) struct RefusedArgs;

impl FromArgMatches for RefusedArgs {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

impl Args for RefusedArgs {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(UnsupportedFlag::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
