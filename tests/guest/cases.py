# SPDX-License-Identifier: MIT
"""The cases: one boot in `make test`, the rest in `make test-long`."""
from machine import Host, set_up


def smoke():
    set_up()
    with Host("smoke") as h:
        h.finish(h.guest("smoke.sh", h.device()))


def loopback():
    set_up()
    with Host("loopback") as h:
        h.finish(h.guest("loopback.sh", h.device(), modules="mlx5_core mlx5_ib ib_uverbs rdma_ucm", limit=900, options=["--smp", "2"]))


def register(runner, long):
    runner.case("guest: bind, pingpong, reload, remove and rescan", smoke)
    if long:
        runner.case("guest: Debian's RDMA tools over loopback", loopback)
