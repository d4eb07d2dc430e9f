//! Rust for the contract in `wit/`, generated: the types, one trait per import, one set of indices
//! per exported interface.
//!
//! The world is the complete one; which of its exports a component has is found out with the
//! `GuestIndices` of each interface, never by instantiating the world as a whole. Nothing here is
//! written by hand and nothing outside `imports` and `convert` reads these types.

wasmtime::component::bindgen!({
    path: "../../wit/v0.1.0",
    world: "complete-provider",
    imports: {
        "skysail:provider/http.send": async | trappable,
        "skysail:provider/http.send-all": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: { "skysail:provider/types.node-set": skysail_provider::NodeSet },
});
