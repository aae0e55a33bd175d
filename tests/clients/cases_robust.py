# SPDX-License-Identifier: MIT
"""Faults between two ends: completion errors, memory that goes away, cancellation and signals, SIGKILL, fork."""
import os
import random
import re
import time

from rig import BUILD, Failure, Namespaces, Place, finish, free_port, output, require, stop, wait_listening

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


def two_processes(a, b, name, gid="ipv4"):
    """Server b, client a: both outputs and the worse exit status."""
    port = free_port()
    server = b.start(program(name), "server", str(port), str(b.gid_index(gid)))
    client = a.start(program(name), "client", b.address, str(port), str(a.gid_index(gid)))
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


SIGNALS = ["cancelled_deferred", "cancelled_asynchronously", "cancelled_waiting", "jumped_out", "verbs_from_handlers", "small_stacks"]
RULES = ["states", "read_depth_is_limited", "lkey_for_rkey", "chain_with_a_bad_one", "completions_of_the_dead", "moderated_events"]
FORKS = ["child_talks_to_parent", "child_misuses_what_it_inherits", "helpers_are_harmless", "exec_keeps_nothing", "grandchildren"]


def alone(place, name):
    p = place.start(program(name), str(place.gid_index()))
    out = finish(p)
    return out, p.returncode


def passed(once, name):
    out, status = once.get()
    require("ok %s\n" % name in out, "did not pass; exit status %s:\n%s" % (status, out[-3000:]))


def residue():
    """What a killed process could leave behind on the host."""
    with open("/proc/net/unix") as f:
        names = sorted(w[7] for w in (line.split() for line in f) if len(w) > 7 and "uhca" in w[7])
    return names, sorted(n for n in os.listdir("/dev/shm") if "uhca" in n), sorted(n for n in os.listdir("/tmp") if n.startswith("uhca"))


def peers_killed(place, rounds=30):
    """One side stays and sees its peers die at random moments of their lives, one after the other."""
    before, port, gid = residue(), free_port(), str(place.gid_index())
    keeper = place.start(program("life"), "keeper", str(port), gid)
    peer = None
    try:
        wait_listening(keeper, port)
        for i in range(rounds):
            peer = place.start(program("life"), "peer", "127.0.0.1", str(port), gid, "1000")
            time.sleep(random.uniform(0.02, 0.3))
            require(peer.poll() is None, "the peer ended by itself, %s:\n%s" % (peer.returncode, output(peer)))
            stop(peer)
            require(keeper.poll() is None, "the survivor ended with %s after %d:\n%s" % (keeper.returncode, i, output(keeper)))
        peer = place.start(program("life"), "peer", "127.0.0.1", str(port), gid, "2")
        out = finish(peer, 30)
        require(peer.returncode == 0, "a new pair does not work: %s\n%s\nsurvivor:\n%s" % (peer.returncode, out, output(keeper)))
        deadline = time.time() + 20
        while "after 2 rounds" not in output(keeper) and time.time() < deadline:
            time.sleep(0.05)
        held = [int(n) for n in re.findall(r"; (\d+) descriptors", output(keeper))]
        require(len(held) > rounds // 3, "hardly a peer came far enough to be killed:\n" + output(keeper))
        # The connection to a peer that has just gone may still be open; what matters is that they do not add up.
        require(sorted(held[-5:])[2] <= sorted(held[:5])[2] and max(held) <= min(held) + 4, "the survivor's descriptors grow: %s" % held)
    finally:
        stop(keeper, *([peer] if peer else []))
    require(residue() == before, "left behind: %s, before: %s" % (residue(), before))


def keeper_killed(place, rounds=8):
    before, gid = residue(), str(place.gid_index())
    for _ in range(rounds):
        port = free_port()
        keeper = place.start(program("life"), "keeper", str(port), gid)
        peer = None
        try:
            wait_listening(keeper, port)
            peer = place.start(program("life"), "peer", "127.0.0.1", str(port), gid, "1000")
            time.sleep(random.uniform(0.1, 0.5))
            stop(keeper)
            out = finish(peer, 30)
            require(peer.returncode == 3 or "cannot connect" in out, "the survivor ended with %s:\n%s" % (peer.returncode, out))
        finally:
            stop(keeper, *([peer] if peer else []))
    require(residue() == before, "left behind: %s, before: %s" % (residue(), before))


def removed(place):
    p = place.start(program("removal"))
    out = finish(p)
    require(p.returncode == 0 and "ok" in out, "exit status %s:\n%s" % (p.returncode, out))


def removed_under_cm(place):
    """With addresses of a netdev, and with loopback's."""
    with Namespaces() as hosts:
        there = hosts.place(0, rdma_core=place.rdma_core, env=place.env)
        for where, ids in ((there, 3), (place, 2)):
            p = where.start(program("cm_removal"), where.address)
            out = finish(p)
            require(p.returncode == 0 and "\n%d ids heard of it" % ids in out, "%s: exit status %s:\n%s" % (where.address, p.returncode, out))


def register(runner):
    log = {"UHCA_LOG": "stderr"}
    # A13: the same program, the same expected completions, whichever way the frames go.
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
    for label, core in (("ours", False), ("rdma-core", True)):
        here = Place(rdma_core=core)
        for topic, names in (("signals", SIGNALS), ("forks", FORKS), ("rules", RULES)):
            once = Once(lambda h=here, t=topic: alone(h, t))
            for name in names:
                runner.case("%s %s/%s" % (topic, name, label), passed, once, name)
            runner.case("%s end well/%s" % (topic, label), ended_well, once)
        for what, env in (("", {}), (", destroying allowed", {"RDMAV_ALLOW_DISASSOC_DESTROY": "1"})):
            gone = Place(rdma_core=core, env={"UHCA_REMOVE_AFTER": "0.3", **env})
            runner.case("device removed%s/%s" % (what, label), removed, gone)
        leaving = Place(rdma_core=core, env={"UHCA_REMOVE_AFTER": "1"})
        runner.case("device removed under the connection manager/" + label, removed_under_cm, leaving)
        runner.case("peers killed at random/" + label, peers_killed, here, 30 if not core else 10)
        runner.case("keeper killed at random/" + label, keeper_killed, here, 6 if not core else 3)
