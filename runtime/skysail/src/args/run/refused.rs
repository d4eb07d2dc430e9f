//! Upstream's flags that this program does not honour: each is known, so that its error says why
//! and what to do instead.
//!
//! They are judged while they are parsed. A value that asks for what happens anyway is taken.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// A flag of upstream that asks for what is not here.
pub(super) struct Refused {
    pub(super) name: &'static str,
    /// Values that ask for what happens anyway.
    pub(super) taken: &'static [&'static str],
    /// Whether upstream takes it without a value.
    switch: bool,
    /// Why other values are refused, and what to do instead.
    pub(super) why: &'static str,
}

const fn flag(name: &'static str, taken: &'static [&'static str], why: &'static str) -> Refused {
    Refused { name, taken, switch: false, why }
}

const fn switch(name: &'static str, taken: &'static [&'static str], why: &'static str) -> Refused {
    Refused { name, taken, switch: true, why }
}

const OFF: &[&str] = &["false", "0", "f", "F", "FALSE", "False"];
const ON_OR_OFF: &[&str] = &["true", "1", "t", "T", "TRUE", "True", "false", "0", "f", "F", "FALSE", "False"];
const NO_SPLIT: &str = "log lines go to standard error, each at once; let whatever collects them sort them by level";

/// All of them. `deploy/docs/flags.md` has the same table for people.
pub(super) const FLAGS: &[Refused] = &[
    flag(
        "cloud-provider",
        &["", "external"],
        "providers are not compiled in: --provider-file names them; leave this flag out, or say --cloud-provider=external",
    ),
    flag(
        "cloud-config",
        &[""],
        "each provider has its own cloud-config: put the file's text into spec.config of the provider file",
    ),
    switch(
        "allow-untagged-cloud",
        OFF,
        "whether a cluster without an ID is taken is for the provider to say, in its cloud-config; leave this flag out",
    ),
    switch(
        "allocate-node-cidrs",
        OFF,
        "node IPAM is not part of this program: let kube-controller-manager do it (--allocate-node-cidrs there), or the CNI",
    ),
    flag(
        "cidr-allocator-type",
        &["RangeAllocator"],
        "node IPAM is not part of this program: let kube-controller-manager do it, or the CNI",
    ),
    flag("external-cloud-volume-plugin", &[""], "volumes are the business of CSI drivers; leave this flag out"),
    flag(
        "node-sync-period",
        &["0", "0s"],
        "it has had no effect upstream for years; --node-monitor-period and --node-status-update-frequency are what you look for",
    ),
    flag(
        "min-resync-period",
        &["12h", "12h0m0s"],
        "nothing is replayed from a cache here, so there is no period to set; leave this flag out",
    ),
    flag(
        "kube-api-content-type",
        &["", "application/json"],
        "this program speaks JSON to the API server, whose answers are the same; leave this flag out",
    ),
    switch("contention-profiling", OFF, "there are no Go profiles to serve; leave this flag out"),
    switch(
        "permit-address-sharing",
        ON_OR_OFF,
        "the port is always taken with SO_REUSEADDR, as every program in Go does; leave this flag out",
    ),
    flag("vmodule", &[""], "levels by module are set with --log: --log=info,skysail_host=debug"),
    flag("log-flush-frequency", &["5s", "0", "0s"], "each line is written at once; leave this flag out"),
    switch("log-text-split-stream", OFF, NO_SPLIT),
    flag("log-text-info-buffer-size", &["0"], NO_SPLIT),
    switch("log-json-split-stream", OFF, NO_SPLIT),
    flag("log-json-info-buffer-size", &["0"], NO_SPLIT),
];

impl Refused {
    fn arg(&'static self) -> Arg {
        let arg = Arg::new(self.name).long(self.name).hide(true).action(ArgAction::Set).help(self.why);
        let arg = arg.value_parser(|text: &str| self.judge(text));
        if self.switch { arg.num_args(0..=1).require_equals(true).default_missing_value("true") } else { arg }
    }

    fn judge(&self, text: &str) -> Result<String, String> {
        if self.taken.contains(&text) { Ok(text.to_owned()) } else { Err(self.why.to_owned()) }
    }
}

/// Holds nothing: what is refused ends the program, what is taken happens anyway.
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
        command.args(FLAGS.iter().map(Refused::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
