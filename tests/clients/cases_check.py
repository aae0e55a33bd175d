# SPDX-License-Identifier: MIT
"""uhca run --check names the rule that a program breaks and the place where it does (programs/unsound.c), and finds nothing in the twin that
keeps it, nor in programs that are right."""
import os
import re
import subprocess

from rig import BUILD, LIMIT, Place, UHCA, require

UNSOUND = os.path.join(BUILD, "bin", "clients", "unsound")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# Program, rule, what is said, the function at whose call it must point.
BREAKS = [
    ("buffer-changed", "buffer-changed", r"the buffer 0x\w+\+1024 of a request on QP 0x\w+ has changed between its post and its completion", "bad_place"),
    ("buffer-changed-unsignalled", "buffer-changed", r"the buffer 0x\w+\+64 of a request", "bad_place"),
    ("memory-unmapped", "mr-memory-gone", r"munmap takes memory away that is registered: MR with lkey 0x\w+, 0x\w+\+65536", "leave"),
    ("memory-freed", "mr-memory-gone", r"free takes memory away that is registered", "leave"),
    ("read-fence", "read-fence", r"sends 0x\w+\+64, where an earlier READ on QP 0x\w+ that has not completed puts its data", "bad_place"),
    ("sge-outside", "bad-sge", r"names 0x\w+\+257, outside of its MR 0x\w+ \(0x\w+\+512\)", "bad_place"),
    ("sge-of-other-pd", "bad-sge", r"uses lkey 0x\w+, which belongs to another PD than its QP", "bad_place"),
    ("dead-lkey", "dead-key", r"uses lkey 0x\w+, whose MR has been deregistered", "bad_place"),
    ("dead-rkey", "dead-key", r"uses rkey 0x\w+ of process \d+, which is no longer valid: deregistered at \S+", "bad_place"),
    ("invalidated-rkey", "dead-key", r"uses rkey 0x\w+ of process \d+, which is no longer valid: invalidated by SEND_WITH_INV at \S+", "bad_place"),
    ("error-field", "error-field", r"opcode of a completion with status 10 is read", "look"),
    ("error-field-ex", "error-field", r"ibv_wc_read_opcode of a completion with status 5", "look_ex"),
    ("short-receive-queue", "short-receive-queue", r"request 2 on QP 0x\w+ that takes a receive, but its peer \(QP 0x\w+, process \d+\) has posted 1 so far", "bad_place"),
    ("unsignalled", "unsignalled-overflow", r"is full of 16 requests without IBV_SEND_SIGNALED: no completion can free it", "fill"),
    ("write-order", "write-order", r"a WRITE of 8 bytes behind one of 2048 that has not completed: with IBV_ACCESS_RELAXED_ORDERING", "bad_place"),
    ("no-grh", "no-grh", r"the address of QP 0x\w+ has no GRH", "connect_as"),
    ("empty-sgid", "wrong-gid", r"uses sgid_index 200, where the port has no GID; it has 0 \S+", "connect_as"),
    ("other-kind-of-gid", "wrong-gid", r"one is an IPv4 address, the other is not", "connect_as"),
    ("leak", "leak", r"a MR \(0x\w+\) still exists when the program ends", "leaky"),
]


def check(*words, rdma_core=False, env=None):
    command = [UHCA, "run", "--check"] + (["--rdma-core"] if rdma_core else []) + ["--"] + list(words)
    env = dict({"PATH": os.path.dirname(UHCA) + ":" + os.environ["PATH"]}, **(env or {}))
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT, cwd=ROOT, env=dict(os.environ, **env))
    findings = re.findall(r"^uhca check: ([\w-]+): (.*) \(process \d+\)\n((?:(?!uhca check).*\n)*)", r.stderr, re.M)
    return r.returncode, findings, r.stdout + r.stderr


def breaks(name, rule, says, place, rdma_core):
    status, findings, text = check(UNSOUND, name, "bad", str(Place().gid_index()), rdma_core=rdma_core)
    require(status == 66, "exit status %d:\n%s" % (status, text))
    mine = [f for f in findings if f[0] == rule and (rule != "leak" or "MR" in f[1])]
    if name == "error-field" and any(f[0] == "note" and "perf_event_open" in f[1] for f in findings):
        require("opcode 0xdeadbeef" in text, "not poisoned:\n" + text)
        return
    require(len(mine) == 1 and re.search(says, mine[0][1]), "says:\n%s\nwanted: %s" % (text, says))
    # The innermost frames: function and line, from the debug information of the build.
    first = mine[0][2].split(":\n")[1]
    require("libuhca" not in first, "frames of the library:\n" + mine[0][2])
    require(re.search(r"#\d %s at unsound\.c:\d+ \(unsound\+0x\w+\)" % place, first), "no %s in:\n%s" % (place, mine[0][2]))
    others = {f[0] for f in findings} - {rule, "leak"}
    require(not others, "finds besides: %s\n%s" % (others, text))


def keeps(name, rdma_core):
    status, findings, text = check(UNSOUND, name, "clean", str(Place().gid_index()), rdma_core=rdma_core)
    require(status == 0 and not findings and "no findings" in text, "exit status %d:\n%s" % (status, text))


def right(*words, rdma_core=False):
    status, findings, text = check(*words, rdma_core=rdma_core)
    require(status == 0 and not findings and "no findings" in text, "exit status %d:\n%s" % (status, text))


def statuses():
    require(check("false")[0] == 1 and check("true")[0] == 0, "the program's status is lost")
    require(check("/no/such/program")[0] == 127, "not found")
    # A program that fails keeps its status, whatever was found.
    status, findings, text = check("sh", "-c", "%s leak bad %d; exit 7" % (UNSOUND, Place().gid_index()))
    require(status == 7 and len(findings) >= 1, "exit status %d:\n%s" % (status, text))
    # Without debug information or addr2line: function and offset.
    status, findings, text = check(UNSOUND, "leak", "bad", str(Place().gid_index()), env={"PATH": "/nonexistent"})
    require(status == 66 and re.search(r"#0 .*\(unsound\+0x\w+\)", text), text)


def register(runner):
    for name, rule, says, place in BREAKS:
        for rdma_core in (False, True):
            stack = "rdma-core" if rdma_core else "ours"
            runner.case("check %s/%s" % (name, stack), breaks, name, rule, says, place, rdma_core)
            runner.case("check %s twin/%s" % (name, stack), keeps, name, rdma_core)
    pair = "docs/tour/pair"
    for rdma_core in (False, True):
        stack = "rdma-core" if rdma_core else "ours"
        runner.case("check rc_pingpong/%s" % stack, right, pair, "ibv_rc_pingpong", "-n", "200", "-c", rdma_core=rdma_core)
        for program in ("ib_write_bw", "ib_send_bw", "ib_read_bw", "ib_write_lat", "ib_send_lat", "ib_atomic_bw"):
            runner.case("check %s/%s" % (program, stack), right, pair, program, "-n", "500", rdma_core=rdma_core)
    runner.case("check ud_pingpong", right, pair, "ibv_ud_pingpong", "-n", "200")
    runner.case("check srq_pingpong", right, pair, "ibv_srq_pingpong", "-n", "200")
    runner.case("check rping", right, "bash", "-c", "rping -s -C 5 -p 7199 & sleep 0.5; rping -c -a 127.0.0.1 -C 5 -p 7199; r=$?; wait; exit $r")
    runner.case("check exit statuses", statuses)
