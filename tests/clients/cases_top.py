# SPDX-License-Identifier: MIT
"""uhca top: the functions of this host are asked for what they count, and go on undisturbed."""
import json
import re
import signal
import subprocess

from rig import LIMIT, Place, UHCA, free_port, require, stop, wait_for, wait_listening


def top(*words, prefix=()):
    r = subprocess.run([*prefix, UHCA, "top", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    require(r.returncode == 0 and not r.stderr, "exit status %d:\n%s%s" % (r.returncode, r.stdout, r.stderr))
    return r.stdout


class Traffic:
    """ib_send_bw on frames for as long as the cases look; its counters move in both processes."""

    def __enter__(self):
        port, place = free_port(), Place(env={"UHCA_PATH": "framed"})
        words = ["ib_send_bw", "-d", "mlx5_0", "-F", "-x", str(place.gid_index()), "-p", str(port), "-D", "30", "-s", "4096"]
        self.server = place.start(*words)
        wait_listening(self.server, port)
        self.client = place.start(*words, "127.0.0.1")
        self.pids = {self.server.pid, self.client.pid}
        wait_for(lambda: sum(f.get("port", {}).get("tx_packets", 0) > 1000 for f in self.functions()) == 2, self.client, "sent")
        return self

    def functions(self):
        return [f for f in json.loads(top("--once", "--json"))["functions"] if f["pid"] in self.pids]

    def __exit__(self, *_):
        stop(self.server, self.client)


def while_running():
    with Traffic() as t:
        first = {f["pid"]: f for f in t.functions()}
        second = {f["pid"]: f for f in t.functions()}
        require(set(first) == set(second) == t.pids, "functions %s of %s" % (sorted(second), sorted(t.pids)))
        for pid, f in second.items():
            require(f["program"] == "ib_send_bw", f["program"])
            data = [q for q in f["qps"] if q["type"] == "RC"]
            require(len(data) == 1 and data[0]["state"] in ("RTR", "RTS") and data[0]["qpn"] >> 12 == f["function"], "QPs %s" % data)
            require(f["port"]["tx_packets"] > first[pid]["port"]["tx_packets"], "nothing moves in %d" % pid)
        a, b = (next(q for q in second[p]["qps"] if q["type"] == "RC") for p in (t.client.pid, t.server.pid))
        require(a["remote_qpn"] == b["qpn"] and b["remote_qpn"] == a["qpn"], "not each other's QPs: %s %s" % (a, b))
        require("rx_write_requests" in second[t.client.pid]["hw_counters"], "no counters of RDMA")
        # The picture: rates after the first, which has none.
        pictures = top("-n", "2", "-d", "0.3")
        for want in (r"TX pkt +TX B", r"TX pkt/s", r"%d  ib_send_bw" % t.client.pid, r"port 1", r"%d  %#x +RC +RTS +%#x" % (t.client.pid, a["qpn"], b["qpn"])):
            require(re.search(want, pictures), "no '%s' in:\n%s" % (want, pictures))
        rate = re.search(r"^ +%d +%#x .*$" % (t.client.pid, a["qpn"]), pictures[pictures.index("pkt/s"):], re.M)
        require(rate and not re.search(r" 0 .* 0 ", rate[0][40:62]) and " - " not in rate[0], "no rate: %s" % rate)


def who_is_answered():
    with Traffic() as t:
        other = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"]
        seen = [f for f in json.loads(top("--once", "--json", prefix=other))["functions"] if f["pid"] in t.pids]
        require(len(seen) == 2 and all(f["silent"] == "another user's" and "qps" not in f for f in seen), "told a foreign user: %s" % seen)
        require(len(re.findall("another user's", top("--once", prefix=other))) >= 2, "the picture hides why")
        # A function that is stopped keeps nobody waiting, and the others are shown.
        t.client.send_signal(signal.SIGSTOP)
        try:
            wait_for(lambda: open("/proc/%d/stat" % t.client.pid).read().rpartition(")")[2].split()[0] == "T", t.server, "saw its client stop")
            by_pid = {f["pid"]: f for f in t.functions()}
        finally:
            t.client.send_signal(signal.SIGCONT)
        require(by_pid[t.client.pid].get("silent") == "no answer", str(by_pid[t.client.pid])[:300])
        require("qps" in by_pid[t.server.pid], "the living are not shown")


def nobody():
    out = subprocess.run(["unshare", "-n", UHCA, "top", "--once"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    require(out.returncode == 0 and out.stdout.startswith("0 functions on this host"), out.stdout)
    require(json.loads(subprocess.run(["unshare", "-n", UHCA, "top", "--once", "--json"], stdout=subprocess.PIPE, text=True).stdout)["functions"] == [], "not empty")


def ends_with_a_signal():
    p = subprocess.Popen([UHCA, "top", "-d", "60"], stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    p.send_signal(signal.SIGINT)
    require(p.wait(LIMIT) == 0, "exit status %d" % p.returncode)


def register(runner):
    runner.case("top while traffic runs", while_running)
    runner.case("top of others' functions", who_is_answered)
    runner.case("top of nobody", nobody)
    runner.case("top ends", ends_with_a_signal)
