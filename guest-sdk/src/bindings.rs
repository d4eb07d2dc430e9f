//! The output of `wit-bindgen` for the contract, once for all guests: the imports, and one export
//! macro for each interface.
//!
//! Each interface has a separate world, so that a component exports what its author implements and
//! nothing else. All of them share the types of [`imports`], except the resource `node-set`, which
//! is [`NodeSet`](crate::NodeSet). Nothing here is written by hand except the list of worlds;
//! guests see it through the crate root.

/// The host's side: types and functions that a guest may call.
pub mod imports {
    wit_bindgen::generate!({
        path: "../wit/v0.1.0",
        world: "skysail:provider/imports@0.1.0",
        generate_unused_types: true,
        additional_derives: [PartialEq],
    });
}

/// The interface `identity`.
pub mod identity {
    wit_bindgen::generate!({
        path: "../wit/v0.1.0",
        inline: "package skysail:guest-identity; world identity { export skysail:provider/identity@0.1.0; }",
        world: "skysail:guest-identity/identity",
        with: { "skysail:provider/types@0.1.0": crate::bindings::imports::skysail::provider::types },
        generate_all,
        generate_unused_types: true,
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export",
    });
    pub use self::exports::skysail::provider::identity::*;
}

/// The interface `load-balancers`.
pub mod load_balancers {
    wit_bindgen::generate!({
        path: "../wit/v0.1.0",
        inline: "package skysail:guest-load-balancers; world load-balancers { export skysail:provider/load-balancers@0.1.0; }",
        world: "skysail:guest-load-balancers/load-balancers",
        with: {
            "skysail:provider/types@0.1.0": crate::bindings::imports::skysail::provider::types,
            "skysail:provider/types@0.1.0/node-set": crate::nodes::NodeSet,
        },
        generate_all,
        generate_unused_types: true,
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export",
    });
    pub use self::exports::skysail::provider::load_balancers::*;
}

/// The interface `load-balancer-inventory`.
pub mod load_balancer_inventory {
    wit_bindgen::generate!({
        path: "../wit/v0.1.0",
        inline: "package skysail:guest-load-balancer-inventory; world load-balancer-inventory { export skysail:provider/load-balancer-inventory@0.1.0; }",
        world: "skysail:guest-load-balancer-inventory/load-balancer-inventory",
        with: { "skysail:provider/types@0.1.0": crate::bindings::imports::skysail::provider::types },
        generate_all,
        generate_unused_types: true,
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export",
    });
    pub use self::exports::skysail::provider::load_balancer_inventory::*;
}

/// The interface `instances`.
pub mod instances {
    wit_bindgen::generate!({
        path: "../wit/v0.1.0",
        inline: "package skysail:guest-instances; world instances { export skysail:provider/instances@0.1.0; }",
        world: "skysail:guest-instances/instances",
        with: {
            "skysail:provider/types@0.1.0": crate::bindings::imports::skysail::provider::types,
            "skysail:provider/types@0.1.0/node-set": crate::nodes::NodeSet,
        },
        generate_all,
        generate_unused_types: true,
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export",
    });
    pub use self::exports::skysail::provider::instances::*;
}

/// The interface `routes`.
pub mod routes {
    wit_bindgen::generate!({
        path: "../wit/v0.1.0",
        inline: "package skysail:guest-routes; world routes { export skysail:provider/routes@0.1.0; }",
        world: "skysail:guest-routes/routes",
        with: { "skysail:provider/types@0.1.0": crate::bindings::imports::skysail::provider::types },
        generate_all,
        generate_unused_types: true,
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export",
    });
    pub use self::exports::skysail::provider::routes::*;
}

/// The interface `zones` of `skysail:legacy`.
pub mod zones {
    wit_bindgen::generate!({
        path: ["../wit/v0.1.0", "../wit/legacy-v0.1.0"],
        inline: "package skysail:guest-zones; world zones { export skysail:legacy/zones@0.1.0; }",
        world: "skysail:guest-zones/zones",
        with: { "skysail:provider/types@0.1.0": crate::bindings::imports::skysail::provider::types },
        generate_all,
        generate_unused_types: true,
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export",
    });
    pub use self::exports::skysail::legacy::zones::*;
}

/// The interface `clusters` of `skysail:legacy`.
pub mod clusters {
    wit_bindgen::generate!({
        path: ["../wit/v0.1.0", "../wit/legacy-v0.1.0"],
        inline: "package skysail:guest-clusters; world clusters { export skysail:legacy/clusters@0.1.0; }",
        world: "skysail:guest-clusters/clusters",
        with: { "skysail:provider/types@0.1.0": crate::bindings::imports::skysail::provider::types },
        generate_all,
        generate_unused_types: true,
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export",
    });
    pub use self::exports::skysail::legacy::clusters::*;
}

/// The interface `node-legacy` of `skysail:legacy`.
pub mod node_legacy {
    wit_bindgen::generate!({
        path: ["../wit/v0.1.0", "../wit/legacy-v0.1.0"],
        inline: "package skysail:guest-node-legacy; world node-legacy { export skysail:legacy/node-legacy@0.1.0; }",
        world: "skysail:guest-node-legacy/node-legacy",
        with: { "skysail:provider/types@0.1.0": crate::bindings::imports::skysail::provider::types },
        generate_all,
        generate_unused_types: true,
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export",
    });
    pub use self::exports::skysail::legacy::node_legacy::*;
}

/// The interface `persistent-volume-labels`.
pub mod persistent_volume_labels {
    wit_bindgen::generate!({
        path: "../wit/v0.1.0",
        inline: "package skysail:guest-persistent-volume-labels; world persistent-volume-labels { export skysail:provider/persistent-volume-labels@0.1.0; }",
        world: "skysail:guest-persistent-volume-labels/persistent-volume-labels",
        with: { "skysail:provider/types@0.1.0": crate::bindings::imports::skysail::provider::types },
        generate_all,
        generate_unused_types: true,
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export",
    });
    pub use self::exports::skysail::provider::persistent_volume_labels::*;
}
