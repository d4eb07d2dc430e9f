//! Turns a core module into a component, and makes what the SDKs need: the bindings of the Go SDK,
//! an overlay of Go's standard library, and the types of the JavaScript SDK.

mod borrows;
mod component;
mod go_bindings;
mod go_overlay;
mod js_types;
mod names;

pub use self::{component::component, go_bindings::go_bindings, go_overlay::go_overlay, js_types::js_types};

/// The contract: the name and the text of each file.
const CONTRACT: [(&str, &str); 9] = [
    ("host.wit", include_str!("../../../wit/v0.1.0/host.wit")),
    ("http.wit", include_str!("../../../wit/v0.1.0/http.wit")),
    ("identity.wit", include_str!("../../../wit/v0.1.0/identity.wit")),
    ("instances.wit", include_str!("../../../wit/v0.1.0/instances.wit")),
    ("load-balancers.wit", include_str!("../../../wit/v0.1.0/load-balancers.wit")),
    ("persistent-volume-labels.wit", include_str!("../../../wit/v0.1.0/persistent-volume-labels.wit")),
    ("routes.wit", include_str!("../../../wit/v0.1.0/routes.wit")),
    ("types.wit", include_str!("../../../wit/v0.1.0/types.wit")),
    ("world.wit", include_str!("../../../wit/v0.1.0/world.wit")),
];

/// The contract's package and version, as the names of a component's exports have them.
const PACKAGE: &str = "skysail:provider";
const VERSION: &str = "0.1.0";
