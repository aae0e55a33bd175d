# SPDX-License-Identifier: MIT
"""Ratios of ours against a baseline, interleaved. Usage: run.py BUILD [REGEX of row names]; ROUNDS=9 by default."""
import atexit
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1])
os.environ["UHCA_BUILD"] = BUILD
sys.path.insert(0, os.path.join(HERE, "..", "tests", "clients"))
from rig import Namespaces, Place, finish, free_port, require, sh, stop  # noqa: E402

ROUNDS = int(os.environ.get("ROUNDS", "9"))
PIN = [["taskset", "-c", "0"], ["taskset", "-c", "1"]]


def value(out):
    m = re.search(r"^ns ([\d.]+)$", out, re.M)
    require(m, "no result:\n" + out)
    return float(m[1])


def ours(row, size, core=False, framed=False):
    place = Place(rdma_core=core, env={"UHCA_PATH": "framed"} if framed else {})

    def run():
        port, gid, program = str(free_port()), str(place.gid_index()), [os.path.join(BUILD, "bin", "bench_pair"), row, str(size)]
        s = place.start(*PIN[0], *program, "server", port, gid)
        c = place.start(*PIN[1], *program, "client", "127.0.0.1", port, gid)
        try:
            out = finish(c, 120)
            finish(s, 30)
        finally:
            stop(s, c)
        return value(out)
    return run


hosts = None  # two namespaces, for the rows of the wire


def two_hosts():
    global hosts
    if hosts is None:
        hosts = Namespaces()
        hosts.__enter__()
        atexit.register(hosts.__exit__)
        for n, l in zip(hosts.names, hosts.links):
            sh("ip", "-n", n, "link", "set", l, "mtu", "9000")
            sh("nsenter", "--net=/run/netns/" + n, "ethtool", "-K", l, "tx-udp-segmentation", "on", check=False)
    return hosts


def over_wire(row, size, parts=1):
    def run():
        h = two_hosts()
        a, b = h.place(0), h.place(1)
        port, program = str(free_port()), [os.path.join(BUILD, "bin", "bench_pair"), row, str(size)]
        s = a.start(*PIN[0], *program, "server", port, str(a.gid_index()))
        c = b.start(*PIN[1], *program, "client", a.address, port, str(b.gid_index()))
        try:
            out = finish(c, 120)
            finish(s, 30)
        finally:
            stop(s, c)
        return value(out) / parts
    return run


def udp(row, size):
    def run():
        h = two_hosts()
        ends = [w for i in (0, 1) for w in ("10.99.0.%d" % (i + 1), h.names[i])]
        return value(subprocess.run([os.path.join(BUILD, "bin", "bench_wire"), row, str(size), *ends], check=True, stdout=subprocess.PIPE, text=True,
                                    timeout=120).stdout)
    return run


def machine(row, size):
    return lambda: value(subprocess.run([os.path.join(BUILD, "bin", "bench_baseline"), row, str(size)], check=True, stdout=subprocess.PIPE, text=True).stdout)


def ucx(test, size):
    """ns an operation: latency, or size over bandwidth."""
    def run():
        env = dict(os.environ, UCX_TLS="posix,cma,self", UCX_WARN_UNUSED_ENV_VARS="n")
        port = str(free_port())
        n = str(20000 if size <= 4096 else 2000)
        s = subprocess.Popen(PIN[1] + ["ucx_perftest", "-p", port], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3)
        try:
            out = subprocess.run(PIN[0] + ["ucx_perftest", "-p", port, "127.0.0.1", "-t", test, "-s", str(size), "-n", n, "-w", "1000", "-f"], env=env,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60).stdout
        finally:
            stop(s)
        rows = [l.split() for l in out.splitlines() if re.match(r"^ *(Final:|\d)", l)]
        require(rows, "no result of ucx_perftest:\n" + out)
        fields = [f for f in rows[-1] if re.match(r"^[\d.]+$", f)]
        return float(fields[2]) * 1000
    return run


K64, M1 = 65536, 1 << 20
# name, ours, baseline, 'at most' or 'at least', goal; ratios are ours/baseline of times (at most) or of rates (at least).
ROWS = [
    ("SEND 8 B latency / UCX tag_lat", ours("send_lat", 8), ucx("tag_lat", 8), "<=", 1.2),
    ("WRITE 8 B latency / vm ping-pong", ours("write_lat", 8), machine("vm_lat", 8), "<=", 1.5),
    ("READ 8 B latency / process_vm_readv", ours("read_lat", 8), machine("vm_read", 8), "<=", 1.5),
    ("WRITE 64 KiB rate / process_vm_writev", ours("write_bw", K64), machine("vm_write", K64), ">=", 0.85),
    ("WRITE 1 MiB rate / process_vm_writev", ours("write_bw", M1), machine("vm_write", M1), ">=", 0.9),
    ("READ 64 KiB rate / process_vm_readv", ours("read_bw", K64), machine("vm_read", K64), ">=", 0.85),
    ("READ 1 MiB rate / process_vm_readv", ours("read_bw", M1), machine("vm_read", M1), ">=", 0.9),
    ("SEND 64 KiB rate / process_vm_writev", ours("send_bw", K64), machine("vm_write", K64), ">=", 0.85),
    ("SEND 1 MiB rate / process_vm_writev", ours("send_bw", M1), machine("vm_write", M1), ">=", 0.9),
    ("SEND 64 KiB rate / UCX tag_bw", ours("send_bw", K64), ucx("tag_bw", K64), ">=", 1.0),
    ("rdma-core with hooks: WRITE 8 B latency / our libraries", ours("write_lat", 8, core=True), ours("write_lat", 8), "<=", 1.5),
    ("direct WRITE 64 KiB rate / framed", ours("write_bw", K64), ours("write_bw", K64, framed=True), ">=", 1.0),
    ("SEND 8 B between sleepers / eventfd wake", ours("wake_lat", 8), machine("wake", 8), "<=", 1.5),
    ("wire SEND 8 B latency / raw UDP ping-pong", over_wire("send_lat", 8), udp("udp_lat", 8), "<=", 1.4),
    ("wire WRITE 64 KiB rate, MTU 4096 / raw UDP loop", over_wire("write_bw", K64, parts=16), udp("udp_loop", 4096), ">=", 0.75),
    ("wire SEND 64 KiB rate, MTU 4096 / raw UDP loop", over_wire("send_bw", K64, parts=16), udp("udp_loop", 4096), ">=", 0.75),
    ("wire WRITE 64 B rate / raw UDP loop", over_wire("write_rate", 64), udp("udp_loop", 64), ">=", 0.4),
    ("QP create, connect, destroy rate / AF_UNIX connections", ours("qp_life", 8), machine("unix", 8), ">=", 0.3),
    ("empty poll, ns (baseline: 1 ns)", ours("poll_empty", 8), lambda: 1.0, "<=", 5),
    ("reg_mr 1 MiB, ns (baseline: 1000 ns)", ours("reg_mr", M1), lambda: 1000.0, "<=", 3),
]


def main():
    only = sys.argv[2] if len(sys.argv) > 2 else None
    results = []
    for name, mine, base, sense, goal in ROWS:
        if only and not re.search(only, name, re.I):
            continue
        if "UCX" in name and not shutil.which("ucx_perftest"):
            print("%-58s left out: ucx_perftest is not installed (ucx-utils)" % name)
            continue
        if name.startswith("wire") and os.geteuid() != 0:
            print("%-58s left out: needs root for network namespaces" % name)
            continue
        pairs = []
        for _ in range(ROUNDS):
            pairs.append((mine(), base()))
        ratios = [a / b if sense == "<=" else b / a for a, b in pairs]
        ratio = statistics.median(ratios)
        met = ratio <= goal if sense == "<=" else ratio >= goal
        results.append({"row": name, "ours_ns": statistics.median(a for a, _ in pairs), "baseline_ns": statistics.median(b for _, b in pairs), "ratio": ratio,
                        "ratios": ratios, "goal": "%s %g" % (sense, goal), "met": met})
        print("%-58s %8.2f  goal %s %-5g %s   (ours %.0f ns, baseline %.0f ns)" %
              (name, ratio, sense, goal, "met" if met else "SHORT", results[-1]["ours_ns"], results[-1]["baseline_ns"]), flush=True)
    with open(os.path.join(BUILD, "bench.json"), "w") as f:
        json.dump(results, f, indent=1)


main()
