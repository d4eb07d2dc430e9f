//! The flag `--controllers`, which selects the controllers that run, by upstream's rules.

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use skysail_controllers::EnabledControllers;

/// The names of a controller, the canonical name first. Each name begins with `-`, as an entry that
/// disables the controller; [`bare`] removes the sign.
struct Controller(&'static [&'static str]);

/// The names are upstream's. The last aliases are earlier names of upstream's controllers, which
/// its leader migration still uses.
const CLOUD_NODE: Controller = Controller(&["-cloud-node-controller", "-cloud-node"]);
const CLOUD_NODE_LIFECYCLE: Controller = Controller(&["-cloud-node-lifecycle-controller", "-cloud-node-lifecycle"]);
const NODE_ROUTE: Controller = Controller(&["-node-route-controller", "-route", "-route-controller"]);
const SERVICE_LB: Controller = Controller(&["-service-lb-controller", "-service", "-service-controller"]);
const CONTROLLERS: [Controller; 4] = [CLOUD_NODE, CLOUD_NODE_LIFECYCLE, NODE_ROUTE, SERVICE_LB];

impl Controller {
    fn name(&self) -> &'static str {
        self.0.first().copied().map_or("", bare)
    }

    fn is_called(&self, name: &str) -> bool {
        self.0.iter().any(|it| bare(it) == name)
    }
}

fn bare(name: &str) -> &str {
    name.strip_prefix('-').unwrap_or(name)
}

/// One entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    All,
    On(&'static str),
    Off(&'static str),
}

/// Which controllers run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Generic flags")]
pub(crate) struct ControllersArgs {
    /// Controllers to run, separated by commas: `NAME` enables a controller, `-NAME` disables it,
    /// `*` enables all controllers that no entry names. The first entry with a name counts.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "*", allow_hyphen_values = true,
        value_parser = entry())]
    controllers: Vec<Entry>,
}

impl ControllersArgs {
    pub(super) fn enabled(&self) -> EnabledControllers {
        EnabledControllers {
            service: self.runs(&SERVICE_LB),
            cloud_node: self.runs(&CLOUD_NODE),
            cloud_node_lifecycle: self.runs(&CLOUD_NODE_LIFECYCLE),
            route: self.runs(&NODE_ROUTE),
        }
    }

    /// As upstream: an entry with the controller's name comes before `*`.
    fn runs(&self, controller: &Controller) -> bool {
        let named = self.controllers.iter().find_map(|entry| match *entry {
            Entry::On(name) if name == controller.name() => Some(true),
            Entry::Off(name) if name == controller.name() => Some(false),
            Entry::All | Entry::On(_) | Entry::Off(_) => None,
        });
        named.unwrap_or_else(|| self.controllers.contains(&Entry::All))
    }
}

/// Parses an entry; completion, help and errors list all possible entries.
fn entry() -> impl TypedValueParser<Value = Entry> {
    // A shell would complete `*` to the names of its files; the help of the flag explains it.
    let all = std::iter::once(PossibleValue::new("*").hide(true));
    let offered = |names: &[&'static str], shown: fn(&'static str) -> &'static str| {
        let mut names = names.iter().copied().map(shown);
        names.next().map(|name| PossibleValue::new(name).aliases(names))
    };
    let on = CONTROLLERS.iter().filter_map(|it| offered(it.0, bare));
    let off = CONTROLLERS.iter().filter_map(|it| offered(it.0, |name| name));
    PossibleValuesParser::new(all.chain(on).chain(off)).try_map(|text| parse(&text))
}

fn parse(text: &str) -> Result<Entry, String> {
    if text == "*" {
        return Ok(Entry::All);
    }
    let known = CONTROLLERS.iter().find(|it| it.is_called(bare(text)));
    let name = known.ok_or_else(|| format!("there is no controller {text:?}"))?.name();
    Ok(if text.starts_with('-') { Entry::Off(name) } else { Entry::On(name) })
}
