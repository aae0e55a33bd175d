# SPDX-License-Identifier: MIT
"""uhca why names the mistake of programs with one (programs/mistakes.c), and finds none in programs that are right."""
import os
import re
import subprocess

from rig import BUILD, LIMIT, Place, UHCA, require

MISTAKES = os.path.join(BUILD, "bin", "clients", "mistakes")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# Mistake, and what must be said.
SAYS = [
    ("wrong-qpn", r"completion status 12 \(RETRY_EXC_ERR\) on QP (0x\w+): QP (0x\w+) does not exist at [\d.]+, which has (0x\w+)$"),
    ("no-dest-qpn", r"modify_qp EINVAL: .*INIT -> RTR: attribute mask lacks DEST_QPN$"),
    ("all-unsignaled", r"post_send ENOMEM: 16 unsignalled requests fill the queue of QP 0x\w+, no completion can free it"),
    ("never-polls", r"post_send ENOMEM: the send queue of QP 0x\w+ is full, and (\d+ of its completions wait in the CQ|nobody has polled its CQ)"),
    ("wrong-rkey", r"completion status 10 \(REM_ACCESS_ERR\) on QP 0x\w+: at the peer, .*wrong key variant"),
    ("no-receive", r"completion status 13 \(RNR_RETRY_EXC_ERR\) on QP 0x\w+: QPN 0x\w+ has no receive WQE"),
    ("short-receive", r"completion status 9 \(REM_INV_REQ_ERR\) on QP 0x\w+: at the peer, .*message of 64 bytes or more .*room for 32"),
]


def why(*words, rdma_core=False):
    command = [UHCA, "why"] + (["--rdma-core"] if rdma_core else []) + ["--"] + list(words)
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT, cwd=ROOT)
    said = [l[6:] for l in r.stderr.splitlines() if l.startswith("uhca: ")]
    require(len(said) == 1, "not one sentence:\n" + r.stdout + r.stderr)
    return r.returncode, said[0]


def mistake(name, pattern, rdma_core):
    status, said = why(MISTAKES, name, str(Place().gid_index()), rdma_core=rdma_core)
    require(status == 1, "exit status %d: %s" % (status, said))
    m = re.search(pattern, said)
    require(m, "says: %s\nwanted: %s" % (said, pattern))
    if name == "wrong-qpn":
        require(int(m[2], 16) == int(m[3], 16) + 1, "the program was wrong by one: " + said)


def right(*words):
    status, said = why(*words)
    require(status == 0 and said == "nothing failed", "exit status %d: %s" % (status, said))


def not_ours():
    status, said = why("false")
    require(status == 1 and "ended with status 1" in said, "exit status %d: %s" % (status, said))
    status, said = why("/no/such/program")
    require(status == 127, "exit status %d: %s" % (status, said))


def register(runner):
    for name, pattern in SAYS:
        runner.case("why %s/ours" % name, mistake, name, pattern, False)
        runner.case("why %s/rdma-core" % name, mistake, name, pattern, True)
    runner.case("why nothing", right, MISTAKES, "none", "0")
    runner.case("why rc_pingpong", right, "docs/tour/pair", "ibv_rc_pingpong", "-n", "100")
    runner.case("why ib_write_bw", right, "docs/tour/pair", "ib_write_bw", "-n", "100")
    runner.case("why of no concern", not_ours)
