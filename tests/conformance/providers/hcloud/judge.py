#!/usr/bin/env python3
"""Prints what Hetzner's SDK reads in a project, as one line of JSON.

Usage: judge.py ENDPOINT, with the token in the environment variable HCLOUD_TOKEN
"""
import json
import os
import sys

from hcloud import Client


def service(one):
    check = one.health_check
    return {
        "protocol": one.protocol,
        "listen_port": one.listen_port,
        "destination_port": one.destination_port,
        "proxyprotocol": one.proxyprotocol,
        "check": [check.protocol, check.port, check.interval, check.timeout, check.retries],
    }


client = Client(token=os.environ["HCLOUD_TOKEN"], api_endpoint=sys.argv[1], timeout=60)
names = {server.id: server.name for server in client.servers.get_all()}
balancers = []
for balancer in client.load_balancers.get_all():
    # A type and a network come as references; the SDK reads them when they are asked for.
    networks = [net.network.name for net in balancer.private_net]
    balancers.append({
        "name": balancer.name,
        "type": balancer.load_balancer_type.name,
        "location": balancer.location.name,
        "labels": balancer.labels,
        "networks": networks,
        "services": sorted(map(service, balancer.services), key=lambda one: one["listen_port"]),
        "targets": sorted([names[target.server.id], target.use_private_ip] for target in balancer.targets),
    })
routes = [[route.destination, route.gateway] for network in client.networks.get_all() for route in network.routes]
print(json.dumps({"load_balancers": balancers, "routes": sorted(routes)}))
