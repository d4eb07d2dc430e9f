//! Which load balancer a Service gets, and what stays when it goes, in the words of the tests of
//! the plan.

use expect_test::{Expect, expect};

use crate::service::plan::tests::planned;

#[track_caller]
fn check(words: &str, expected: Expect) {
    expected.assert_eq(&planned(words));
}

#[test]
fn a_provider_that_retains_keeps_the_load_balancer_of_a_service_that_goes() {
    check("lb finalizer ensured deleting", expect!["cleanup of [1]"]);
    check("lb finalizer ensured deleting retain-here", expect!["cleanup of [1] kept by [1]"]);
    check("nodeport finalizer ensured retain-here", expect!["cleanup of [1] kept by [1]"]);
    check("lb finalizer ensured other-owner retain-here", expect!["cleanup of [1] kept by [1]"]);
    check("nodeport finalizer retain-there", expect!["cleanup of [1, 2] kept by [2]"]);
    check("gone ensured absent retain-here", expect!["retain the load balancer of uid one"]);
    check("lb ensured other-uid retain-here", expect!["retain the load balancer of uid one"]);
    check("gone named absent found retain-here", expect!["cleanup of [1] kept by [1] misnamed"]);
    check("lb finalizer ensured deleting retain-here paused", expect!["Annotated holds: cleanup of [1] kept by [1]"]);
}

#[test]
fn a_retained_load_balancer_is_left_alone_and_the_finalizer_goes() {
    check("lb finalizer deleting kept", expect!["cleanup of []"]);
    check("lb finalizer ensured deleting kept", expect!["cleanup of []"]);
    check("lb finalizer deleted deleting kept", expect!["release status=true"]);
    check("gone ensured absent kept", expect!["forget"]);
    check("nodeport kept", expect!["nothing"]);
    // Another Service has adopted it; a user has added the finalizer by hand.
    check("nodeport finalizer taken", expect!["cleanup of [2]"]);
    check("lb finalizer deleting taken", expect!["cleanup of []"]);
}

#[test]
fn a_service_takes_back_its_own_load_balancer() {
    check("lb kept", expect!["ensure port=80 finalizer=true claims"]);
    check("lb finalizer deleted kept", expect!["ensure port=80 finalizer=true claims"]);
    check("lb adopted-kept", expect!["ensure port=80 finalizer=true claims uid=nine"]);
    check("lb kept adopts-itself", expect!["ensure port=80 finalizer=true claims"]);
}

#[test]
fn a_service_adopts_what_no_service_has() {
    check("lb adopts free", expect!["ensure port=80 finalizer=true claims uid=nine"]);
    check("lb adopts free released finalizer", expect!["ensure port=80 finalizer=true claims uid=nine"]);
    check("lb adopts free finalizer deleted", expect!["ensure port=80 finalizer=true claims uid=nine"]);
    check("lb finalizer adopts adopted", expect!["ensure port=80 finalizer=true uid=nine"]);
    check("lb adopts-itself", expect!["ensure port=80 finalizer=true"]);
    check("lb adopts-itself taken-kept", expect!["ensure port=80 finalizer=true claims"]);
}

/// The annotation is a request: its removal changes nothing later.
#[test]
fn an_adopted_load_balancer_is_found_by_the_record_and_not_by_the_annotation() {
    check("lb finalizer adopted", expect!["ensure port=80 finalizer=true uid=nine"]);
    check("lb finalizer ensured for-nine adopted", expect!["nothing"]);
    check("lb finalizer ensured for-nine adopted other-port", expect!["ensure port=81 finalizer=false uid=nine"]);
    check("lb finalizer deleting adopted", expect!["cleanup of [1] uid=nine"]);
    check("lb finalizer deleting adopted retain-here", expect!["cleanup of [1] kept by [1] uid=nine"]);
    check("lb finalizer ensured for-nine deleting adopted", expect!["cleanup of [1] uid=nine"]);
    check("gone ensured for-nine absent adopted", expect!["delete the load balancer of uid nine"]);
    // A person has removed the record.
    check("lb finalizer ensured for-nine", expect!["nothing"]);
    check("lb finalizer ensured for-nine deleting", expect!["cleanup of [1] uid=nine"]);
}

#[test]
fn a_service_that_cannot_have_what_it_asks_for_gets_nothing() {
    for words in [
        "lb adopts",
        "lb adopts used",
        "lb adopts elsewhere-free",
        "lb adopts-junk",
        "lb finalizer adopts free",
        "lb finalizer ensured adopts free",
        "lb finalizer adopted adopts-itself",
        "lb taken",
        "lb taken-kept",
    ] {
        let plan = planned(words);
        assert!(plan.contains("load balancer") && plan.to_lowercase().contains("service"), "{words}: {plan}");
        assert!(!plan.starts_with("ensure") && !plan.starts_with("update"), "{words}: {plan}");
    }
    check(
        "lb adopts",
        expect![[
            r#"the annotation skysail.dev/adopt-load-balancer is "nine", and the provider fake has no retained load balancer with this UID in the namespace ; the Event LoadBalancerRetained of the former Service names the UID. To get a new load balancer, remove the annotation: kubectl annotate service  --namespace  skysail.dev/adopt-load-balancer-"#
        ]],
    );
    // The nodes of what serves go on.
    check("lb finalizer ensured adopts free other-nodes", expect!["update"]);
}

/// No policy, no annotation and no pause makes it another Service's.
#[test]
fn an_annotation_of_a_service_that_goes_claims_nothing() {
    check("lb finalizer deleting adopts free", expect!["cleanup of [1]"]);
    check("lb released finalizer deleting adopts free", expect!["cleanup of [1]"]);
    check("nodeport adopts free", expect!["nothing"]);
    check("lb class no-owner adopts free", expect!["nothing"]);
}

#[test]
fn what_a_service_had_adopted_that_went_by_force_is_given_back_when_the_api_does_not_have_it() {
    check("gone left", expect!["look up"]);
    check("gone left exists", expect!["wait 5s"]);
    check("gone left absent", expect!["give back fake.nine"]);
    check("lb left absent", expect!["give back fake.nine"]);
}
