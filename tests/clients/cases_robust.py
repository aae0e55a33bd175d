# SPDX-License-Identifier: MIT
"""Faults between two ends: completion errors, memory that goes away, cancellation and signals, SIGKILL, fork."""
import os
import re

from rig import BUILD, Failure, Namespaces, Place, finish, free_port, output, pair, require, stop

PROGRAMS = os.path.join(BUILD, "bin", "clients")

MR = r"MR lkey (0x[0-9a-f]+) \[(0x[0-9a-f]+), (0x[0-9a-f]+)\): memory was %s while registered"
# Case of programs/faults.c: what the log must say about it.
FAULTS = {
    "no_receive_no_retries": None,
    "no_receive_yet": None,
    "no_such_qp": r"0xabcde",
    "error_then_flushes": r"remote read of mkey .* wrong key variant",
    "flush_by_command": None,
    "send_past_mr": r"out of range; the key 0x[0-9a-f]+ covers \[0x[0-9a-f]+, \+0x2000\)",
    "send_wrong_lkey": r"wrong key variant",
    "send_other_pd": r"key of another PD",
    "send_deregistered": r"no such key",
    "receive_not_writable": r"local write of mkey .* right missing",
    "read_into_not_writable": r"local write of mkey .* right missing",
    "receive_too_short": r"128",
    "sum_of_lengths": None,
    "rkey_wrong": r"wrong key variant",
    "rkey_past_mr": r"out of range",
    "rkey_end_of_space": r"bytes \[0xfffffffffffffff8, \+0x10\): out of range",
    "rkey_no_right": r"right missing",
    "rkey_other_pd": r"key of another PD",
    "unmapped_same": MR % r"unmapped \(munmap\)",
    "unmapped_longer": MR % r"unmapped \(munmap\)",
    "unmapped_nothing_there": MR % r"unmapped \(munmap\)",
    "unmapped_in_part": MR % r"unmapped \(munmap\)",
    "mremapped": MR % r"moved or shrunk \(mremap\)",
    "discarded": MR % r"discarded by madvise",
    "mapped_over": MR % r"replaced \(mmap MAP_FIXED\)",
    "moved_over": MR % r"replaced \(mremap MREMAP_FIXED\)",
    "broken": MR % r"given back \(sbrk\)",
    "detached": MR % r"detached \(shmdt\)",
    "send_unmapped": MR % r"unmapped \(munmap\)",
    "receive_unmapped": MR % r"unmapped \(munmap\)",
}


def program(name):
    return os.path.join(PROGRAMS, name)


def both_ends(place, name):
    p = place.start(program(name), "both", str(place.gid_index()))
    out = finish(p)
    return out, p.returncode


def two_processes(a, b, name):
    """Server b, client a: both outputs and the worse exit status."""
    port = free_port()
    server = b.start(program(name), "server", str(port), str(b.gid_index()))
    client = a.start(program(name), "client", b.address, str(port), str(a.gid_index()))
    try:
        outs = finish(client) + finish(server)
    finally:
        stop(server, client)
    return outs, client.returncode or server.returncode


class Once:
    """One run of a program shows many cases; it is made when the first of them is asked for."""

    def __init__(self, run):
        self.run, self.result = run, None

    def get(self):
        if self.result is None:
            self.result = self.run()
        return self.result


def fault(once, name):
    out, status = once.get()
    parts = re.findall(r"^== %s\n(.*?)^ok %s\n" % (name, name), out, re.S | re.M)
    if not parts:
        raise Failure("did not pass; exit status %s:\n%s" % (status, out[-3000:]))
    # Both ends in one process write into one log: from the first beginning to the last end.
    text = out[out.index("== %s\n" % name):out.rindex("ok %s\n" % name)] if len(parts) == 1 else "".join(parts)
    reason = FAULTS[name]
    if reason is None:
        return
    found = re.search(reason, text)
    require(found, "no reason %r in:\n%s" % (reason, text[:3000]))
    if "MR lkey" in reason:
        named = re.search(r"^MR (0x[0-9a-f]+) \[(0x[0-9a-f]+), (0x[0-9a-f]+)\)$", text, re.M)
        require(named and named.groups() == found.groups(), "the reason names %s:\n%s" % (found.groups(), text[:3000]))


def ended_well(once):
    out, status = once.get()
    require(status == 0, "exit status %s:\n%s" % (status, out[-3000:]))


def register(runner):
    log = {"UHCA_LOG": "stderr"}
    with Namespaces() as hosts:
        for label, core in (("ours", False), ("rdma-core", True)):
            here = Place(rdma_core=core, env=log)
            a, b = (hosts.place(i, rdma_core=core, env=log) for i in (0, 1))
            for where, run in (("one process", lambda h=here: both_ends(h, "faults")), ("one host", lambda h=here: two_processes(h, h, "faults")),
                               ("two hosts", lambda x=a, y=b: two_processes(x, y, "faults"))):
                once = Once(run)
                for name in FAULTS:
                    runner.case("fault %s/%s/%s" % (name, label, where), fault, once, name)
                runner.case("faults end well/%s/%s" % (label, where), ended_well, once)
