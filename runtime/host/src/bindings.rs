//! Generated Rust bindings for the contract in `wit/`: the types, one trait for each import, one
//! set of indices for each exported interface.
//!
//! The world is `complete-provider` of `skysail:legacy`, which has all interfaces, but it is never
//! instantiated as a whole: the `GuestIndices` of each interface show which interfaces a component
//! exports. Only `imports` and `convert` use these types.

wasmtime::component::bindgen!({
    path: ["../../wit/v0.1.0", "../../wit/legacy-v0.1.0"],
    world: "skysail:legacy/complete-provider@0.1.0",
    imports: {
        "skysail:provider/http.send": async | trappable,
        "skysail:provider/http.send-all": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: { "skysail:provider/types.node-set": skysail_provider::NodeSet },
});

/// The package of the contract, without its version.
pub(crate) const PACKAGE: &str = "skysail:provider";

/// The package of the interfaces that only tools call, without its version.
pub(crate) const LEGACY_PACKAGE: &str = "skysail:legacy";
