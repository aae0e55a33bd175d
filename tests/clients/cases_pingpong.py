# SPDX-License-Identifier: MIT
"""Device queries, ibv_rc_pingpong and perftest on one host and between two; SIGKILL, idling, capture and trace."""
import random
import re
import subprocess
import tempfile
import time

from rig import Namespaces, Place, UHCA, finish, free_port, output, perftest, pingpong, require, stop, wait_listening
import frames

NOBODY, DAEMON = 65534, 1


def one_line(place, *words, expect=()):
    p = place.start(*words)
    out = finish(p)
    require(p.returncode == 0, "exit status %d:\n%s" % (p.returncode, out))
    for e in expect:
        require(re.search(e, out), "%r not in output:\n%s" % (e, out))
    return out


def queries(place):
    one_line(place, "ibv_devices", expect=["mlx5_0"])
    one_line(place, "ibv_devinfo", "-v", expect=["PORT_ACTIVE", r"link_layer:\s+Ethernet", r"vendor_id:\s+0x02c9", "RoCE v2", r"max_qp_wr:\s+[1-9]"])


def sysfs_tools(place):
    one_line(place, "ibstat", expect=["mlx5_0", "Active", "Ethernet"])
    one_line(place, "rdma", "link", "show", "-j", expect=['"ifname":"mlx5_0"', '"netdev"'])


def captured(run, hosts, files=2):
    """Runs with a capture on each end and checks every frame."""
    with tempfile.TemporaryDirectory() as folder:
        dumps = []
        for i, (n, l) in enumerate(zip(hosts.names, hosts.links)):
            path = "%s/%d.pcap" % (folder, i)
            d = subprocess.Popen(["nsenter", "--net=/run/netns/" + n, "tshark", "-q", "-i", l, "-F", "pcap", "-w", path, "udp", "port", "4791"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            dumps.append((d, path))
        for d, _ in dumps:
            for line in d.stderr:
                if "Capturing" in line or "Capture started" in line:
                    break
        time.sleep(1)
        try:
            run()
        finally:
            time.sleep(1)
            for d, _ in dumps:
                d.terminate()
                d.communicate()
        for _, path in dumps:
            frames.check(path)


def killed(place, who):
    """SIGKILL of one side: the other gets its error completion, ends, and can start again.

    Both sides keep WRITEs outstanding (-b): a QP that has only receives posted has nothing to time out, here and on real hardware.
    """
    def functions():
        return set(re.findall(r"@uhca/v1/fn/\d+", open("/proc/net/unix").read()))

    before = functions()
    port = free_port()
    words = ["ib_write_bw", "-d", "mlx5_0", "-F", "-x", str(place.gid_index()), "-p", str(port), "-b", "-s", "4096", "-D", "60"]
    server = place.start(*words)
    client = None
    try:
        wait_listening(server, port)
        client = place.start(*words, "127.0.0.1")
        time.sleep(random.uniform(1.5, 2.5))
        require(server.poll() is None and client.poll() is None, "ended too early:\n" + output(server) + output(client))
        victim, survivor = (server, client) if who == "server" else (client, server)
        victim.kill()
        victim.wait()
        out = finish(survivor, 50)
        require(re.search(r"status 12\b.*syndrom 0x81", out), "the survivor saw no error completion:\n" + out)
    finally:
        stop(server, *([client] if client else []))
    left = functions() - before
    require(not left, "function names are left: %s" % ", ".join(left))
    pingpong(place, place, "-n", "100")


def idle(place):
    """A program that has the device open and does nothing uses no measurable CPU."""
    port = free_port()
    server = place.start("ibv_rc_pingpong", "-d", "mlx5_0", "-g", str(place.gid_index()), "-p", str(port))
    try:
        wait_listening(server, port)

        def ticks():
            with open("/proc/%d/stat" % server.pid) as f:
                w = f.read().rsplit(")", 1)[1].split()
            return int(w[11]) + int(w[12])
        time.sleep(1)
        before = ticks()
        time.sleep(5)
        used = (ticks() - before) * 10
        require(used <= 10, "%d ms of CPU in 5 s" % used)
    finally:
        stop(server)


def traced(place):
    port = free_port()
    g = str(place.gid_index())
    script = ("ibv_rc_pingpong -d mlx5_0 -g %s -c -n 2 -s 5000 -p %d & s=$!; for i in $(seq 100); do ss -Hltn 'sport = :%d' | grep -q . && break; "
              "sleep 0.05; done; ibv_rc_pingpong -d mlx5_0 -g %s -c -n 2 -s 5000 -p %d 127.0.0.1; wait $s" % (g, port, port, g, port))
    with tempfile.TemporaryDirectory() as folder:
        pcap = folder + "/t.pcap"
        command = [UHCA, "trace", "-o", folder + "/trace", "--pcap", pcap] + (["--rdma-core"] if place.rdma_core else []) + ["--", "bash", "-c", script]
        r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        require(r.returncode == 0, r.stdout)
        text = open(folder + "/trace").read()
        for layer in ("api", "syscall", "cmd", "wqe", "doorbell", "frame", "cqe"):
            require(re.search(r" us +\d+ +%s " % layer, text), "no %s event in:\n%s" % (layer, text[:3000]))
        for name in ("ibv_post_send", "CREATE_QP", "RTR2RTS_QP", "RC_SEND_FIRST", "RC_ACKNOWLEDGE"):
            require(name in text, "no %s in the trace" % name)
        for call in (r"ioctl +fd=\d+ +object=QP +method=DESTROY", "open"):  # two programs, each call told once
            n = len(re.findall(" syscall +%s " % call, text))
            require(n == 2, "%d events for two calls of %s" % (n, call))
        frames.check(pcap)
        only = subprocess.run([UHCA, "trace", "--only", "ibv_post_send#1"] + command[6:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120).stdout
        layers = [l for l in ("api", "wqe", "doorbell", "frame", "cqe") if re.search(r" us +\d+ +%s " % l, only)]
        require(len(layers) == 5, "one followed request shows only %s:\n%s" % (layers, only[:3000]))
        # 5000 bytes at the path MTU, sent once and received once, and nothing of the other messages.
        mtu = int(re.search(r"RC_SEND_FIRST .*?len=(\d+)", only)[1])
        packets = -(-5000 // mtu)
        for direction in ("tx", "rx"):
            n = len(re.findall(r" frame +%s +opcode=RC_SEND_" % direction, only))
            require(n == packets, "%d %s packets of one message, not %d:\n%s" % (n, direction, packets, only))
        require(len(re.findall(r" api +ibv_post_send ", only)) == 1, "more than one call:\n" + only)
        require(len(re.findall(r" cqe ", only)) == 2 and len(re.findall(r" api +ibv_poll_cq ", only)) == 2, "not both ends' completions:\n" + only)


def register(runner):
    sides = [("ours", False), ("rdma-core", True)]
    for label, core in sides:
        here = Place(rdma_core=core)
        runner.case("queries/" + label, queries, here)
        runner.case("sysfs tools/" + label, sysfs_tools, here)
        for options in ([], ["-e"], ["-N"], ["-N", "-e"], ["-s", "1"], ["-s", "17"], ["-s", "65536"], ["-s", "1048576", "-n", "100"], ["-n", "10000"],
                        ["-m", "256"], ["-m", "4096", "-s", "10000"], ["-r", "10"]):
            runner.case("rc_pingpong %s/%s/one host" % (" ".join(options), label), pingpong, here, here, *options)
        runner.case("rc_pingpong ipv6/%s/one host" % label, lambda h=here: pingpong(h, h, gid="ipv6"))
        for program, options in (("ib_send_bw", ["-n", "1000"]), ("ib_send_lat", ["-n", "1000"]), ("ib_write_lat", ["-n", "500"]),
                                 ("ib_read_lat", ["-n", "500"]), ("ib_write_bw", ["-n", "500"]), ("ib_read_bw", ["-n", "500"])):
            runner.case("%s/%s/one host" % (program, label), perftest, here, here, program, *options)
        user = Place(user=NOBODY, rdma_core=core)
        runner.case("rc_pingpong as nobody/" + label, pingpong, user, user)
        runner.case("rc_pingpong between two users/" + label, pingpong, user, Place(user=DAEMON, rdma_core=core))
        boxes = Place(rdma_core=core, container=True), Place(rdma_core=core, container=True)
        runner.case("rc_pingpong between two containers/" + label, pingpong, *boxes, "-s", "20000")
        runner.case("ib_write_bw between two containers/" + label, perftest, *boxes, "ib_write_bw", "-n", "500")
        runner.case("rc_pingpong between a container and its host/" + label, pingpong, boxes[0], Place(rdma_core=core), "-s", "20000")
        runner.case("trace/" + label, traced, here)
    runner.case("rc_pingpong ours with rdma-core", pingpong, Place(), Place(rdma_core=True))
    runner.case("server killed", killed, Place(), "server")
    runner.case("client killed", killed, Place(), "client")
    runner.case("idle", idle, Place())
    with Namespaces() as hosts:
        for label, core in sides:
            a, b = hosts.place(0, rdma_core=core), hosts.place(1, rdma_core=core)
            for options in ([], ["-e"], ["-N"], ["-s", "1"], ["-s", "1048576", "-n", "50"], ["-n", "10000"]):
                runner.case("rc_pingpong %s/%s/two hosts" % (" ".join(options), label), pingpong, a, b, *options)
            runner.case("rc_pingpong ipv6/%s/two hosts" % label, lambda x=a, y=b: pingpong(x, y, gid="ipv6"))
            for program in ("ib_send_bw", "ib_send_lat", "ib_write_lat", "ib_read_lat"):
                runner.case("%s/%s/two hosts" % (program, label), perftest, a, b, program, "-n", "500")
            runner.case("capture/%s/two hosts" % label, captured, lambda x=a, y=b: pingpong(x, y, "-n", "200", "-s", "10000"), hosts)
            runner.case("capture ipv6/%s/two hosts" % label, captured, lambda x=a, y=b: pingpong(x, y, "-n", "200", "-s", "10000", gid="ipv6"), hosts)
        nobody = [hosts.place(i, user=NOBODY) for i in (0, 1)]
        runner.case("rc_pingpong as nobody/two hosts", pingpong, *nobody)
