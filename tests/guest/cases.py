# SPDX-License-Identifier: MIT
"""The cases: one boot in `make test`, the rest in `make test-long`."""
import hashlib
import os

from machine import BUILD, HERE, Host, RDMA, require, set_up
from cases_pyverbs import results
from rig import sh


DEBIAN_12 = "6.1."  # the release of its kernel
RDMA_CM = RDMA + " rdma_ucm"
A, B, HOST = "10.9.0.1", "10.9.0.2", "10.9.0.254"  # two guests, and this host on their network
EXCHANGE = 900                                     # seconds for every tool of the exchange, on a loaded machine


def smoke(kernel=None):
    set_up(long=kernel is not None)
    with Host("smoke") as h:
        h.finish(h.guest("smoke.sh", h.device(), kernel=kernel))


def loopback(kernel=None):
    set_up()
    with Host("loopback") as h:
        h.finish(h.guest("loopback.sh", h.device(), modules=RDMA_CM, limit=EXCHANGE, options=["--smp", "2"], kernel=kernel))


def own_files():
    """What puts our user libraries into /root/own of a guest."""
    words = []
    for name in ("libibverbs.so.1", "libmlx5.so.1", "libefa.so.1", "libhns.so.1"):
        words += ["--file", "%s:/root/own/%s" % (os.path.join(BUILD, "lib", "uhca", name), name)]
    return words


def own_libraries():
    """Our libibverbs and providers on the real kernel's uverbs."""
    set_up()
    with Host("own") as h:
        h.finish(h.guest("own.sh", h.device(), modules=RDMA_CM, limit=600, options=["--smp", "2", *own_files()]))


def pyverbs(kernel=None):
    """With BlueFlame: one of the tests maps a page with write combining, the others post through registers."""
    set_up()
    ids = os.path.join(HERE, "pyverbs_ids.txt")
    with Host("pyverbs") as h:
        out = h.finish(h.guest("pyverbs.sh", h.device("hca", "--write-combining"), modules=RDMA_CM + " ib_umad", limit=1200, kernel=kernel,
                               options=["--smp", "2", "--mem", "2G", "--python", "--file", ids]))[0]
        found = results(out)
        with open(ids) as f:
            wanted = [line.strip() for line in f if not line.startswith("#")]
        bad = ["%s: %s" % (i, found.get(i)) for i in wanted if found.get(i) != "ok"]
        require(not bad, "%d of %d ids:\n%s" % (len(bad), len(wanted), "\n".join(bad)))


def vfio():
    """rdma-core's second consumer of the command interface: libmlx5 drives the device itself."""
    set_up()
    with Host("vfio") as h:
        out = h.finish(h.guest("vfio.sh", h.device(), limit=1000,
                               options=["--iommu", "--python", "--mem", "2G", "--file", os.path.join(HERE, "vfio.py")]))[0]
        require(out.count("ok RC ping-pong") == 2, "no traffic in VFIO mode:\n" + out)


def nvme():
    set_up()
    with Host("nvme") as h:
        h.finish(h.guest("nvme.sh", h.device(), modules=RDMA + " nvme_rdma nvmet_rdma", limit=300))


def two_guests(own=False):
    """`own`: one of them with our user libraries."""
    set_up()
    with Host("two-guests") as h:
        a, b = h.device("hca-a"), h.device("hca-b")
        h.finish(h.guest("peer.sh", a, name="guest-a", arguments=f"'server client' {A} {B} tcp {'own' if own else ''}", limit=EXCHANGE,
                         options=own_files() if own else ()),
                 h.guest("peer.sh", b, name="guest-b", arguments=f"'client server' {B} {A} tcp", limit=EXCHANGE))


def with_rxe():
    """The HCA on a tap device, joined by a bridge with the tap device of a guest that runs Linux's software RDMA."""
    set_up()
    with Host("rxe") as h:
        h.bridge("tap0", "tap1")
        h.finish(h.guest("peer.sh", h.device("hca", "--netdev", "tap0"), name="hca-guest", arguments=f"'server client' {A} {B} tcp",
                         limit=EXCHANGE),
                 h.guest("peer.sh", name="rxe-guest", arguments=f"'client server' {B} {A} tcp", limit=EXCHANGE,
                         modules="virtio_pci virtio_net rdma_rxe ib_uverbs", options=["--tap", "tap1"]))


def with_program_by_udp():
    """A process of the host, whose frames are UDP datagrams of the host's kernel, with a guest on a tap device."""
    set_up()
    with Host("program-udp") as h:
        h.tap("tap0", HOST + "/24")
        guest = h.guest("peer.sh", h.device("hca", "--netdev", "tap0"), arguments=f"'server client' {A} {HOST}", limit=EXCHANGE)
        h.said(guest, "mac (.*)")
        h.finish(guest, h.program("client server", A, "tap0"))


def with_program_on_the_switch():
    """A process of the host and a guest on its switch, where the host speaks RoCE only: no ARP, so both are told, and no TCP, so the tools
    find each other over another network."""
    set_up()
    with Host("program-switch") as h:
        h.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
        h.ip("addr", "add", HOST + "/24", "dev", "eth0")
        h.ip("link", "set", "eth1", "up")
        h.ip("link", "set", "eth0", "up")
        h.tap("tap0", "10.8.0.254/24")
        mac = sh("ip", "netns", "exec", h.namespace, "cat", "/sys/class/net/eth0/address").strip()
        guest = h.guest("peer.sh", h.device(), modules=RDMA + " virtio_pci virtio_net", limit=EXCHANGE, options=["--tap", "tap0"],
                        arguments=f"'server client' {A} {HOST} lladdr {mac} beside 10.8.0.1 10.8.0.254")
        h.ip("neigh", "replace", A, "lladdr", h.said(guest, "mac (.*)"), "dev", "eth0", "nud", "permanent")
        h.finish(guest, h.program("client server", "10.8.0.1", "eth0"))


def routed():
    """Guests of two hosts, each behind its host's tap device: what they exchange is UDP 4791 that two kernels route."""
    set_up()
    with Host("routed-a") as a, Host("routed-b") as b:
        sh("ip", "link", "add", "wire", "netns", a.namespace, "type", "veth", "peer", "name", "wire", "netns", b.namespace)
        for own, h, other in ((1, a, 2), (2, b, 1)):
            h.tap("tap0", "10.9.%d.254/24" % own)
            h.ip("addr", "add", "10.99.0.%d/24" % own, "dev", "wire")
            h.ip("link", "set", "wire", "up")
            h.ip("route", "add", "10.9.%d.0/24" % other, "via", "10.99.0.%d" % other)
            sh("ip", "netns", "exec", h.namespace, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        peers = [h.guest("peer.sh", h.device("hca", "--netdev", "tap0"), limit=EXCHANGE,
                         arguments="'%s' 10.9.%d.1 10.9.%d.1 tcp via 10.9.%d.254" % (roles, own, other, own))
                 for h, roles, own, other in ((a, "server client", 1, 2), (b, "client server", 2, 1))]
        Host.finish(*peers)


def tcp():
    """The netdev's own traffic between a guest and this host through a tap device: ping, TCP towards the guest at default settings."""
    set_up()
    with Host("tcp") as h:
        h.tap("tap0", HOST + "/24")
        blob = h.path("blob")
        with open(blob, "wb") as f:
            f.write(os.urandom(8 << 20))
        h.start("http.log", "python3", "-m", "http.server", "--bind", HOST, "--directory", h.logs, "8080")
        out = h.finish(h.guest("tcp.sh", h.device("hca", "--netdev", "tap0"), arguments=f"{A} {HOST}", limit=300))[0]
        with open(blob, "rb") as f:
            digest = hashlib.md5(f.read()).hexdigest()
        require("md5 " + digest in out, "the guest received other bytes: %s" % out)


def netdev(kernel=None):
    """What an administrator does with ip, ethtool and devlink, beside a guest that carries VLAN 7 and larger frames."""
    set_up()
    with Host("netdev") as h:
        addresses = f"{A} {B} 10.9.7.1 10.9.7.2"
        h.finish(h.guest("netdev.sh", h.device("hca-a"), name="guest", arguments=addresses, limit=600, modules=RDMA + " 8021q",
                         options=["--smp", "2"], kernel=kernel),
                 h.guest("netdev-peer.sh", h.device("hca-b"), name="peer", arguments=addresses, limit=600, modules=RDMA + " 8021q"))


def ethernet():
    """The netdev's own traffic between two guests on the host switch; one has two CPUs, so that RSS spreads over two channels."""
    set_up()
    with Host("ethernet") as h:
        h.finish(h.guest("ethernet.sh", h.device("hca-a"), name="guest-a", arguments=f"{B} {A}/24 fd09::1/64", options=["--smp", "2"]),
                 h.guest("ethernet.sh", h.device("hca-b"), name="guest-b", arguments=f"{A} {B}/24 fd09::2/64"))


def register(runner, long):
    runner.case("guest: bind, pingpong, reload, remove and rescan", smoke)
    if long:
        runner.case("guest: bind, pingpong, reload, remove and rescan, Debian 12's kernel", smoke, DEBIAN_12)
        runner.case("guest: Debian's RDMA tools over loopback, Debian 12's kernel", loopback, DEBIAN_12)
        runner.case("guest: Debian's RDMA tools over loopback", loopback)
        runner.case("guest: our user libraries on the real kernel", own_libraries)
        runner.case("guest: pyverbs' suite", pyverbs)
        runner.case("guest: libmlx5's VFIO mode", vfio)
        runner.case("guest: NVMe over RDMA", nvme)
        runner.case("guest: TCP with the host through a tap device", tcp)
        runner.case("guest: Ethernet between two guests on the host switch", ethernet)
        runner.case("guest: ethtool, MTU, VLAN, devlink", netdev)
        runner.case("guest: two guests on the host switch", two_guests)
        runner.case("guest: two guests on the host switch, one with our user libraries", two_guests, True)
        runner.case("guest: two guests over routed UDP", routed)
        runner.case("guest: with a process of the host over UDP", with_program_by_udp)
        runner.case("guest: with a process of the host on the switch", with_program_on_the_switch)
        runner.case("guest: with a guest on rdma_rxe", with_rxe)
