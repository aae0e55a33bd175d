# SPDX-License-Identifier: MIT
"""Debian's pingpongs of the other transports and queues: UC, UD with address handles, SRQ, XRC; multicast groups."""
import os

from cases_robust import two_processes
from rig import BUILD, Namespaces, Place, finish, free_port, pair, pingpong, require

PROGRAMS = (("ibv_uc_pingpong", ["-n", "1000"], True), ("ibv_uc_pingpong", ["-s", "100000", "-n", "100"], True), ("ibv_uc_pingpong", ["-e"], True),
            ("ibv_ud_pingpong", ["-s", "1024"], True), ("ibv_ud_pingpong", ["-s", "1", "-n", "100"], True), ("ibv_ud_pingpong", ["-s", "1024", "-e"], True),
            ("ibv_srq_pingpong", ["-q", "16"], True), ("ibv_srq_pingpong", ["-q", "4", "-e", "-n", "200"], True))


def register(runner):
    def cases(where, a, b, label):
        for program, options, validate in PROGRAMS:
            runner.case("%s %s/%s/%s" % (program[4:], " ".join(options), label, where), pingpong, a, b, *options, program=program, validate=validate)
        # Its server takes the number of clients, and -c means that.
        runner.case("xsrq_pingpong/%s/%s" % (label, where), xsrq, a, b)

    for label, core in (("ours", False), ("rdma-core", True)):
        here = Place(rdma_core=core)
        cases("one host", here, here, label)
        runner.case("groups/%s" % label, groups, here)
        runner.case("groups between processes/%s" % label, far_groups, here, here)
    with Namespaces() as hosts:
        for label, core in (("ours", False), ("rdma-core", True)):
            a, b = hosts.place(0, rdma_core=core), hosts.place(1, rdma_core=core)
            cases("two hosts", a, b, label)
            runner.case("groups between hosts/%s" % label, far_groups, a, b)
            runner.case("groups between hosts, IPv6/%s" % label, far_groups, a, b, "ipv6")


def groups(place):
    p = place.start(os.path.join(BUILD, "bin", "clients", "groups"), str(place.gid_index()))
    out = finish(p)
    require(p.returncode == 0 and "ok" in out, out)


def far_groups(member, speaker, gid="ipv4"):
    out, status = two_processes(speaker, member, "far_groups", gid)
    require(status == 0, "exit status %s:\n%s" % (status, out))


def xsrq(server, client):
    port = free_port()
    common = ["ibv_xsrq_pingpong", "-d", "mlx5_0", "-p", str(port)]
    outs = pair(server, client, common + ["-g", str(server.gid_index()), "-c", "1"], common + ["-g", str(client.gid_index()), server.address], port)
    for out in outs:
        require("success" in out, "no success:\n" + out)
