# SPDX-License-Identifier: MIT
"""Connection management: the programs of librdmacm and others that connect by it, on one host, between users, between two hosts."""
import hashlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

from rig import BUILD, Namespaces, Place, finish, free_port, output, pair, require, stop, wait_for, wait_listening

TCP, UDP, IB = 0x106, 0x111, 0x13f  # port spaces
NOBODY, DAEMON = 65534, 1


def own_address(place):
    """An address of the interface behind mlx5_0 where the place has none of its own."""
    if place.namespace:
        return place.address
    out = subprocess.run(["ip", "-4", "-o", "addr", "show", "scope", "global"], stdout=subprocess.PIPE, text=True).stdout
    found = re.search(r"inet ([\d.]+)", out)
    require(found, "this host has no IPv4 address to connect to")
    return found[1]


def cm_listening(place, port, ps):
    """Whether a listener holds the host's name of the port (docs/decisions/0002)."""
    prefix = ["nsenter", "--net=/run/netns/" + place.namespace] if place.namespace else []
    table = subprocess.run(prefix + ["cat", "/proc/net/unix"], stdout=subprocess.PIPE, text=True).stdout
    # Flags 00010000: accepts connections.
    return re.search(r": \S+ \S+ 00010000 .*@uhca/v1/cm/port/%x/%d/" % (ps, port), table)


def wait_cm(server, place, port, ps=TCP):
    wait_for(lambda: cm_listening(place, port, ps), server, "listened")


def both(server_place, client_place, server_words, client_words, port, ps=TCP, expect=(), server_expect=(), never=(), limit=60):
    """Both to their end with exit status 0; `expect` and `server_expect` are found in the outputs, `never` is not."""
    client_words = [own_address(server_place) if w == "ADDRESS" else w for w in client_words]
    ready = (lambda server: wait_cm(server, server_place, port, ps)) if port else (lambda server: time.sleep(1))
    server_out, client_out = pair(server_place, client_place, server_words, client_words, port, limit, ready)
    text = "client:\n%s\nserver:\n%s" % (client_out, server_out)
    for e in expect:
        require(re.search(e, client_out), "%r not in the client's output\n%s" % (e, text))
    for e in server_expect:
        require(re.search(e, server_out), "%r not in the server's output\n%s" % (e, text))
    for n in never:
        require(not re.search(n, client_out + server_out), "%r appeared\n%s" % (n, text))
    return server_out, client_out


def rping(s, c, *options, address="ADDRESS", listen="0.0.0.0", count=20):
    words = ["-v", "-V", "-C", str(count), "-S", "4096"] + list(options)
    outs = both(s, c, ["rping", "-s", "-a", listen] + words, ["rping", "-c", "-a", address] + words, 7174, never=["mismatch", "error"])
    for out in outs:
        require(len(re.findall(r"ping data: rdma-ping-\d+", out)) == count, "not %d pings:\n%s" % (count, out))


def ucmatose(s, c, *options):
    words = ["ucmatose", "-c", "10", "-C", "100", "-S", "1000"] + list(options)
    both(s, c, words, words + ["-s", "ADDRESS"], 7471, expect=["test complete", "return status 0"], server_expect=["test complete", "return status 0"])


def udaddy(s, c):
    words = ["udaddy", "-c", "5"]
    both(s, c, words, words + ["-s", "ADDRESS"], 7174, UDP, expect=["test complete", "return status 0"], server_expect=["return status 0"])


def serving(place, server_words, port, run, ps=TCP):
    """A server that never ends by itself, around `run`."""
    server = place.start(*server_words)
    try:
        wait_cm(server, place, port, ps)
        return run()
    finally:
        stop(server)


def client_of(place, *words):
    p = place.start(*words)
    out = finish(p)
    require(p.returncode == 0, "exit status %d:\n%s" % (p.returncode, out))
    return out


def cmtime(s, c):
    out = serving(s, ["cmtime", "-c", "100"], 7471, lambda: client_of(c, "cmtime", "-c", "100", "-s", own_address(s)))
    row = re.search(r"^connect +: +([\d.]+)", out, re.M)
    # A message that was lost would show: its retry comes after 4 s.
    require(row and float(row[1]) < 4000, "connect took too long:\n" + out)


def rdma_server(s, c):
    both(s, c, ["rdma_server"], ["rdma_client", "-s", "ADDRESS"], 7471, expect=["rdma_client: end 0"], server_expect=["rdma_server: end 0"])


def rdma_xserver(s, c, kind):
    both(s, c, ["rdma_xserver", "-c", kind], ["rdma_xclient", "-s", "ADDRESS", "-c", kind], 7471, TCP if kind == "r" else IB, expect=["rdma_xclient: end 0"],
         server_expect=["rdma_xserver: end 0"])


def rcopy(s, c):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        source, copy = folder + "/f", folder + "/g"
        with open(source, "wb") as f:
            f.write(os.urandom(8 << 20))
        server = s.start("rcopy")
        try:
            wait_cm(server, s, 7427, TCP)
            client_of(c, "rcopy", source, own_address(s) + ":" + copy)
            sums = [hashlib.sha256(open(p, "rb").read()).hexdigest() for p in (source, copy)]
            require(sums[0] == sums[1], "the copy differs")
        finally:
            stop(server)


def rstream(s, c, program, *options):
    words = [program, "-T", "v", "-S", "16384", "-C", "20", "-I", "2"] + list(options)
    both(s, c, words, words + ["-s", "ADDRESS"], 7471, expect=[r"custom +16k +20"], never=["verification failed"])


def preloaded(s, c):
    """A program of sockets that knows nothing of RDMA, over librspreload."""
    under = "LD_PRELOAD=$LD_PRELOAD:/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so exec "
    out = serving(s, ["sh", "-c", under + "iperf -s -p 7999"], 7999,
                  lambda: client_of(c, "sh", "-c", under + "iperf -p 7999 -n 1M -c " + own_address(s)))
    require(re.search(r"1\.00 MBytes +[\d.]+ [KMG]?bits/sec", out), "no result:\n" + out)


def perftest(s, c, program, *options):
    """Parameters by one connection, the measured ones by others, for which the client calls before the server listens again."""
    port = free_port()
    words = [program, "-d", "mlx5_0", "-R", "-F", "-n", "200", "-p", str(port)] + list(options)
    both(s, c, words, words + ["ADDRESS"], port, expect=[r"(?m)^ *\d+ +\d+ +[\d.]+ "])


def qperf(s, c):
    """Its server tells the port of each test before it listens on it."""
    port = free_port()
    tests = ["rc_bw", "rc_lat", "rc_rdma_read_bw", "rc_rdma_write_poll_lat", "ver_rc_compare_swap", "ver_rc_fetch_add"]
    server = s.start("qperf", "-lp", str(port))
    try:
        wait_listening(server, port, s.namespace)
        out = client_of(c, "qperf", "-lp", str(port), "-t", "1", "-cm1", own_address(s), *tests)
    finally:
        stop(server)
    for t in tests:
        require(re.search(t + r":\n +(bw|latency|msg_rate) += +[\d.]+ ", out), "no number of %s:\n%s" % (t, out))


def mckey(s, c):
    """One end joins a group and waits for messages, the other joins it to send them."""
    server = s.start("mckey", "-m", "239.1.1.1", "-b", own_address(s), "-c", "1", "-C", "10")
    client = None
    try:
        # Messages to a group that nobody has joined yet are lost.
        wait_for(lambda: joined(s), server, "joined")
        time.sleep(0.3)
        client = c.start("mckey", "-m", "239.1.1.1", "-b", own_address(c), "-c", "1", "-C", "10", "-s")
        outs = finish(client), finish(server)
    finally:
        stop(server, *([client] if client else []))
    for p, out in zip((client, server), outs):
        require(p.returncode == 0 and "data transfers complete" in out and "return status 0" in out, "client:\n%s\nserver:\n%s" % outs)


def joined(place):
    prefix = ["nsenter", "--net=/run/netns/" + place.namespace] if place.namespace else []
    return "010101EF" in subprocess.run(prefix + ["cat", "/proc/net/igmp"], stdout=subprocess.PIPE, text=True).stdout


def refused(s, c):
    """Nobody listens: REJECTED, at once; a retry after listen works."""
    def attempt():
        client = c.start("rping", "-c", "-v", "-a", own_address(s), "-C", "1")
        t = time.time()
        out = finish(client)
        require(client.returncode != 0 and "RDMA_CM_EVENT_REJECTED" in out and "error 8" in out, "no reject with reason 8:\n" + out)
        require(time.time() - t < 4, "the reject took a retry")

    # A listener on another port: on a host without any function nobody answers at all.
    serving(s, ["rping", "-s", "-a", "0.0.0.0", "-p", "7779"], 7779, attempt)
    rping(s, c, count=2)


def unreachable(c):
    """A next hop that answers no ARP: an error of address resolution, after the program's own timeout."""
    client = c.start("rping", "-c", "-v", "-a", "10.99.0.77", "-C", "1")
    out = finish(client)
    require(client.returncode != 0 and "RDMA_CM_EVENT_ADDR_ERROR" in out, "no address error:\n" + out)


def stopped(place):
    """A stopped process does not hold up the connections of others."""
    idle = place.start("rping", "-s", "-a", "0.0.0.0", "-p", "7777", "-v")
    try:
        wait_cm(idle, place, 7777, TCP)
        os.kill(idle.pid, signal.SIGSTOP)
        rping(place, place, count=5)
    finally:
        os.kill(idle.pid, signal.SIGCONT)
        stop(idle)


def killed(place, victim):
    """A process that is killed leaves its peers with a DISCONNECTED event, at once."""
    words = ["rping", "-v", "-a", own_address(place), "-p", "7781", "-C", "100000000"]
    ends = [place.start(*words, "-s")]
    try:
        wait_cm(ends[0], place, 7781, TCP)
        ends.append(place.start(*words, "-c"))
        wait_for(lambda: "ping data" in output(ends[0]), ends[1], "was answered")
        ends[victim].kill()
        ends[victim].wait()
        out = finish(ends[1 - victim], 10)
        require("DISCONNECT EVENT" in out, "no event:\n" + out[-1000:])
    finally:
        stop(*ends)


def port_taken(place):
    """The port space is the host's: a second listener of another process is refused."""
    first = place.start("rping", "-s", "-a", "0.0.0.0", "-p", "7778", "-v")
    try:
        wait_cm(first, place, 7778, TCP)
        second = place.start("rping", "-s", "-a", "0.0.0.0", "-p", "7778", "-v")
        out = finish(second)
        require(second.returncode != 0 and re.search("Cannot assign requested address|Address already in use", out), "not refused:\n" + out)
    finally:
        stop(first)


def traced(place):
    """The life of a connection, as `uhca trace` prints it."""
    server = place.start("rping", "-s", "-a", "0.0.0.0", "-C", "2", "-p", "7782")
    try:
        wait_cm(server, place, 7782, TCP)
        client = place.start("rping", "-c", "-a", own_address(place), "-C", "2", "-p", "7782", sub="trace")
        out = finish(client)
    finally:
        stop(server)
    require(client.returncode == 0, "exit status %d\n%s" % (client.returncode, out[-2000:]))
    for step in ("ADDR_RESOLVED", "ROUTE_RESOLVED", "attr=REQ", "attr=REP", "attr=RTU", "attr=DREQ"):
        require(step in out, "%r is not in the trace:\n%s" % (step, "\n".join(l for l in out.splitlines() if " mad " in l or " cm " in l)))


def rounds(place, count):
    """Connections one after another; what the processes hold does not grow with them."""
    program = os.path.join(BUILD, "bin", "clients", "cm_rounds")
    outs = both(place, place, [program, "server", "7783", str(count)], [program, "client", "7783", str(count), "ADDRESS"], 7783, limit=300)
    for out in outs:
        held = [(int(d), int(k)) for d, k in re.findall(r"round \d+: (\d+) descriptors, (\d+) KiB", out)]
        require(len(held) == 5, out)
        (first, _), (last, after) = held[0], held[-1]
        # A connection more or less may be on its way out. Tables grow to their size in the first thousands of rounds.
        require(last <= first + 8 and after <= held[-2][1] + max(256, count // 5), "it grows:\n" + out)


def silent_callers(place):
    """Who calls a function's names and says nothing does not keep others from being heard."""
    server = place.start("rping", "-s", "-P", "-a", "0.0.0.0", "-v", "-V", "-C", "5")
    callers = []
    try:
        wait_cm(server, place, 7174, TCP)
        name = re.search(r"@(uhca/v1/cm/port/%x/7174/\S+)" % TCP, open("/proc/net/unix").read())[1]
        for _ in range(600):
            callers.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            callers[-1].connect("\0" + name)
        for _ in range(3):
            client_of(place, "rping", "-c", "-v", "-V", "-C", "5", "-a", own_address(place))
    finally:
        for c in callers:
            c.close()
        stop(server)


def everything(runner, label, s, c):
    def case(name, function, *args, **kw):
        runner.case("cm %s/%s" % (name, label), function, s, c, *args, **kw)

    case("rping", rping)
    case("rping -q", rping, "-q")
    case("ucmatose", ucmatose)
    case("ucmatose -m", ucmatose, "-m")
    case("udaddy", udaddy)
    case("cmtime", cmtime)
    case("rdma_server", rdma_server)
    case("rdma_xserver r", rdma_xserver, "r")
    case("rdma_xserver x", rdma_xserver, "x")
    case("rcopy", rcopy)
    case("rstream", rstream, "rstream")
    case("riostream", rstream, "riostream")
    case("librspreload", preloaded)
    case("ib_write_bw -R", perftest, "ib_write_bw")
    case("ib_send_lat -R", perftest, "ib_send_lat")
    case("ib_read_bw -R -q 4", perftest, "ib_read_bw", "-q", "4")
    case("ib_send_bw -R -c UD", perftest, "ib_send_bw", "-c", "UD")
    case("mckey", mckey)
    case("refused", refused)


def register(runner):
    here = Place()
    everything(runner, "one host", here, here)
    runner.case("cm rping/rdma-core/one host", rping, Place(rdma_core=True), Place(rdma_core=True))
    runner.case("cm rping 127.0.0.1/one host", rping, here, here, address="127.0.0.1")
    runner.case("cm rping ::1/one host", rping, here, here, address="::1", listen="::")
    runner.case("cm rping between two users", rping, Place(user=NOBODY), Place(user=DAEMON))
    runner.case("cm qperf/one host", qperf, here, here)
    runner.case("cm stopped process", stopped, here)
    runner.case("cm server killed/one host", killed, here, 0)
    runner.case("cm client killed/one host", killed, here, 1)
    runner.case("cm port taken", port_taken, here)
    runner.case("cm silent callers", silent_callers, here)
    runner.case("cm trace", traced, here)
    runner.case("cm rounds/one host", rounds, here, 5000 if os.environ.get("UHCA_LONG") else 200)
    with Namespaces() as hosts:
        a, b = hosts.place(0), hosts.place(1)
        everything(runner, "two hosts", a, b)
        runner.case("cm rping ipv6/two hosts", rping, a, b, address="fd99::1", listen="::")
        runner.case("cm unreachable/two hosts", unreachable, b)
