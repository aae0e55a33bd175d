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
    ("rtr-without-grh", r"modify_qp EINVAL: address handle: is_global is not set: Ethernet port needs GRH"),
    ("rtr-empty-sgid", r"modify_qp ENODATA: address handle: sgid_index 200 of mlx5_0 port 1 is empty; usable: 0"),
    ("straight-to-rts", r"modify_qp EINVAL: QP 0x\w+ INIT -> RTS: there is no transition INIT -> RTS"),
    ("qkey-for-rc", r"modify_qp EINVAL: .*RC INIT -> RTR: attribute mask must not have QKEY"),
    ("too-many-reads", r"modify_qp EINVAL: QP 0x\w+: max_dest_rd_atomic 200; the device has 16"),
    ("port-9", r"modify_qp EINVAL: mlx5_0 has no port 9"),
    ("register-nothing", r"reg_mr EFAULT: .*nothing is mapped at 0x10000"),
    ("register-constants", r"reg_mr EFAULT: .*the mapping at 0x\w+ is read-only"),
    ("remote-without-local", r"reg_mr EINVAL: access flags 0x2: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE"),
    ("pd-in-use", r"dealloc_pd EBUSY: 1 object\(s\) still use the PD"),
    ("cq-in-use", r"destroy_cq EBUSY: cqn 0x\w+ is still used by 1 queue"),
    ("deep-cq", r"create_cq EINVAL: \d+ entries,? (at most|of at most) \d+"),
    ("read-not-allowed", r"completion status 10 \(REM_ACCESS_ERR\) on QP 0x\w+: at the peer, .*remote read of mkey 0x\w+, .*right missing"),
    ("beyond-the-peer", r"completion status 10 .*at the peer, .*remote write of mkey 0x\w+, .*out of range; the key 0x\w+ covers"),
    ("beyond-our-own", r"completion status 4 \(LOC_PROT_ERR\) on QP 0x\w+: send WQE: local read of mkey 0x\w+, .*out of range"),
    ("wrong-lkey", r"completion status 4 .*local read of mkey 0x\w+, .*wrong key variant"),
    ("other-pd", r"completion status 4 .*key of another PD; .* of PD (\d+) .* the QP has PD (\d+)"),
    ("odd-atomic", r"completion status 9 .*at the peer, .*atomic at an address that is no multiple of 8"),
    ("read-into-constants", r"completion status 4 .*local write of mkey 0x\w+, .*right missing"),
    ("peer-deregisters", r"completion status 10 .*at the peer, .*remote write of mkey 0x\w+ .*no such key"),
    ("peer-in-error", r"completion status 12 .*: QP 0x\w+ at \S+ does not answer: the QP is in ERR"),
    ("receive-not-writable", r"completion status 11 \(REM_OP_ERR\) .*at the peer, .*receive scatter: local write of mkey 0x\w+, .*right missing"),
    ("short-receive", r"completion status 9 \(REM_INV_REQ_ERR\) on QP 0x\w+: at the peer, .*message of 64 bytes or more .*room for 32"),
]
# What the user libraries refuse: the system's keep their reasons to themselves.
OURS_SAY = [
    ("deep-queue", r"create_qp EINVAL: the send queue needs \d+ basic blocks of \d+"),
    ("ah-without-grh", r"create_ah EINVAL: the port needs a GRH \(is_global=1\)"),
    ("many-sges", r"post_send ENOMEM: on QP 0x\w+: 64 SGEs, at most \d+"),
    ("long-inline", r"post_send ENOMEM: on QP 0x\w+: 2048 bytes of inline data, at most \d+"),
    ("many-receives", r"post_recv ENOMEM: on QP 0x\w+: the receive queue of 16 WRs is full"),
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
    for name, pattern in OURS_SAY:
        runner.case("why %s/ours" % name, mistake, name, pattern, False)
    runner.case("why nothing", right, MISTAKES, "none", "0")
    runner.case("why rc_pingpong", right, "docs/tour/pair", "ibv_rc_pingpong", "-n", "100")
    runner.case("why ib_write_bw", right, "docs/tour/pair", "ib_write_bw", "-n", "100")
    runner.case("why of no concern", not_ours)
