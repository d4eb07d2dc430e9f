//! AWS, played by moto.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use anyhow::{Result, ensure};
use skysail_test_providers::{
    clouds::aws::{self, Aws},
    leaks, published,
    suite::{
        balancers, deletions, faults, inventory,
        judged::{balancers as judged_balancers, machines as judged_machines, routes as judged_routes, sandboxed},
        machines, routes,
    },
};

type Network = Aws<aws::Network>;
type Managed = Aws<aws::Managed>;
type Classic = Aws<aws::Classic>;
type WithRole = Aws<aws::WithRole>;
type VendorsNetwork = Aws<aws::Vendors<aws::Network>>;
type VendorsManaged = Aws<aws::Vendors<aws::Managed>>;
type VendorsClassic = Aws<aws::Vendors<aws::Classic>>;

/// Machines and routes do not depend on the kind of load balancer.
mod network {
    use anyhow::Result;

    instances!(Network);
    load_balancers!(Network);
    judged_instances!(Network);
    judged_load_balancers!(Network);
    judged_routes!(Network);
    routes!(Network);
    suite!(Network: deletions::the_rules_of_the_example_count_the_deletion_of_a_route);
}

mod network_with_groups {
    use anyhow::Result;

    load_balancers!(Managed);
    judged_load_balancers!(Managed);
}

mod classic {
    use anyhow::Result;

    load_balancers!(Classic);
    judged_load_balancers!(Classic);
}

/// Of the kinds of credentials, a role by a web identity is the other one that asks AWS.
mod web_identity {
    use anyhow::Result;

    suite!(WithRole:
        machines::machines_are_found_by_id_and_by_name,
        machines::a_refused_credential_is_denied,
        balancers::a_second_ensure_changes_nothing,
        balancers::a_deletion_leaves_nothing_and_may_be_repeated,
    );
}

/// Amazon's Go provider as a component, beside the same code as a program.
mod vendors_network {
    use anyhow::Result;

    judged_instances!(VendorsNetwork);
    judged_routes!(VendorsNetwork);
    sandboxed_load_balancers!(VendorsNetwork);
}

mod vendors_network_with_groups {
    use anyhow::Result;

    sandboxed_load_balancers!(VendorsManaged);
}

mod vendors_classic {
    use anyhow::Result;

    sandboxed_load_balancers!(VendorsClassic);
}

/// moto's answer to a form without a signature.
fn answer(moto: SocketAddr, form: &str) -> Result<String> {
    let mut stream = TcpStream::connect(moto)?;
    let kind = "Content-Type: application/x-www-form-urlencoded";
    write!(stream, "POST / HTTP/1.0\r\n{kind}\r\nContent-Length: {}\r\n\r\n{form}", form.len())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_amazons_models_do_not_allow_are_refused() -> Result<()> {
    let moto = aws::address().await?;
    let refused = [
        ("Action=DescribeInstances&Version=2016-11-15&Instance.1=i-1", "Instance is unknown"),
        ("Action=DescribeInstances&Version=2016-11-15&InstanceId.2=i-1", "InstanceId does not count from 1"),
        ("Action=DeleteRoute&Version=2016-11-15&DestinationCidrBlock=10.0.0.0/8", "RouteTableId is missing"),
        ("Action=ModifyInstanceAttribute&Version=2016-11-15&InstanceId=i-1&SourceDestCheck.Value=no", "nor false"),
        ("Action=CreateLoadBalancer&Version=2015-12-01&Name=a&Type=nlb", "none of"),
        ("Action=CreateTargetGroup&Version=2015-12-01&Name=a&Port=70000", "Port is 70000, out of range"),
        ("Action=DescribeLoadBalancers&Version=2012-06-01&LoadBalancerNames.1=a", "is no list of member"),
        ("Action=DescribeNothing&Version=2012-06-01", "is no action of elb"),
    ];
    for (form, why) in refused {
        let answer = answer(moto, form)?;
        ensure!(answer.contains(" 400 ") && answer.contains(why), "{form}: {answer}");
    }
    // moto asks for the signature of a valid request, and ends with an error where there is none.
    let unsigned = answer(moto, "Action=DescribeInstances&Version=2016-11-15")?;
    ensure!(!unsigned.contains(" 200 "), "{unsigned}");
    Ok(())
}
