# SPDX-License-Identifier: MIT
"""Raw packet QPs, flow rules and RSS: programs/raw_packets.c and perftest's raw_ethernet programs. All of it needs CAP_NET_RAW."""
import os
import re

from cases_robust import program
from rig import Place, finish, output, require, stop, wait_for


def unicast():
    """An address that is nobody's."""
    return "02:00:00:00:%02x:%02x" % (os.getpid() >> 8 & 0xff, os.getpid() & 0xff)


def alone(place, what, name="raw_packets"):
    out_of = place.start(program(name), what)
    out = finish(out_of)
    require(out_of.returncode == 0 and "ok" in out, "exit status %s:\n%s" % (out_of.returncode, out))


def between(receiver_place, sender_place):
    receiver = receiver_place.start(program("raw_packets"), "receive")
    sender = None
    try:
        wait_for(lambda: "ready" in output(receiver), receiver, "was ready")
        sender = sender_place.start(program("raw_packets"), "send")
        out = finish(sender)
        require(sender.returncode == 0 and "ok" in out, "sender: exit status %s:\n%s" % (sender.returncode, out))
        out = finish(receiver)
        require(receiver.returncode == 0 and "ok" in out, "receiver: exit status %s:\n%s" % (receiver.returncode, out))
    finally:
        stop(*[p for p in (receiver, sender) if p])


def takes_part():
    """How many programs wait for Ethernet frames (docs/support.md)."""
    return len(re.findall("@uhca/v1/eth/", open("/proc/net/unix").read()))


def perftest(place, name, *options):
    mac, before = unicast(), takes_part()
    common = [name, "-d", "mlx5_0", "-E", mac, "-B", mac] + list(options)
    server = place.start(*common, "--server")
    client = None
    try:
        wait_for(lambda: takes_part() > before, server, "had a rule")
        client = place.start(*common, "--client")
        for p in (client, server):
            out = finish(p, 60)
            require(p.returncode == 0 and re.search(r"^ *\d+ +\d+ +[\d.]+", out, re.M), "%s: exit status %s:\n%s" % (name, p.returncode, out))
    finally:
        stop(*[p for p in (server, client) if p])


def register(runner):
    if os.geteuid() != 0:
        return
    ours, core = Place(), Place(rdma_core=True)
    for label, place in (("ours", ours), ("rdma-core", core)):
        for what in ("rules", "refusals"):
            runner.case("raw packets, %s/%s" % (what, label), alone, place, what)
        for what in ("traffic", "refusals"):
            runner.case("raw packets, rules of the device's format, %s/%s" % (what, label), alone, place, what, "dv_flow")
        runner.case("raw packets between processes/%s" % label, between, place, place)
        # As many frames as its receive queue holds: a receiver that is too slow for more loses some, and waits for them for ever.
        runner.case("raw_ethernet_bw/%s" % label, perftest, place, "raw_ethernet_bw", "-n", "500", "-s", "1024")
        runner.case("raw_ethernet_lat/%s" % label, perftest, place, "raw_ethernet_lat", "-n", "500", "-s", "256")
    runner.case("raw packets between processes/rdma-core to ours", between, ours, core)
