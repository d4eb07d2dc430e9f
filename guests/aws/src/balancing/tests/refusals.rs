//! What the user reads when AWS refuses a call, or when something else answers: the object, what
//! was said, and what to do.

use expect_test::expect;
use skysail_guest_sdk::{Detail, NewRoute, Node, NodeSet, Result, instances::Turn};

use super::World;
use crate::{
    fixture::{annotated, error_document, machine, service},
    inventory, machines, routes,
};

/// Code and text of an error.
fn read<T: std::fmt::Debug>(result: Result<T>) -> String {
    let error = result.unwrap_err();
    format!("{}: {}\n", error.code(), error.message())
}

fn web(kind: &str) -> skysail_guest_sdk::Service {
    annotated(service(&[(skysail_guest_sdk::Protocol::Tcp, 80, 30_080)]), &[("type", kind)])
}

/// What `ensure` says of a new load balancer if one action gets this answer.
fn ensure(kind: &str, action: &'static str, status: u16, body: impl Into<String>) -> String {
    let world = World::new(if kind == "nlb" { "NLBSecurityGroupMode = Managed\n" } else { "" });
    world.aws.answer_once(action, status, body.into());
    read(world.ensure(&web(kind), 2))
}

fn refused(action: &'static str, code: &str, message: &str) -> String {
    ensure("nlb", action, 400, error_document(code, message))
}

/// The codes and texts are those of the documents of AWS.
#[test]
fn a_credential_that_is_wrong_or_has_expired_is_named_with_the_part_to_correct() {
    let said = [
        refused(
            "DescribeLoadBalancers",
            "InvalidClientTokenId",
            "The security token included in the request is invalid.",
        ),
        refused("DescribeSubnets", "AuthFailure", "AWS was not able to validate the provided access credentials"),
        refused("DescribeLoadBalancers", "SignatureDoesNotMatch", "The request signature we calculated does not match"),
        refused("DescribeLoadBalancers", "ExpiredToken", "The security token included in the request is expired"),
        refused("DescribeSubnets", "RequestExpired", "Request has expired."),
        refused("CreateLoadBalancer", "AccessDenied", "User: arn:aws:iam::1:user/ccm is not authorized to perform: x"),
        refused("CreateSecurityGroup", "UnauthorizedOperation", "You are not authorized to perform this operation."),
        refused("DescribeSubnets", "OptInRequired", "You are not subscribed to this service."),
    ];
    expect![[r#"
        denied: DescribeLoadBalancers a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: InvalidClientTokenId: The security token included in the request is invalid; correct the access key, `region` and `service` of the credential
        denied: DescribeSubnets vpc-1: POST https://ec2.us-east-1.amazonaws.com/: status 400: AuthFailure: AWS was not able to validate the provided access credentials; correct the access key, `region` and `service` of the credential
        denied: DescribeLoadBalancers a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: SignatureDoesNotMatch: The request signature we calculated does not match; correct the access key, `region` and `service` of the credential
        denied: DescribeLoadBalancers a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: ExpiredToken: The security token included in the request is expired; write a new session token into the credential, or use a credential that renews itself, such as webIdentity
        denied: DescribeSubnets vpc-1: POST https://ec2.us-east-1.amazonaws.com/: status 400: RequestExpired: Request has expired; set the clock of the machine on which the manager runs
        denied: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: AccessDenied: User: arn:aws:iam::1:user/ccm is not authorized to perform: x; allow the action in the IAM policy of the account
        denied: CreateSecurityGroup k8s-default-web-b5420d7745: POST https://ec2.us-east-1.amazonaws.com/: status 400: UnauthorizedOperation: You are not authorized to perform this operation; allow the action in the IAM policy of the account
        denied: DescribeSubnets vpc-1: POST https://ec2.us-east-1.amazonaws.com/: status 400: OptInRequired: You are not subscribed to this service; let AWS Support enable the account
    "#]].assert_eq(&said.concat());
}

#[test]
fn a_used_up_quota_names_the_object_that_could_not_be_made() {
    let said = [
        refused("CreateLoadBalancer", "TooManyLoadBalancers", "The maximum number of load balancers has been reached."),
        refused("CreateTargetGroup", "TooManyTargetGroups", "The maximum number of target groups has been reached."),
        refused("CreateListener", "TooManyListeners", "The maximum number of listeners has been reached."),
        refused("RegisterTargets", "TooManyTargets", "The maximum number of targets has been reached."),
        refused("CreateSecurityGroup", "SecurityGroupLimitExceeded", "The maximum number of security groups"),
        refused("AuthorizeSecurityGroupIngress", "RulesPerSecurityGroupLimitExceeded", "The maximum number of rules"),
        ensure("", "CreateLoadBalancer", 400, error_document("TooManyLoadBalancers", "Exceeded quota of account 1")),
    ];
    expect![[r#"
        exhausted: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: TooManyLoadBalancers: The maximum number of load balancers has been reached; delete what nobody needs, or ask AWS for a higher quota (Service Quotas)
        exhausted: CreateTargetGroup k8s-default-web-7d33fef986: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: TooManyTargetGroups: The maximum number of target groups has been reached; delete what nobody needs, or ask AWS for a higher quota (Service Quotas)
        exhausted: CreateListener arn:aws:elasticloadbalancing:us-east-1:1:loadbalancer/net/1: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: TooManyListeners: The maximum number of listeners has been reached; delete what nobody needs, or ask AWS for a higher quota (Service Quotas)
        exhausted: RegisterTargets arn:aws:elasticloadbalancing:us-east-1:1:targetgroup/2: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: TooManyTargets: The maximum number of targets has been reached; delete what nobody needs, or ask AWS for a higher quota (Service Quotas)
        exhausted: CreateSecurityGroup k8s-default-web-b5420d7745: POST https://ec2.us-east-1.amazonaws.com/: status 400: SecurityGroupLimitExceeded: The maximum number of security groups; delete what nobody needs, or ask AWS for a higher quota (Service Quotas)
        exhausted: AuthorizeSecurityGroupIngress sg-made3: POST https://ec2.us-east-1.amazonaws.com/: status 400: RulesPerSecurityGroupLimitExceeded: The maximum number of rules; delete what nobody needs, or ask AWS for a higher quota (Service Quotas)
        exhausted: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: TooManyLoadBalancers: Exceeded quota of account 1; delete what nobody needs, or ask AWS for a higher quota (Service Quotas)
    "#]].assert_eq(&said.concat());
}

#[test]
fn a_full_subnet_and_names_that_aws_does_not_know_are_named() {
    let said = [
        refused(
            "CreateLoadBalancer",
            "InvalidSubnet",
            "Not enough IP space available in subnet-1. ELB requires at least 8 free IP addresses in each subnet.",
        ),
        refused("CreateLoadBalancer", "InvalidSubnet", "VPC vpc-1 has no internet gateway"),
        refused("CreateLoadBalancer", "InsufficientFreeAddressesInSubnet", "subnet-1 has insufficient addresses"),
        refused("CreateLoadBalancer", "AllocationIdNotFound", "The allocation IDs 'eipalloc-1' do not exist"),
        refused("CreateListener", "CertificateNotFound", "Certificate 'arn:1' not found"),
        refused("CreateListener", "SSLPolicyNotFound", "Policy 'x' not found"),
        refused("CreateLoadBalancer", "InvalidConfigurationRequest", "Security group x is not valid"),
        refused("DescribeSubnets", "InvalidVpcID.NotFound", "The vpc ID 'vpc-1' does not exist"),
    ];
    expect![[r#"
        exhausted: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: InvalidSubnet: Not enough IP space available in subnet-1. ELB requires at least 8 free IP addresses in each subnet; release addresses of the subnet, or name other subnets in the annotation service.beta.kubernetes.io/aws-load-balancer-subnets
        invalid: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: InvalidSubnet: VPC vpc-1 has no internet gateway; correct the annotations of the Service, or the cloud-config
        exhausted: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: InsufficientFreeAddressesInSubnet: subnet-1 has insufficient addresses; release addresses of the subnet, or name other subnets in the annotation service.beta.kubernetes.io/aws-load-balancer-subnets
        invalid: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: AllocationIdNotFound: The allocation IDs 'eipalloc-1' do not exist; correct the annotations of the Service, or the cloud-config
        invalid: CreateListener arn:aws:elasticloadbalancing:us-east-1:1:loadbalancer/net/1: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: CertificateNotFound: Certificate 'arn:1' not found; correct the annotations of the Service, or the cloud-config
        invalid: CreateListener arn:aws:elasticloadbalancing:us-east-1:1:loadbalancer/net/1: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: SSLPolicyNotFound: Policy 'x' not found; correct the annotations of the Service, or the cloud-config
        invalid: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: InvalidConfigurationRequest: Security group x is not valid; correct the annotations of the Service, or the cloud-config
        unavailable: DescribeSubnets vpc-1: POST https://ec2.us-east-1.amazonaws.com/: status 400: InvalidVpcID.NotFound: The vpc ID 'vpc-1' does not exist; wait if the object is new, else correct the ID in the cloud-config or in an annotation
    "#]].assert_eq(&said.concat());
}

#[test]
fn an_answer_that_is_not_of_aws_or_lacks_something_names_the_call_and_the_endpoint() {
    const PAGE: &str = "<html><head/><body>Back soon</body></html>";
    let answer = |inside: &str| format!("<CreateLoadBalancerResponse>{inside}</CreateLoadBalancerResponse>");
    let member = |inside: &str| {
        let path = "<CreateLoadBalancerResult><LoadBalancers><member>";
        answer(&format!("{path}{inside}</member></LoadBalancers></CreateLoadBalancerResult>"))
    };
    let said = [
        ensure("nlb", "CreateLoadBalancer", 200, PAGE),
        ensure("nlb", "DescribeLoadBalancers", 404, PAGE),
        ensure("nlb", "DescribeSubnets", 502, PAGE),
        ensure("nlb", "DescribeSubnets", 200, "{}"),
        ensure("nlb", "DescribeSubnets", 200, ""),
        ensure("nlb", "CreateLoadBalancer", 200, error_document("AccessDenied", "no")),
        ensure("nlb", "CreateLoadBalancer", 200, answer("")),
        ensure("nlb", "CreateLoadBalancer", 200, member("<LoadBalancerName>a</LoadBalancerName>")),
        ensure("", "CreateLoadBalancer", 200, answer("<CreateLoadBalancerResult/>")),
        ensure("nlb", "CreateSecurityGroup", 200, "<CreateSecurityGroupResponse/>"),
        ensure(
            "nlb",
            "DescribeSubnets",
            200,
            "<DescribeSubnetsResponse><subnetSet><item/></subnetSet></DescribeSubnetsResponse>",
        ),
        ensure("nlb", "DescribeSubnets", 200, "<DescribeSubnetsResponse><subnetSet>"),
    ];
    expect![[r#"
        unavailable: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 200: <html><head/><body>Back soon</body></html>; the answer is not that of AWS: correct the URL in [ServiceOverride], or the proxy before AWS
        internal: DescribeLoadBalancers a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 404: <html><head/><body>Back soon</body></html>; the answer is not that of AWS: correct the URL in [ServiceOverride], or the proxy before AWS
        unavailable: DescribeSubnets vpc-1: POST https://ec2.us-east-1.amazonaws.com/: status 502: <html><head/><body>Back soon</body></html>; the answer is not that of AWS: correct the URL in [ServiceOverride], or the proxy before AWS
        unavailable: DescribeSubnets vpc-1: POST https://ec2.us-east-1.amazonaws.com/: status 200: {}; the answer is not that of AWS: correct the URL in [ServiceOverride], or the proxy before AWS
        unavailable: DescribeSubnets vpc-1: POST https://ec2.us-east-1.amazonaws.com/: status 200; the answer is not that of AWS: correct the URL in [ServiceOverride], or the proxy before AWS
        denied: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 200: AccessDenied: no; allow the action in the IAM policy of the account
        internal: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: no load balancer; the answer is not as AWS documents it: correct the URL in [ServiceOverride] or the proxy before AWS, or report the fault to the author of the provider
        internal: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: member without LoadBalancerArn; the answer is not as AWS documents it: correct the URL in [ServiceOverride] or the proxy before AWS, or report the fault to the author of the provider
        internal: CreateLoadBalancer a0a1b2c3d4e5f6789abcdef012345678: CreateLoadBalancerResponse without CreateLoadBalancerResult/DNSName; the answer is not as AWS documents it: correct the URL in [ServiceOverride] or the proxy before AWS, or report the fault to the author of the provider
        internal: CreateSecurityGroup k8s-default-web-b5420d7745: CreateSecurityGroupResponse without groupId; the answer is not as AWS documents it: correct the URL in [ServiceOverride] or the proxy before AWS, or report the fault to the author of the provider
        internal: DescribeSubnets vpc-1: item without subnetId; the answer is not as AWS documents it: correct the URL in [ServiceOverride] or the proxy before AWS, or report the fault to the author of the provider
        internal: DescribeSubnets vpc-1: unexpected XML: the text ends too early; the answer is not as AWS documents it: correct the URL in [ServiceOverride] or the proxy before AWS, or report the fault to the author of the provider
    "#]].assert_eq(&said.concat());
}

#[test]
fn nodes_routes_and_orphans_name_their_objects() {
    let world = World::new("");
    let refuse = |action: &'static str, code: &str, message: &str| {
        world.aws.answer_once(action, 400, error_document(code, message));
    };
    let describe = |id: &str| {
        let node = Node { provider_id: Some(format!("aws:///us-east-1a/{id}")), ..Node::new("node-1") };
        machines::describe(&world.aws, &world.settings, &NodeSet::of(vec![node]), Detail::State, Turn::of(0))
    };
    let mut said = Vec::new();
    refuse("DescribeInstances", "ExpiredToken", "The security token included in the request is expired");
    said.push(read(describe(&machine(0).id)));
    said.push(read(describe("i-00000000000000bad").unwrap().remove(0)));
    world.aws.answer_once(
        "DescribeInstances",
        200,
        "<DescribeInstancesResponse><reservationSet><item><instancesSet><item/></instancesSet></item></reservationSet>\
         </DescribeInstancesResponse>"
            .to_owned(),
    );
    said.push(read(describe(&machine(0).id)));
    refuse("CreateRoute", "RouteLimitExceeded", "The maximum number of routes has been reached.");
    let route = NewRoute {
        name_hint: String::new(),
        node: machine(0).private_dns,
        provider_id: Some(format!("aws:///us-east-1a/{}", machine(0).id)),
        addresses: Vec::new(),
        destination_cidr: "10.244.0.0/24".to_owned(),
        extra: Vec::new(),
    };
    let cluster = ("kubernetes.io/cluster/k1".to_owned(), "owned".to_owned());
    world.aws.ec2.borrow_mut().tables[1].tags.extend([cluster]);
    said.push(read(routes::create(&world.aws, &world.settings, "prod", &[route]).unwrap().remove(0)));
    refuse("DescribeLoadBalancers", "AccessDenied", "User is not authorized");
    said.push(read(inventory::list(&world.aws, &world.settings, "prod")));
    expect![[r#"
        denied: DescribeInstances i-00000000000000000: POST https://ec2.us-east-1.amazonaws.com/: status 400: ExpiredToken: The security token included in the request is expired; write a new session token into the credential, or use a credential that renews itself, such as webIdentity
        not-found: InvalidInstanceID.NotFound: The instance IDs ["i-00000000000000bad"] do not exist
        internal: DescribeInstances i-00000000000000000: an entry of instancesSet without instanceId; the answer is not as AWS documents it: correct the URL in [ServiceOverride] or the proxy before AWS, or report the fault to the author of the provider
        exhausted: CreateRoute rtb-1: POST https://ec2.us-east-1.amazonaws.com/: status 400: RouteLimitExceeded: The maximum number of routes has been reached; delete what nobody needs, or ask AWS for a higher quota (Service Quotas)
        denied: DescribeLoadBalancers: POST https://elasticloadbalancing.us-east-1.amazonaws.com/: status 400: AccessDenied: User is not authorized; allow the action in the IAM policy of the account
    "#]].assert_eq(&said.concat());
}
