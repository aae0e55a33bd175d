# SPDX-License-Identifier: MIT
"""Faults on purpose (`uhca run --fault`): whatever fails while objects are made leaves nothing behind, and works at the next try."""
import collections
import json
import os
import re
import subprocess

from rig import LIMIT, Place, require
from cases_robust import program

PAIRS = (("CREATE_", "DESTROY_"), ("ALLOC_", "DEALLOC_"))


def traced(place, *options):
    """What dv_creates printed, and the commands of the trace, in order: (name, status, made to fail by a rule). rdma-core opens a device again
    without DEVX when it cannot have it; the program cannot go on then."""
    command = place.prefix() + ["timeout", str(LIMIT), os.path.join(os.path.dirname(program("x")), "..", "uhca"), "trace", "--json", "--layers", "cmd,refuse"]
    command += (["--rdma-core"] if place.rdma_core else []) + list(options) + ["--", program("dv_creates"), str(place.gid_index())]
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=place.environment())
    no_devx = place.rdma_core and "CREATE_UCTX: LIM: a rule" in p.stderr and "Operation not supported" in p.stdout
    require(p.returncode == 0 or no_devx, "%s: status %d:\n%s\n%s" % (" ".join(options), p.returncode, p.stdout, p.stderr[-2000:]))
    commands, planned = [], None
    for line in p.stderr.splitlines():
        if not line.startswith("{"):
            continue
        e = json.loads(line)
        if e["layer"] == "refuse" and "a rule makes this" in e.get("reason", ""):
            planned = True
        if e["layer"] == "cmd":
            commands.append((e["name"], e.get("status"), bool(planned)))
            planned = None
    return p.stdout, commands


def balance(commands):
    """How many more objects of a kind were made than destroyed."""
    left = collections.Counter()
    for name, status, _ in commands:
        for make, end in PAIRS:
            if status == "OK" and name.startswith(make):
                left[name[len(make):]] += 1
            elif status == "OK" and name.startswith(end):
                left[name[len(end):]] -= 1
    return left


def is_told(name):
    """Linux's driver goes on where what fails is an end, or a step that leads to one, or a question."""
    return not (name.startswith(("DESTROY_", "DEALLOC_", "DELETE_", "QUERY_", "ACCESS_REG")) or name in ("TO_2RST_QP", "MODIFY_RQ", "MODIFY_SQ"))


def each_command_fails(place, step):
    out, commands = traced(place)
    require("\n0 failed" in "\n" + out, out)
    usual = balance(commands)
    tried = told = 0
    silent = []
    for nth in range(1, 1000, step):
        out, commands = traced(place, "--fault", "cmd=any,nth=%d,status=LIM" % nth)
        failed = [c for c in commands if c[2]]
        if not failed:
            break
        tried += 1
        told += "failed: " in out
        name = failed[0][0]
        if name == "CREATE_UCTX" and place.rdma_core:
            continue
        left = balance(commands)
        left.subtract(usual)
        left = {k: n for k, n in left.items() if n}
        # What cannot be destroyed when its file is closed stays with the device, and what it is in with it, as in Linux.
        ends = [name[len(end):] for _, end in PAIRS if name.startswith(end)]
        of_tables = name in ("DELETE_FLOW_TABLE_ENTRY", "SET_FLOW_TABLE_ROOT") and "failed: " not in out
        require(not left or (set(left.values()) == {1} and (of_tables and not set(left) - {"FLOW_TABLE", "FLOW_GROUP"} or
                                                            ends and ends[0] in left and len(left) <= 2)),
                "command %d, %s: left behind: %s\n%s" % (nth, name, left, out))
        if of_tables:
            continue
        if "failed: " not in out and is_told(name):
            silent.append("%d %s" % (nth, name))
    require(not silent, "nobody was told of " + ", ".join(silent))
    require(nth < 900 and tried >= 100 // step and told > tried // 2, "%d commands failed, %d times the program was told" % (tried, told))


def each_fails(place, what, least, errors):
    """Pinnings and allocations: the program is told, with the rule's errno."""
    _, commands = traced(place)
    usual = balance(commands)
    tried = 0
    for nth in range(1, 1000):
        out, commands = traced(place, "--fault", "%s,nth=%d,errno=%s" % (what, nth, errors))
        if "\n0 failed" in "\n" + out:
            break
        tried += 1
        require("failed: " in out and ": %s\n" % errors in out, out)
        left = balance(commands)
        left.subtract(usual)
        require(not any(left.values()), "%s %d: left behind: %s\n%s" % (what, nth, left, out))
    require(tried >= least, "%d of them failed" % tried)


def wrong_rules(place):
    for rule in ("cmd", "cmd=CREATE_FOO", "cmd=CREATE_QP,status=NOPE", "cmd=CREATE_QP,nth=0", "cmd=CREATE_QP,errno=ENOMEM", "pin=1", "pin,errno=EFOO", "page"):
        p = subprocess.run(place.uhca("true")[:-2] + ["--fault", rule, "--", "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        require(p.returncode != 0 and "--fault" in p.stdout, "%s: %s" % (rule, p.stdout))


def one_object(place):
    """A rule by name, as the manual shows it."""
    out, commands = traced(place, "--fault", "cmd=CREATE_QP,nth=2,status=NO_RES")
    require(re.search(r"failed: make_qp\(IBV_QPT_UC\): E\w+\n", out) and "\n1 failed" in out, out)
    require([c[1] for c in commands if c[0] == "CREATE_QP" and c[2]] == ["NO_RES"], out)


def register(runner):
    long = bool(os.environ.get("UHCA_LONG"))
    for label, core in (("ours", False), ("rdma-core", True)):
        here = Place(rdma_core=core)
        runner.case("each command fails once/%s" % label, each_command_fails, here, 1 if long or not core else 3)
        runner.case("each pinning fails once/%s" % label, each_fails, here, "pin", 10, "EFAULT")
    runner.case("one command fails, by name", one_object, Place())
    runner.case("rules of faults that are none", wrong_rules, Place())
