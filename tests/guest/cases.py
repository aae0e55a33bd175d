# SPDX-License-Identifier: MIT
"""The cases: one boot in `make test`, the rest in `make test-long`."""
import hashlib
import os

from machine import BUILD, Host, RDMA, require, set_up


DEBIAN_12 = "6.1."  # the release of its kernel


def smoke(kernel=None):
    set_up(long=kernel is not None)
    with Host("smoke") as h:
        h.finish(h.guest("smoke.sh", h.device(), kernel=kernel))


def loopback(kernel=None):
    set_up()
    with Host("loopback") as h:
        h.finish(h.guest("loopback.sh", h.device(), modules=RDMA + " rdma_ucm", limit=900, options=["--smp", "2"], kernel=kernel))


def own_libraries():
    """Our libibverbs and providers on the real kernel's uverbs."""
    set_up()
    options = ["--smp", "2"]
    for name in ("libibverbs.so.1", "libmlx5.so.1"):
        options += ["--file", "%s:/root/own/%s" % (os.path.join(BUILD, "lib", "uhca", name), name)]
    with Host("own") as h:
        h.finish(h.guest("own.sh", h.device(), modules="mlx5_core mlx5_ib ib_uverbs rdma_ucm", limit=600, options=options))


def nvme():
    set_up()
    with Host("nvme") as h:
        h.finish(h.guest("nvme.sh", h.device(), modules="mlx5_core mlx5_ib ib_uverbs nvme_rdma nvmet_rdma", limit=300))


def two_guests():
    set_up()
    with Host("two-guests") as h:
        a, b = h.device("hca-a"), h.device("hca-b")
        h.finish(h.guest("peer.sh", a, name="server", arguments="server 10.9.0.1 10.9.0.2", limit=600),
                 h.guest("peer.sh", b, name="client", arguments="client 10.9.0.2 10.9.0.1", limit=600))


def with_rxe():
    """The HCA on a tap device, joined by a bridge with the tap device of a guest that runs Linux's software RDMA."""
    set_up()
    with Host("rxe") as h:
        h.bridge("tap0", "tap1")
        h.finish(h.guest("peer.sh", h.device("hca", "--netdev", "tap0"), name="hca-guest", arguments="server 10.9.0.1 10.9.0.2", limit=600),
                 h.guest("peer.sh", name="rxe-guest", arguments="client 10.9.0.2 10.9.0.1", limit=600,
                         modules="virtio_pci virtio_net rdma_rxe ib_uverbs", options=["--tap", "tap1"]))


def tcp():
    """The netdev's own traffic between a guest and this host through a tap device: ping, TCP towards the guest at default settings."""
    set_up()
    with Host("tcp") as h:
        h.ip("tuntap", "add", "dev", "tap0", "mode", "tap")
        h.ip("addr", "add", "10.9.0.254/24", "dev", "tap0")
        h.ip("link", "set", "tap0", "up")
        blob = h.path("blob")
        with open(blob, "wb") as f:
            f.write(os.urandom(8 << 20))
        h.start("http.log", "python3", "-m", "http.server", "--bind", "10.9.0.254", "--directory", h.logs, "8080")
        out = h.finish(h.guest("tcp.sh", h.device("hca", "--netdev", "tap0"), arguments="10.9.0.1 10.9.0.254", limit=300))[0]
        with open(blob, "rb") as f:
            digest = hashlib.md5(f.read()).hexdigest()
        require("md5 " + digest in out, "the guest received other bytes: %s" % out)


def ethernet():
    """The netdev's own traffic between two guests on the host switch; one has two CPUs, so that RSS spreads over two channels."""
    set_up()
    with Host("ethernet") as h:
        h.finish(h.guest("ethernet.sh", h.device("hca-a"), name="guest-a", arguments="10.9.0.2 10.9.0.1/24 fd09::1/64", options=["--smp", "2"]),
                 h.guest("ethernet.sh", h.device("hca-b"), name="guest-b", arguments="10.9.0.1 10.9.0.2/24 fd09::2/64"))


def register(runner, long):
    runner.case("guest: bind, pingpong, reload, remove and rescan", smoke)
    if long:
        runner.case("guest: bind, pingpong, reload, remove and rescan, Debian 12's kernel", smoke, DEBIAN_12)
        runner.case("guest: Debian's RDMA tools over loopback, Debian 12's kernel", loopback, DEBIAN_12)
        runner.case("guest: Debian's RDMA tools over loopback", loopback)
        runner.case("guest: our user libraries on the real kernel", own_libraries)
        runner.case("guest: NVMe over RDMA", nvme)
        runner.case("guest: TCP with the host through a tap device", tcp)
        runner.case("guest: Ethernet between two guests on the host switch", ethernet)
        runner.case("guest: two guests on the host switch", two_guests)
        runner.case("guest: with a guest on rdma_rxe", with_rxe)
