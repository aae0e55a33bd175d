# SPDX-License-Identifier: MIT
"""One suite of verbs programs (programs/conformance.c, programs/faults.c) over every way that frames can go: one process, the host switch with frames
and without, UDP between hosts, and the same over a bad wire. Completions and counters must be the same on all of them."""
import re

from cases_robust import FAULTS, both_ends, two_processes
from rig import Namespaces, Place, require

CONFORMANCE = ["full_of_unsignaled", "inline_too_long", "inline_needs_no_key", "zero_lengths", "write_with_immediate", "queue_overrun", "arming",
               "shared_receives", "psns_wrap", "atomics", "datagrams", "write_then_flag", "long_messages"]
NOT_RDMA_CORE = "inline_too_long"  # rdma-core 44 adds the lengths up in 32 bits and copies: it crashes
# A NAK that says why is sent once: the QP is in error then and answers nothing more. If it gets lost, the requester runs out of retries, on hardware
# too; so where frames get lost, the cases that wait for such NAKs are left out.
NAKS = "atomics"
TWISTED = "dup=0.05,reorder=0.05,seed=%d"
LOSSY = "drop=0.02,dup=0.01,reorder=0.01,seed=%d"


def transcript(out, one_process):
    """Case -> the completions of each queue of each end in their order, and the counters of both ends together."""
    cases, now = {}, {}
    for line in out.splitlines():
        m = re.match(r"([ab]) == (\w+)$", line)
        if m:
            now[m[1]] = cases.setdefault(m[2], {})
            continue
        m = re.match(r"([ab]) (send|recv) (.*)$", line)
        if m and m[1] in now:
            now[m[1]].setdefault(m[1] + " " + m[2], []).append(m[3])
        m = re.match(r"([ab]) counters (.*)$", line)
        if m:
            values = [int(v) for v in m[2].split()]
            counters = now[m[1]].setdefault("counters", [0] * len(values))
            if not one_process or m[1] == "a":  # both ends of a process read the same ones
                now[m[1]]["counters"] = [x + y for x, y in zip(counters, values)]
    return cases


class Suite:
    def __init__(self, hosts, core):
        left_out = NOT_RDMA_CORE if core else ""

        def place(**env):
            return Place(rdma_core=core, env=dict({"TRANSCRIPT": "1", "WITHOUT": left_out}, **env))

        def far(rules=None, **env):
            places = []
            for i in (0, 1):
                e = dict({"TRANSCRIPT": "1", "WITHOUT": left_out}, **env)
                if rules:
                    e["UHCA_IMPAIR"] = rules % (i + 1)
                places.append(hosts.place(i, rdma_core=core, env=e))
            return places
        here, framed = place(), place(UHCA_PATH="framed")
        self.ways = {"one process": lambda p: both_ends(here, p), "one host, direct": lambda p: two_processes(here, here, p),
                     "one host, frames": lambda p: two_processes(framed, framed, p), "two hosts": lambda p: two_processes(*far(), p),
                     "two hosts, doubled and reordered": lambda p: two_processes(*far(TWISTED), p),
                     "two hosts, with losses": lambda p: two_processes(*far(LOSSY, WITHOUT=left_out + " " + NAKS), p)}
        self.results = {}

    def run(self, way, program):
        if (way, program) not in self.results:
            out, status = self.ways[way](program)
            self.results[way, program] = (transcript(out, way == "one process"), out, status)
        return self.results[way, program]

    def case(self, way, program, name):
        cases, out, status = self.run(way, program)
        require(name in cases and (status == 0 or list(cases)[-1] != name), "did not pass; exit status %s:\n%s" % (status, out[-2500:]))
        if way == "one process":
            return
        reference = self.run("one process", program)[0].get(name)
        require(reference is not None, "it did not pass inside one process")
        require(cases[name] == reference, "differs from inside one process:\n%s\nthere:\n%s" % (cases[name], reference))

    def ended_well(self, way, program):
        _, out, status = self.run(way, program)
        require(status == 0, "exit status %s:\n%s" % (status, out[-2500:]))


def register(runner):
    with Namespaces() as hosts:
        for label, core in (("ours", False), ("rdma-core", True)):
            suite = Suite(hosts, core)
            for way in suite.ways:
                for program, names in (("conformance", CONFORMANCE), ("faults", FAULTS)):
                    losses = way == "two hosts, with losses"
                    if losses and program == "faults":
                        continue  # nearly all of them are about such NAKs
                    for name in names:
                        if (core and name == NOT_RDMA_CORE) or (losses and name == NAKS):
                            continue
                        runner.case("conformance %s/%s/%s" % (name, label, way), suite.case, way, program, name)
                    runner.case("conformance of %s ends well/%s/%s" % (program, label, way), suite.ended_well, way, program)
