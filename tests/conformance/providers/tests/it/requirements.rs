//! The requirements as tests: a macro for each interface of a provider.

/// A test of each function, for one cloud.
macro_rules! suite {
    ($cloud:ident: $($module:ident::$requirement:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $requirement() -> Result<()> {
                let result = super::$module::$requirement::<super::$cloud>().await;
                super::published::none()?;
                result?;
                super::leaks::none()
            }
        )+
    };
}

/// The requirements of a provider with instances.
macro_rules! instances {
    ($cloud:ident) => {
        suite!($cloud:
            machines::machines_are_found_by_id_and_by_name,
            machines::a_machine_that_was_created_again_is_another_one,
            machines::a_failure_of_any_request_makes_no_machine_not_found,
            machines::a_refused_credential_is_denied,
            machines::machines_beyond_a_thousand_are_found,
            machines::a_page_of_nodes_costs_at_most_100_million_units_of_fuel,
            machines::a_list_that_changes_while_it_is_read_loses_no_machine,
            machines::a_list_that_lags_behind_makes_no_new_machine_not_found,
        );
    };
}

/// The requirements of a provider with load balancers and their inventory.
macro_rules! load_balancers {
    ($cloud:ident) => {
        suite!($cloud:
            balancers::a_second_ensure_changes_nothing,
            balancers::update_changes_the_backends_and_nothing_else,
            balancers::a_deletion_leaves_nothing_and_may_be_repeated,
            deletions::the_rules_of_the_example_count_the_deletion_of_a_load_balancer,
            balancers::a_change_of_a_service_ends_as_a_new_load_balancer_would,
            balancers::load_balancers_of_other_services_and_clusters_are_left_alone,
            balancers::the_longest_names_are_kept_apart,
            balancers::a_refused_credential_changes_no_load_balancer,
            inventory::the_inventory_lists_and_deletes_only_this_clusters,
            inventory::load_balancers_beyond_a_page_are_found,
            inventory::a_failure_of_any_request_shortens_no_inventory,
            faults::the_next_ensure_completes_an_interrupted_one,
            faults::the_next_update_completes_an_interrupted_one,
            faults::a_deletion_after_an_interrupted_ensure_leaves_nothing,
            faults::the_next_deletion_completes_an_interrupted_one,
            faults::the_next_ensure_completes_an_interrupted_change,
            faults::a_cloud_whose_lists_lag_behind_gets_no_second_load_balancer,
        );
    };
}

/// The requirements of a provider with routes.
macro_rules! routes {
    ($cloud:ident) => {
        suite!($cloud:
            routes::routes_are_created_and_deleted_once,
            routes::a_route_to_another_machine_is_replaced_or_named,
            routes::routes_of_other_clusters_are_left_alone,
            routes::a_refused_credential_changes_no_route,
            routes::a_failure_of_any_request_loses_no_route,
            routes::a_cloud_whose_lists_lag_behind_has_each_route_once,
        );
    };
}

/// The comparison of load balancers with those of the vendor's Go provider.
macro_rules! judged_load_balancers {
    ($cloud:ident) => {
        suite!($cloud:
            judged_balancers::the_component_does_what_the_vendors_provider_does,
            judged_balancers::the_component_changes_what_the_vendors_provider_changes,
        );
    };
}

/// The comparison of instances with those of the vendor's Go provider.
macro_rules! judged_instances {
    ($cloud:ident) => {
        suite!($cloud: judged_machines::the_component_describes_machines_as_the_vendors_provider_does);
    };
}

/// The comparison of routes with those of the vendor's Go provider.
macro_rules! judged_routes {
    ($cloud:ident) => {
        suite!($cloud: judged_routes::the_component_routes_as_the_vendors_provider_does);
    };
}

/// The comparison of a vendor's Go provider in the sandbox with the same code as a program.
macro_rules! sandboxed_load_balancers {
    ($cloud:ident) => {
        suite!($cloud:
            sandboxed::the_vendors_code_serves_in_the_sandbox_as_it_does_elsewhere,
            sandboxed::the_vendors_code_changes_in_the_sandbox_what_it_changes_elsewhere,
        );
    };
}
