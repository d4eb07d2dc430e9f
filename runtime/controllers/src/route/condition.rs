//! The condition `NetworkUnavailable` of a node. Pure.

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::names::conditions;

/// The condition to write; none if status and reason are equal already. A network plugin's reason
/// is replaced once. The heartbeat time alone causes no write, which would be one for each node and
/// period.
pub(crate) fn changed(node: &core::Node, has_routes: bool, now: Timestamp) -> Option<core::NodeCondition> {
    let (status, reason, message) = if has_routes {
        ("False", conditions::ROUTE_CREATED, "RouteController created a route")
    } else {
        ("True", conditions::NO_ROUTE_CREATED, "RouteController failed to create a route")
    };
    let present = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let present = present.iter().find(|condition| condition.type_ == conditions::NETWORK_UNAVAILABLE);
    let same_status = present.filter(|condition| condition.status == status);
    if same_status.is_some_and(|condition| condition.reason.as_deref() == Some(reason)) {
        return None;
    }
    // A transition is a change of the status. Without a transition the merge keeps the earlier
    // time. Upstream sets the time of the write even if only the reason changed.
    let transition = same_status.is_none().then_some(Time(now));
    Some(core::NodeCondition {
        type_: conditions::NETWORK_UNAVAILABLE.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: transition,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::{Node, NodeCondition, NodeStatus},
        apimachinery::pkg::apis::meta::v1::Time,
        jiff::Timestamp,
    };
    use rstest::rstest;

    use super::changed;

    fn now() -> Timestamp {
        Timestamp::from_second(2_000).unwrap()
    }

    fn node(status: &str, reason: &str) -> Node {
        let condition = |type_: &str, status: &str, reason: &str| NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            ..NodeCondition::default()
        };
        let mut conditions = vec![condition("Ready", "False", "RouteCreated")];
        if !status.is_empty() {
            conditions.push(condition("NetworkUnavailable", status, reason));
        }
        Node { status: Some(NodeStatus { conditions: Some(conditions), ..NodeStatus::default() }), ..Node::default() }
    }

    /// Present status and reason, whether the routes exist, and the written condition with `true`
    /// if its status changes.
    #[rstest]
    #[case::no_condition_and_routes("", "", true, Some(("False", "RouteCreated", true)))]
    #[case::r4_2_no_condition_and_no_routes("", "", false, Some(("True", "NoRouteCreated", true)))]
    #[case::r4_3_no_change_with_routes("False", "RouteCreated", true, None)]
    // In the next three cases upstream sets a transition time; the status did not change.
    #[case::r4_4_the_reason_of_calico("False", "CalicoIsUp", true, Some(("False", "RouteCreated", false)))]
    #[case::r4_5_the_reason_of_another_plugin("False", "ExternalCNI", true, Some(("False", "RouteCreated", false)))]
    #[case::r4_6_another_reason("True", "SomeOtherReason", false, Some(("True", "NoRouteCreated", false)))]
    #[case::r4_7_routes_are_lost("False", "RouteCreated", false, Some(("True", "NoRouteCreated", true)))]
    #[case::r4_8_no_change_without_routes("True", "NoRouteCreated", false, None)]
    fn the_written_condition_depends_on_status_and_reason(
        #[case] status: &str,
        #[case] reason: &str,
        #[case] has_routes: bool,
        #[case] expected: Option<(&str, &str, bool)>,
    ) {
        let written = changed(&node(status, reason), has_routes, now());
        let expected = expected.map(|(status, reason, transition)| NodeCondition {
            type_: "NetworkUnavailable".to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(if has_routes {
                "RouteController created a route".to_owned()
            } else {
                "RouteController failed to create a route".to_owned()
            }),
            last_heartbeat_time: Some(Time(now())),
            last_transition_time: transition.then(|| Time(now())),
        });
        assert_eq!(written, expected);
    }
}
