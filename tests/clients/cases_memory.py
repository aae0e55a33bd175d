# SPDX-License-Identifier: MIT
"""Memory regions that are no pinned memory: device memory, memory on demand, dma-bufs."""
from rig import Namespaces, Place, finish, perftest, pingpong, require
from cases_robust import program

NOBODY, DAEMON = 65534, 1


def kind(place, name):
    run(place, "memory_kinds", name, str(place.gid_index()))


def run(place, name, *arguments):
    p = place.start(program(name), *arguments)
    out = finish(p)
    require(p.returncode == 0, "status %d:\n%s" % (p.returncode, out))


def register(runner):
    kinds = {"device memory": "-j", "on demand": "-o", "implicit on demand": "-O"}
    for label, core in (("ours", False), ("rdma-core", True)):
        here = Place(rdma_core=core)
        for name in ("device_memory", "on_demand", "on_demand_hole", "dma_buf", "many"):
            runner.case("memory kind %s/%s" % (name, label), kind, here, name)
        runner.case("memory kind operations that move/%s" % label, run, here, "dv_dm", *([] if core else ["wrap"]))
        for what, option in kinds.items():
            options = [option] + (["-P"] if option != "-j" else [])
            runner.case("memory kind rc_pingpong %s/%s/one host" % (what, label), pingpong, here, here, *options)
            runner.case("memory kind rc_pingpong %s/%s/two users" % (what, label), pingpong, Place(user=NOBODY, rdma_core=core),
                        Place(user=DAEMON, rdma_core=core), option, "-s", "10000")
        for program_ in ("ib_write_bw", "ib_read_lat", "ib_send_bw"):
            runner.case("memory kind %s --odp/%s/one host" % (program_, label), perftest, here, here, program_, "-n", "500", "--odp")
    with Namespaces() as hosts:
        a, b = hosts.place(0), hosts.place(1)
        for what, option in kinds.items():
            runner.case("memory kind rc_pingpong %s/two hosts" % what, pingpong, a, b, option, "-n", "200", "-s", "5000")
