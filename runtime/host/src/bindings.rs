//! Generated Rust bindings for the contract in `wit/`: the types, one trait for each import, one
//! set of indices for each exported interface.
//!
//! The world `complete-provider` of the package `skysail:legacy` has the interfaces of both
//! packages. The host never instantiates the world as a whole: the `GuestIndices` of each interface
//! tell whether a component exports the interface. Only `imports` and `convert` use these types.

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

/// Version of `skysail:provider` that this host supports.
pub const CONTRACT_VERSION: &str = "0.1.0";

/// The package of the interfaces that only tools call, without its version.
pub(crate) const LEGACY_PACKAGE: &str = "skysail:legacy";
