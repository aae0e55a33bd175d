# SPDX-License-Identifier: MIT
"""One feature each, seen by a small program."""
from rig import Place, finish, require
from cases_robust import program

NOBODY = 65534


def ece(place):
    p = place.start(program("qp_ece"), str(place.gid_index()))
    out = finish(p)
    require(p.returncode == 0, "status %d:\n%s" % (p.returncode, out))


def pinned(place, limit, fits):
    """The server of a ping-pong registers 1 MiB, then waits in vain for somebody."""
    p = place.start("prlimit", "--memlock=%d" % limit, "timeout", "2", "ibv_rc_pingpong", "-s", str(1 << 20), "-g", str(place.gid_index()))
    out = finish(p)
    require((p.returncode == 124) == fits, "a limit of %d bytes, status %d:\n%s" % (limit, p.returncode, out))


def register(runner):
    for label, core in (("ours", False), ("rdma-core", True)):
        runner.case("feature ece/%s" % label, ece, Place(rdma_core=core))
        nobody = Place(user=NOBODY, rdma_core=core, env={"UHCA_PIN": "1"})
        runner.case("feature pin, too little may be locked/%s" % label, pinned, nobody, 1 << 19, False)
        runner.case("feature pin, enough may be locked/%s" % label, pinned, nobody, 1 << 23, True)
        runner.case("feature no pin, nothing is locked/%s" % label, pinned, Place(user=NOBODY, rdma_core=core), 1 << 19, True)
