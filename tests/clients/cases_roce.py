# SPDX-License-Identifier: MIT
"""RoCE v1 beside v2: the GID table as programs see it, RC over v1, what the table does when addresses come and go."""
import re
import subprocess
import tempfile
import time

from rig import Namespaces, Place, UHCA, finish, free_port, output, pingpong, require, sh, stop, wait_listening
import frames


def gid_table(place):
    """Both kinds for every address, the default GIDs first, in ibv_devinfo and in sysfs."""
    p = place.start("ibv_devinfo", "-v", "-d", "mlx5_0")
    rows = re.findall(r"GID\[ *(\d+)\]:\s+(\S+), (RoCE v\d)", finish(p))
    require(len(rows) >= 4 and len(rows) % 2 == 0, "rows: %s" % rows)
    for i, (index, gid, kind) in enumerate(rows):
        require(int(index) == i and kind == "RoCE v%d" % (i % 2 + 1), "row %d: %s" % (i, rows[i]))
    require(rows[0][1].startswith("fe80:"), "the first GID is not the default one: %s" % (rows[0],))
    base = "/sys/class/infiniband/mlx5_0/ports/1"
    p = place.start("bash", "-c", "for i in 0 1; do cat %s/gids/$i %s/gid_attrs/types/$i %s/gid_attrs/ndevs/$i; done" % (base, base, base))
    words = finish(p).splitlines()
    require(len(words) == 6 and words[1] == "IB/RoCE v1" and words[4] == "RoCE v2" and words[0] == words[3], "sysfs: %s" % words)


def captured_v1(place):
    """Every frame of a v1 connection, checked by zlib and tshark."""
    port = free_port()
    script = ("ibv_rc_pingpong -d mlx5_0 -g 0 -c -n 20 -s 5000 -p %d & s=$!; for i in $(seq 100); do ss -Hltn 'sport = :%d' | grep -q . && break; "
              "sleep 0.05; done; ibv_rc_pingpong -d mlx5_0 -g 0 -c -n 20 -s 5000 -p %d 127.0.0.1; wait $s" % (port, port, port))
    with tempfile.TemporaryDirectory() as folder:
        pcap = folder + "/v1.pcap"
        r = subprocess.run([UHCA, "trace", "-o", folder + "/trace", "--pcap", pcap, "--", "bash", "-c", script], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=120)
        require(r.returncode == 0, r.stdout)
        kinds = {f[12:14].hex() for f in frames.packets(pcap)}
        require(kinds == {"8915"}, "ethertypes %s" % kinds)
        frames.check(pcap)


def to_another_host(hosts):
    """UDP cannot carry v1: the sender runs out of retries, and the trace says why."""
    a, b = hosts.place(0), hosts.place(1)
    port = free_port()
    server = b.start("ibv_rc_pingpong", "-d", "mlx5_0", "-g", "2", "-n", "1", "-p", str(port))
    try:
        wait_listening(server, port, b.namespace)
        with tempfile.TemporaryDirectory() as folder:
            r = subprocess.run(a.prefix() + [UHCA, "trace", "--netdev", a.netdev, "-o", folder + "/trace", "--", "ibv_rc_pingpong", "-d", "mlx5_0", "-g",
                                             "2", "-n", "1", "-p", str(port), b.address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               timeout=120)
            require("transport retry counter exceeded" in r.stdout, "no retry exceeded:\n" + r.stdout)
            require("RoCE v1 frame" in open(folder + "/trace").read(), "the trace gives no reason")
    finally:
        stop(server)


def events(hosts):
    """An address that comes or goes: GID_CHANGE for each of its two entries."""
    place = hosts.place(0)
    watch = place.start("stdbuf", "-oL", "ibv_asyncwatch", "-d", "mlx5_0")
    address = "10.99.77.1/32"

    def wait_for(count):
        for _ in range(100):
            if len(re.findall(r"event_type IBV_EVENT_GID_CHANGE", output(watch))) >= count:
                return
            require(watch.poll() is None, "ibv_asyncwatch ended:\n" + output(watch))
            time.sleep(0.1)
        require(False, "no %d events:\n%s" % (count, output(watch)))
    try:
        time.sleep(1.5)
        sh("ip", "-n", place.namespace, "addr", "add", address, "dev", place.netdev)
        wait_for(2)
        sh("ip", "-n", place.namespace, "addr", "del", address, "dev", place.netdev)
        wait_for(4)
    finally:
        stop(watch)


def register(runner):
    for label, core in (("ours", False), ("rdma-core", True)):
        here = Place(rdma_core=core)
        runner.case("gid table v1 and v2/" + label, gid_table, here)
        for options in ([], ["-e"], ["-s", "1048576", "-n", "50"]):
            runner.case("rc_pingpong roce v1 %s/%s/one host" % (" ".join(options), label), lambda h=here, o=options: pingpong(h, h, *o, gid=0))
    runner.case("rc_pingpong roce v1 capture/one host", captured_v1, Place())
    with Namespaces() as hosts:
        runner.case("roce v1 to another host", to_another_host, hosts)
        runner.case("gid change events", events, hosts)
