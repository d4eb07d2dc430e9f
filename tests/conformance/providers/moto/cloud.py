"""Amazon EC2 and Elastic Load Balancing by moto, with its check of signatures and policies on.

Prints a line of JSON with the port when it serves; then answers each line of JSON on its standard
input with one line. Ends with its standard input. A question names the operation in `do`; the
operation `account` makes an account of its own, which does not see the others.
"""

import json
import secrets
import sys
import threading
import traceback
from urllib.parse import parse_qsl

# moto prints warnings; the standard output is for answers.
answers, sys.stdout = sys.stdout, sys.stderr

from moto import settings
from moto.core.authorization import ActionAuthenticatorMixin
from moto.ec2.models import ec2_backends
from moto.elb.models import elb_backends
from moto.elbv2.models import elbv2_backends
from moto.iam.models import iam_backends
from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

import judge
import repairs

REGION = "eu-west-1"
ZONES = ("eu-west-1a", "eu-west-1b")
USER = ROLE = "skysail"

# Requests and questions one after the other: moto's objects have no locks.
turn = threading.Lock()


class Account:
    """An account with a VPC as a cluster needs it, and the access key of the provider."""

    all = {}

    def __init__(self, clusters, actions):
        self.id = f"{100_000_000_001 + len(self.all):012}"
        self.all[self.id] = self
        self.clusters = clusters
        self.ec2 = ec2_backends[self.id][REGION]
        # moto searches all of them for each machine.
        self.ec2.amis.clear()
        self.elb = elb_backends[self.id][REGION]
        self.elb_v2 = elbv2_backends[self.id][REGION]
        self.vpc = self.ec2.create_vpc("10.0.0.0/16").id
        self.subnets = [
            self.ec2.create_subnet(self.vpc, f"10.0.{128 * n}.0/17", availability_zone=zone).id
            for n, zone in enumerate(ZONES)
        ]
        for zone, subnet in zip(ZONES, self.subnets):
            self.ec2.create_tags([subnet], self.tags("shared") | {"kubernetes.io/role/elb": "1", "Name": zone})
        self.gateway = self.ec2.create_internet_gateway().id
        self.ec2.attach_internet_gateway(self.gateway, self.vpc)
        self.table = self.ec2.create_route_table(self.vpc)
        for subnet in self.subnets:
            self.ec2.associate_route_table(self.table.id, subnet_id=subnet)
        self.ec2.create_route(self.table.id, "0.0.0.0/0", gateway_id=self.gateway)
        self.group = self.ec2.create_security_group("nodes", "the nodes of the clusters", self.vpc).id
        self.ec2.create_tags([self.table.id, self.group], self.tags("shared"))
        # What annotations name.
        self.own_group = self.ec2.create_security_group("own", "a group of the user", self.vpc).id
        self.addresses = [self.ec2.allocate_address("vpc").allocation_id for _ in ZONES]
        self.iam = iam_backends[self.id]["aws"]
        self.iam.create_user(REGION, USER)
        policy = {"Effect": "Allow", "Action": actions, "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [policy]})
        self.iam.put_user_policy(USER, "README", policy)
        self.key = self.iam.create_access_key(USER)
        # The role of a web identity, whose only token this is.
        self.identity = secrets.token_urlsafe(32)
        trust = {"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity", "Principal": {"Federated": "cluster"}}
        trust = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        self.role = self.iam.create_role(ROLE, trust, "/", None, "", [], "3600").arn
        self.iam.put_role_policy(ROLE, "README", policy)

    def tags(self, value):
        return {f"kubernetes.io/cluster/{cluster}": value for cluster in self.clusters}

    def add_machines(self, names):
        """Running machines, the first half in the first zone."""
        half = (len(names) + 1) // 2
        machines = []
        for subnet, part in zip(self.subnets, (names[:half], names[half:])):
            reservation = self.ec2.run_instances(
                "ami-0123456789abcdef0", len(part), None, [], instance_type="t3.small", is_instance_type_default=False,
                region_name=REGION, subnet_id=subnet, security_group_ids=[self.group], block_device_mappings=[],
                tags={"instance": self.tags("owned")},
            )
            for name, machine in zip(part, reservation.instances):
                machine.add_tag("Name", name)
                machines.append({
                    "id": machine.id, "zone": self.zone(subnet), "address": machine.private_ip,
                    "dns": machine.private_dns_name,
                })
        return machines

    def stop_machine(self, machine):
        self.ec2.stop_instances([machine])

    def delete_machine(self, machine):
        self.ec2.terminate_instances([machine])

    def revoke(self):
        self.iam.delete_access_key(self.key.access_key_id, USER)
        self.iam.delete_role_policy(ROLE, "README")

    def groups(self):
        return self.ec2.groups[self.vpc]

    def routes(self):
        """Every route of every table of the VPC."""
        def target(route):
            if route.instance:
                return f"machine {self.machine(route.instance.id)}"
            return route.gateway_id
        tables = self.ec2.route_tables.values()
        return [
            f"{route.destination_cidr_block} to {target(route)}"
            for table in tables if table.vpc_id == self.vpc for route in table.routes
        ]

    def forwarding(self):
        """The machines without the check of source and destination, which they have again then."""
        machines = [one for one in self.ec2.all_instances() if one.source_dest_check in (False, "false")]
        for one in machines:
            one.source_dest_check = True
        return [self.machine(one.id) for one in machines]

    def machine(self, machine):
        return self.ec2.tags[machine]["Name"]

    def zone(self, subnet):
        return self.ec2.get_subnet(subnet).availability_zone

    def group_name(self, group):
        return self.groups()[group].name if group in self.groups() else "a group that is gone"

    def balancers(self):
        """Everything that a load balancer consists of, without IDs."""
        return [*self.group_lines(), *self.classic_lines(), *self.network_lines(), *self.target_lines()]

    def group_lines(self):
        for group in self.groups().values():
            tags = told(self.ec2.tags.get(group.id, {}))
            yield f"group {group.name} {group.description!r} {tags}"
            for rule in group.ingress_rules:
                source = rule.cidr_ipv4 or rule.cidr_ipv6 or f"group {self.group_name(rule.source_group['GroupId'])}"
                ports = f"{rule.ip_protocol} {rule.from_port}-{rule.to_port}"
                yield f"rule of group {group.name}: {ports} from {source} {rule.description or ''!r}"

    def classic_lines(self):
        for one in self.elb.load_balancers.values():
            name = f"Classic {one.name}"
            zones, groups = map(self.zone, one.subnets), map(self.group_name, one.security_groups)
            yield f"{name} {one.scheme} in {sorted(zones)} with {sorted(groups)} {told(one.tags)}"
            yield f"{name} has {sorted(map(self.machine, one.instance_ids))}"
            if check := one.health_check:
                numbers = [check.interval, check.timeout, check.healthy_threshold, check.unhealthy_threshold]
                yield f"{name} checks {check.target} {numbers}"
            for feature, values in one.attributes.items():
                if feature == "additional_attributes":
                    # The provider has none, and moto adds a default with each write.
                    continue
                # moto keeps the names of the last request beside its own ones.
                values = {key.lower().replace("_", ""): value for key, value in values.items()}
                # The other values of a feature that is off have no effect.
                yield f"{name} {feature} {'off' if values.get('enabled') is False else told(values)}"
            for listener in one.listeners:
                there = f"{listener.protocol} {listener.load_balancer_port}"
                behind = f"{listener.instance_protocol} {listener.instance_port}"
                policies = self.policies(one, listener)
                yield f"{name} listens {there} to {behind} {listener.ssl_certificate_id or ''} {policies}"
            for backend in one.backends:
                if backend.policy_names:
                    yield f"{name} backend {backend.instance_port} {self.policies(one, backend)}"

    @staticmethod
    def policies(balancer, user):
        """A policy that nothing uses has no effect, and stays as long as its load balancer."""
        return sorted(f"{one.policy_type_name} {one.policy_name}" for one in balancer.policies if one.policy_name in user.policy_names)

    def network_lines(self):
        tags = self.elb_v2.tagging_service
        for one in self.elb_v2.load_balancers.values():
            name = f"Network {one.name}"
            zones = sorted(subnet.availability_zone for subnet in one.subnets)
            groups = sorted(map(self.group_name, one.security_groups or []))
            yield f"{name} {one.type} {one.scheme} in {zones} with {groups} {told(tags.get_tag_dict_for_resource(one.arn))}"
            attributes = {"access_logs.s3.enabled": "false"} | one.attrs
            if attributes["access_logs.s3.enabled"] == "false":
                attributes |= {"access_logs.s3.bucket": "", "access_logs.s3.prefix": ""}
            yield f"{name} attributes {told(attributes)}"
            for listener in one.listeners.values():
                [action] = listener.default_actions
                target = self.elb_v2.target_groups.get(action.data.get("TargetGroupArn"))
                target = self.target_name(target) if target else "a target group that is gone"
                tls = f"{listener.ssl_policy} {listener.certificate}" if listener.certificate else ""
                tagged = told(tags.get_tag_dict_for_resource(listener.arn))
                yield f"{name} listens {listener.protocol} {listener.port} to {target} {tls} {tagged}"

    @staticmethod
    def target_name(group):
        """Without the digest at the end, which is an ID that the provider makes."""
        return f"{group.name.rpartition('-')[0]} {group.protocol} {group.port}"

    def target_lines(self):
        tags = self.elb_v2.tagging_service
        for one in self.elb_v2.target_groups.values():
            name = f"targets {self.target_name(one)}"
            numbers = [one.health_check_interval_seconds, one.healthy_threshold_count, one.unhealthy_threshold_count]
            check = f"{one.health_check_protocol} {one.health_check_port} {one.health_check_path} {numbers}"
            users = sorted(self.elb_v2.load_balancers[arn].name for arn in one.load_balancer_arns)
            yield f"{name} of {users} checks {check} {told(tags.get_tag_dict_for_resource(one.arn))}"
            yield f"{name} attributes {told(one.attributes)}"
            for target in one.targets.values():
                yield f"{name} has {self.machine(target['Id'])}:{target['Port']}"


def told(values):
    return json.dumps(values, sort_keys=True)


def answer(question):
    match question["do"]:
        case "account":
            account = Account(question["clusters"], question["actions"])
            return {
                "account": account.id, "vpc": account.vpc,
                "names": dict(zip(("subnet-a", "subnet-b"), account.subnets), group=account.own_group)
                | dict(zip(("address-a", "address-b"), account.addresses)),
                "key": account.key.access_key_id, "secret": account.key.secret_access_key,
                "role": account.role, "identity": account.identity,
            }
        case operation:
            account = Account.all[question["account"]]
            match operation:
                case "add":
                    return account.add_machines(question["names"])
                case "stop":
                    account.stop_machine(question["machine"])
                case "delete":
                    account.delete_machine(question["machine"])
                case "revoke":
                    account.revoke()
                case "balancers":
                    return sorted(account.balancers())
                case "routes":
                    return sorted(account.routes())
                case "forwarding":
                    return sorted(account.forwarding())
    return {}


def refuse_identity(environ):
    """moto gives a role to each token; AWS asks the issuer about it."""
    form = dict(parse_qsl(environ["wsgi.input"].getvalue().decode()))
    who = form.get("RoleArn"), form.get("WebIdentityToken")
    if not any(who == (account.role, account.identity) for account in Account.all.values()):
        return judge.document("sts", "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
    return None


class Quiet(MotoRequestHandler):
    """A request for each line of the standard error would hide the reason of a failure."""

    def log_request(self, code="-", size="-"):
        pass


def serve():
    apps = {name: create_backend_app(name) for name in ("ec2", "elb", "sts")}

    def app(environ, start_response):
        with turn:
            service, refusal = judge.refuse(environ)
            if service == "sts" and refusal is None:
                refusal = refuse_identity(environ)
            if refusal is None:
                return apps["elb" if service == "elbv2" else service](environ, start_response)
            start_response("400 Bad Request", [("Content-Type", "text/xml")])
            return [refusal.encode()]

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def main():
    repairs.apply()
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    ActionAuthenticatorMixin.request_count = 0
    print(json.dumps({"port": serve(), "region": REGION}), file=answers, flush=True)
    for line in sys.stdin:
        with turn:
            try:
                reply = answer(json.loads(line))
            except Exception as error:
                traceback.print_exc()
                reply = {"error": repr(error)}
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()
