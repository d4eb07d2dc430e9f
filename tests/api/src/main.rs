//! One suite for the in-memory API server and a real one, which have to behave in the same way.
//!
//! Every test of `suite!` exists twice: `embedded::NAME` needs nothing, `real::NAME` starts a real
//! kube-apiserver (`skysail_test_support::apiserver`). The `kubectl_…` tests run the real kubectl
//! and compare what it prints with one snapshot for both. Update snapshots with `UPDATE_EXPECT=1`.

#[cfg(test)]
mod applies;
#[cfg(test)]
mod custom;
#[cfg(test)]
mod env;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod kubectl;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod patches;
#[cfg(test)]
mod reviews;
#[cfg(test)]
mod services;
#[cfg(test)]
mod watches;

fn main() {}

/// Makes a test of each function for both servers.
#[cfg(test)]
macro_rules! suite {
    ($($module:ident::$test:ident,)*) => {
        mod embedded {
            use crate::env::Env;
            $(#[tokio::test]
            async fn $test() {
                crate::$module::$test(&Env::embedded(stringify!($test)).await).await;
            })*
        }
        mod real {
            use crate::env::Env;
            $(#[tokio::test]
            async fn $test() {
                crate::$module::$test(&Env::real(stringify!($test)).await).await;
            })*
        }
    };
}

#[cfg(test)]
suite! {
    objects::a_new_object_has_uid_time_and_version,
    objects::refusals_have_kubernetes_reasons_and_codes,
    objects::a_stale_update_conflicts,
    objects::a_write_that_changes_nothing_keeps_the_version,
    objects::generate_name_makes_names_that_differ,
    objects::deletion_honours_preconditions,
    objects::finalizers_hold_an_object_until_they_are_gone,
    objects::a_collection_is_deleted_by_selector,
    objects::a_dry_run_leaves_no_trace,
    objects::status_and_spec_are_written_apart,
    objects::provider_id_is_set_once,
    objects::events_have_two_views,
    objects::leases_are_taken_by_version,
    objects::secrets_take_clear_text,
    objects::unknown_fields_warn_or_refuse,
    lists::labels_and_fields_select,
    lists::pages_show_one_moment,
    lists::versions_of_past_and_future,
    watches::a_watch_sees_what_happens_after_its_version,
    watches::a_selector_turns_changes_into_additions_and_deletions,
    watches::a_streamed_list_ends_with_a_bookmark,
    watches::compacted_history_is_expired,
    patches::merge_and_json_patches,
    patches::strategic_patches_merge_lists_by_key,
    patches::strategic_directives,
    applies::apply_creates_owns_and_removes,
    applies::a_conflict_names_owner_and_field,
    applies::shared_fields_stay_until_the_last_owner_goes,
    reviews::an_unknown_token_is_not_authenticated,
    reviews::masters_may_read_any_path,
    services::a_service_gets_its_defaults,
    services::metadata_is_written_through_the_status_and_the_spec_is_not,
    services::a_type_change_frees_what_belonged_to_it,
    services::service_rules_are_enforced,
    services::node_ports_are_unique_and_come_back,
    custom::a_definition_serves_and_unserves_its_resource,
    custom::a_schema_defaults_prunes_and_refuses,
    kubectl::kubectl_creates_gets_and_deletes,
    kubectl::kubectl_applies_both_ways,
    kubectl::kubectl_edits_labels_taints_and_waits,
    kubectl::kubectl_describes_services_and_nodes,
    kubectl::kubectl_asks_and_mistypes,
    kubectl::kubectl_creates_what_it_sends_as_protobuf,
    kubectl::kubectl_watches,
}
