"""Where moto differs from AWS as Amazon documents it, and where moto is slow."""

from functools import cache, wraps

from moto.core import responses
from moto.core.authorization import ActionAuthenticatorMixin
from moto.core.responses import ActionResult
from moto.core.serialize import AttributePicker
from moto.core.utils import MISSING, get_value, method_names_from_class
from moto.ec2.exceptions import DependencyViolationError
from moto.ec2.models.security_groups import SecurityGroupBackend, SecurityGroupRule
from moto.ec2.responses.instances import InstanceResponse
from moto.elb import models as elb
from moto.elb.exceptions import DuplicateListenerError as DuplicateClassicListener, LoadBalancerNotFoundError
from moto.elbv2 import models as elb_v2
from moto.elbv2.exceptions import DuplicateListenerError, DuplicateLoadBalancerName
from moto.sts.responses import TokenResponse


def apply():
    replace(InstanceResponse, describe_instance_topology)
    replace(SecurityGroupBackend, delete_security_group)
    replace(SecurityGroupRule, is_same_rule, "__eq__")
    # moto answers the protocol of the clients as that of the machines.
    elb.FakeListener.instance_protocol = None
    replace(elb.LoadBalancer, classic_load_balancer, "__init__")
    replace(elb.ELBBackend, get_load_balancer)
    replace(elb.ELBBackend, create_load_balancer_listeners)
    replace(elb.ELBBackend, delete_load_balancer_listeners)
    replace(elb_v2.FakeTargetGroup, deregister)
    replace(elb_v2.ELBv2Backend, create_load_balancer)
    replace(elb_v2.ELBv2Backend, create_listener)
    replace(elb_v2.ELBv2Backend, modify_listener)
    for name in ("delete_load_balancer", "create_listener", "modify_listener", "delete_listener"):
        setattr(elb_v2.ELBv2Backend, name, with_users(getattr(elb_v2.ELBv2Backend, name)))
    replace(AttributePicker, pick, "__call__")
    replace(TokenResponse, authenticate, "_authenticate_and_authorize_normal_action")
    responses.method_names_from_class = cache(method_names_from_class)


def replace(owner, function, name=None):
    name = name or function.__name__
    function.before = getattr(owner, name, None)
    setattr(owner, name, function)


def authenticate(self, resource="*"):
    """A web identity has no key to sign with."""
    if self._get_action() != "AssumeRoleWithWebIdentity":
        ActionAuthenticatorMixin._authenticate_and_authorize_normal_action(self, resource)


def describe_instance_topology(self):
    """moto does not have this action; AWS answers nothing for machines of small types."""
    return ActionResult({"Instances": []})


def delete_security_group(self, name=None, group_id=None):
    """AWS refuses to delete a group that a load balancer or a rule of another group uses."""
    place = self.account_id, self.region_name
    balancers = [
        *elb.elb_backends[place[0]][place[1]].load_balancers.values(),
        *elb_v2.elbv2_backends[place[0]][place[1]].load_balancers.values(),
    ]
    sources = (
        rule.source_group.get("GroupId")
        for groups in self.groups.values() for group in groups.values() if group.id != group_id
        for rule in group.ingress_rules
    )
    if any(group_id in (one.security_groups or ()) for one in balancers) or group_id in sources:
        raise DependencyViolationError(f"resource {group_id} has a dependent object")
    return delete_security_group.before(self, name, group_id)


def is_same_rule(self, other):
    """AWS does not compare descriptions; moto compares those of rules about a group."""
    def source(rule):
        return {key: value for key, value in rule.source_group.items() if key != "Description"}
    described = self.source_group
    if source(self) == source(other):
        self.source_group = other.source_group
    try:
        return is_same_rule.before(self, other)
    finally:
        self.source_group = described


def classic_load_balancer(self, *rest, ports, **named):
    classic_load_balancer.before(self, *rest, ports=ports, **named)
    # AWS checks the first listener's port of the machines until another check is configured.
    self.health_check = elb.FakeHealthCheck(
        timeout="5", healthy_threshold="10", unhealthy_threshold="2", interval="30", target=f"TCP:{ports[0]['InstancePort']}"
    )
    for listener, port in zip(self.listeners, ports):
        listener.instance_protocol = port.get("InstanceProtocol", listener.protocol).upper()


def get_load_balancer(self, name):
    """moto answers with an internal error where a load balancer does not exist."""
    if name not in self.load_balancers:
        raise LoadBalancerNotFoundError(name)
    return self.load_balancers[name]


def create_load_balancer_listeners(self, name, ports):
    balancer = self.get_load_balancer(name)
    for port in ports:
        wanted = elb.FakeListener(
            port["LoadBalancerPort"], port["InstancePort"], port["Protocol"], port.get("SSLCertificateId")
        )
        wanted.instance_protocol = port.get("InstanceProtocol", wanted.protocol).upper()
        there = [one for one in balancer.listeners if int(one.load_balancer_port) == int(wanted.load_balancer_port)]
        if not there:
            balancer.listeners.append(wanted)
        elif vars(there[0]) | {"policy_names": []} != vars(wanted):
            raise DuplicateClassicListener(name, wanted.load_balancer_port)
    return balancer


def delete_load_balancer_listeners(self, name, ports):
    """moto keeps listeners where a request names more than one."""
    balancer = self.get_load_balancer(name)
    doomed = {int(port) for port in ports}
    balancer.listeners = [one for one in balancer.listeners if int(one.load_balancer_port) not in doomed]
    return balancer


def deregister(self, targets):
    """AWS ignores targets that are not registered; moto refuses the call."""
    deregister.before(self, [target for target in targets if target["Id"] in self.targets])


def create_load_balancer(self, name, scheme, subnet_ids, subnet_mappings, **named):
    """A name is unique in an account and region, and an equal call succeeds; moto makes a second one."""
    subnets = {*(subnet_ids or ()), *(one["SubnetId"] for one in subnet_mappings or ())}
    for there in self.load_balancers.values():
        if there.name == name:
            if there.scheme != scheme or {subnet.id for subnet in there.subnets} != subnets:
                raise DuplicateLoadBalancerName()
            return there
    return create_load_balancer.before(
        self, name=name, scheme=scheme, subnet_ids=subnet_ids, subnet_mappings=subnet_mappings, **named
    )


def create_listener(self, load_balancer_arn, protocol, port, actions, **named):
    """A port is unique in a load balancer, and an equal call succeeds; moto makes a second listener."""
    balancer = self.load_balancers.get(load_balancer_arn)
    for there in balancer.listeners.values() if balancer else ():
        if int(there.port) == int(port):
            if there.protocol != protocol or [one.data for one in there.default_actions] != actions:
                raise DuplicateListenerError()
            return there
    return create_listener.before(
        self, load_balancer_arn=load_balancer_arn, protocol=protocol, port=port, actions=actions, **named
    )


def modify_listener(self, arn, port=None, protocol=None, ssl_policy=None, certificates=None, actions=None):
    """moto knows only the protocols of the other kind of load balancer here."""
    listener = modify_listener.before(self, arn, port, None, ssl_policy, certificates, actions)
    if protocol:
        listener.protocol = protocol
        chosen = [one["CertificateArn"] for one in certificates or []] if protocol == "TLS" else []
        listener.certificates, listener.certificate = chosen, chosen[0] if chosen else None
    return listener


def with_users(method):
    """A target group names the load balancers whose listeners use it; moto only adds names."""
    @wraps(method)
    def wrapped(self, *rest, **named):
        result = method(self, *rest, **named)
        users = {}
        for balancer in self.load_balancers.values():
            for listener in balancer.listeners.values():
                for action in listener.default_actions:
                    users.setdefault(action.data.get("TargetGroupArn"), {})[balancer.arn] = True
        for arn, group in self.target_groups.items():
            group.load_balancer_arns = list(users.get(arn, ()))
        return result
    return wrapped


# For each member of an answer: the names under which it may be an attribute of an object, and the
# functions that moto applies to its value. A shape is kept, so that no other one gets its ID.
plans = {}


def pick(self, context):
    """moto works out the plan again for each member of each object; half of all CPU time."""
    kind = id(context.shape), context.key, type(context.obj), id(self.response_transformers)
    if kind not in plans:
        names = list(dict.fromkeys(self.get_possible_keys(context)))
        transforms = [(path, done) for path, done in self.response_transformers.items() if path.split(".")[-1] == context.key]
        plans[kind] = names, transforms, (context.shape, self.response_transformers)
    names, transforms, _ = plans[kind]
    value = None
    for name in names:
        found = get_value(context.obj, name)
        if found is not MISSING:
            value = found
            break
    if transforms:
        path = f"{context.key_path}.{context.key}"
        for end, transform in transforms:
            if path.endswith(end):
                return transform(value)
    return value
