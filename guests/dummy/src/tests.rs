//! Tests of the functions that do not call the host.

use super::pool;

#[test]
fn the_pool_is_the_operators_or_the_documentation_range() {
    assert_eq!(pool("").config().unwrap().to_string(), "203.0.113.0/24");
    assert_eq!(pool("[LoadBalancer]\npool = 10.0.0.0/30\n").config().unwrap().to_string(), "10.0.0.0/30");
}

#[test]
fn a_wrong_pool_is_refused_with_its_line() {
    let problems = pool("[LoadBalancer]\npool = 10.0.0.0\n").problems();
    assert_eq!((problems.len(), problems[0].line, problems[0].key.as_str()), (1, 2, "LoadBalancer.pool"));
    let problems = pool("[LoadBalancer]\npol = 10.0.0.0/8\n").problems();
    assert_eq!((problems.len(), problems[0].line, problems[0].key.as_str()), (1, 2, "LoadBalancer.pol"));
}
