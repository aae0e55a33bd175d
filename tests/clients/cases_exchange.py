# SPDX-License-Identifier: MIT
"""Many processes, many queue pairs: all talk with all (programs/exchange.c), random ones are killed and replaced. A stopped function. A bad wire."""
import os
import random
import re
import signal
import time

from cases_robust import program, residue
from rig import Failure, Namespaces, Place, finish, free_port, output, perftest, pingpong, require, stop, wait_listening


class Crowd:
    def __init__(self, place, count, pairs, seconds, may_die):
        self.place, self.count, self.pairs, self.may_die = place, count, pairs, may_die
        self.tag = "uhca-test-exchange-%d" % random.getrandbits(40)
        self.gid = str(place.gid_index())
        self.end = time.time() + seconds
        self.members = [self.begin(i) for i in range(count)]
        self.killed = 0

    def begin(self, i):
        return self.place.start(program("exchange"), self.tag, str(i), str(self.count), self.gid, "%.1f" % (self.end - time.time()),
                                str(self.pairs), "1" if self.may_die else "0")

    def kill_one(self):
        i = random.randrange(self.count)
        require(self.members[i].poll() is None, "process %d ended by itself, %s:\n%s" % (i, self.members[i].returncode, output(self.members[i])))
        stop(self.members[i])
        self.killed += 1
        self.members[i] = self.begin(i)

    def finish(self):
        total = 0
        for i, p in enumerate(self.members):
            out = finish(p, max(10, self.end - time.time()) + 60)
            found = re.search(r"(\d+) rounds, (\d+) peers lost", out)
            require(p.returncode == 0 and found, "process %d of %d: exit status %s\n%s" % (i, self.count, p.returncode, out[-2000:]))
            total += int(found[1])
        return total


def exchange(place, count, pairs, seconds, kill_every=None):
    before = residue()[:2]  # others may be at work in /tmp
    crowd = Crowd(place, count, pairs, seconds, kill_every is not None)
    try:
        while kill_every and time.time() < crowd.end - 3:
            time.sleep(kill_every * random.uniform(0.5, 1.5))
            crowd.kill_one()
        rounds = crowd.finish()
        # Every queue pair was used, both ways.
        links = count * (count - 1) // 2 * pairs
        require(rounds >= 2 * links or kill_every, "%d rounds on %d queue pairs" % (rounds, links))
        require(rounds > 0 and (crowd.killed > 0 or not kill_every), "%d rounds, %d killed" % (rounds, crowd.killed))
    finally:
        stop(*crowd.members)
    require(residue()[:2] == before, "left behind: %s, before: %s" % (residue()[:2], before))


def stopped(hosts, seconds):
    """One function of a host does not run any more, the UDP socket that it has stays: the others go on."""
    here, there = hosts.place(0), hosts.place(1)
    port = free_port()
    still = here.start("ibv_rc_pingpong", "-d", "mlx5_0", "-g", str(here.gid_index()), "-p", str(port))
    try:
        wait_listening(still, port, here.namespace)
        still.send_signal(signal.SIGSTOP)
        end, good, bad = time.time() + seconds, 0, []
        while time.time() < end or good + len(bad) < 6:
            try:
                pingpong(here, there, "-n", "500")
                good += 1
            except Failure as e:
                bad.append(str(e))
        # Retries leave by other source ports; all eight meet the socket of the stopped one in one of 256 cases.
        require(len(bad) <= 1 + (good + len(bad)) // 20, "%d good, %d bad:\n%s" % (good, len(bad), "\n".join(bad[:3])))
        require(still.poll() is None, "the stopped one ended")
    finally:
        stop(still)


def impaired(place, other, *options):
    """A bad wire under everything: data are exact all the same.

    Each end is through when its own last message is acknowledged. If the last acknowledgement that it sent was lost, nobody is there to repeat
    it, and the other end cannot know that all of its messages arrived: that end is right as well.
    """
    bad = [Place(namespace=p.namespace, netdev=p.netdev, address=p.address, env={"UHCA_IMPAIR": "drop=0.01,dup=0.01,reorder=0.01,corrupt=0.01,seed=%d" % i})
           for i, p in enumerate((place, other), 1)]
    try:
        pingpong(*bad, "-n", "100", *options)
    except Failure as e:
        failed, through = re.split(r"\n(?:server|client):\n", str(e))
        require("transport retry counter exceeded (12)" in failed and "100 iters" in through and "invalid data" not in failed, str(e))


def slow_line(place, option, least, most):
    """perftest sees the line that `uhca run --impair` makes."""
    slow = Place(env={"UHCA_IMPAIR": option})
    program, words, column = ("ib_send_lat", ["-n", "200", "-s", "8"], 2) if "delay" in option else ("ib_write_bw", ["-n", "100", "-s", "65536"], 3)
    out = perftest(slow, slow, program, *words)[1]
    row = [l.split() for l in out.splitlines() if re.match(r"^ *\d+ +\d+ +[\d.]+", l)][0]
    require(least <= float(row[column]) <= most, "%s: %s of %s:\n%s" % (program, row[column], option, out))


def register(runner):
    long = bool(os.environ.get("UHCA_LONG"))
    here = Place()
    runner.case("impaired/one host", impaired, here, here, "-s", "20000")
    runner.case("a long line", slow_line, here, "delay=300us", 300, 3000)
    runner.case("a narrow line", slow_line, here, "rate=400m", 4, 48)
    with Namespaces() as hosts:
        runner.case("impaired/two hosts", impaired, hosts.place(0), hosts.place(1), "-s", "20000")
        runner.case("one of the functions of a host is stopped", stopped, hosts, 60 if long else 0)
    runner.case("exchange: 1000 queue pairs in each of two processes", exchange, here, 2, 1000, 15 if long else 4)
    runner.case("exchange: %d processes, each with each" % (64 if long else 12), exchange, here, 64 if long else 12, 1, 60 if long else 5)
    runner.case("exchange: random ones of %d processes killed" % (64 if long else 12), exchange, here, 64 if long else 12, 2, 300 if long else 10,
                0.5)
