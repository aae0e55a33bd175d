# SPDX-License-Identifier: MIT
"""The direct way between two programs of one host against the framed one: same outcome, same order, same care with memory."""
import os
import random
import re
import tempfile
import time

from cases_robust import program
from rig import Place, finish, free_port, output, require, stop

DIRECT = r"direct access to process \d+: possible"


class Pair:
    """One program at both ends, each with its log."""

    def __init__(self, name, core, framed, **env):
        self.logs = [tempfile.NamedTemporaryFile(prefix="uhca-log-") for _ in range(2)]
        places = []
        for log in self.logs:
            e = dict(env, UHCA_LOG=log.name, UHCA_LOG_LEVEL="info")
            if framed:
                e["UHCA_PATH"] = "framed"
            places.append(Place(rdma_core=core, env=e))
        port, gid = free_port(), str(places[0].gid_index())
        self.server = places[0].start(program(name), "server", str(port), gid)
        self.client = places[1].start(program(name), "client", "127.0.0.1", str(port), gid)

    def log(self):
        return "".join(open(log.name).read() for log in self.logs)

    def finish(self, limit=60):
        """Both outputs; both exit statuses are 0."""
        try:
            outs = finish(self.client, limit), finish(self.server, limit)
        finally:
            stop(self.server, self.client)
        require(self.server.returncode == 0 and self.client.returncode == 0,
                "server %d, client %d\nclient:\n%s\nserver:\n%s\nlogs:\n%s" % (self.server.returncode, self.client.returncode, outs[0][-1500:], outs[1][-1500:], self.log()[-3000:]))
        return outs

    def used_directly(self, wanted):
        seen = re.search(DIRECT, self.log()) is not None
        require(seen == wanted, "direct access %s:\n%s" % ("used although frames were asked for" if seen else "not used", self.log()[-1500:]))


def transcript(text):
    return [l for l in text.splitlines() if re.match(r"round|  |async", l)]


def same_outcome(core, seed, rounds):
    results = []
    for framed in (True, False):
        pair = Pair("random_ops", core, framed, SEED=str(seed), ROUNDS=str(rounds))
        results.append([transcript(o) for o in pair.finish(120)])
        pair.used_directly(not framed)
    for who, a, b in zip(("client", "server"), *results):
        require(len(a) > rounds, "no transcript")
        for i, (x, y) in enumerate(zip(a, b)):
            require(x == y, "seed %d, %s, line %d: framed '%s', direct '%s'; before:\n%s" % (seed, who, i, x, y, "\n".join(a[max(0, i - 8):i])))
        require(len(a) == len(b), "transcripts of different lengths")


def in_order(core, framed):
    env = {} if framed else {"STOP": "1", "WATCH": "2000"}
    pair = Pair("ordering", core, framed, **env)
    outs = pair.finish()
    pair.used_directly(not framed)
    require(all("in order" in o for o in outs), "no result")


def storm(core, framed, seconds):
    pair = Pair("storm", core, framed, SECONDS=str(seconds))
    pair.finish(seconds + 60)
    pair.used_directly(not framed)


def killed_initiators(core, times):
    """The target takes memory back while its initiators die in the middle of accesses."""
    for _ in range(times):
        pair = Pair("storm", core, False, SECONDS="20", KILLED="1")
        try:
            time.sleep(0.4 + random.random() * 0.4)
            require(pair.server.poll() is None and pair.client.poll() is None, "ended early:\n" + output(pair.server) + output(pair.client))
            pair.client.kill()
            out = finish(pair.server, 40)
            require(pair.server.returncode == 0 and "rounds" in out, "exit status %d\n%s" % (pair.server.returncode, out[-2000:]))
        finally:
            stop(pair.server, pair.client)


def register(runner):
    long = bool(os.environ.get("UHCA_LONG"))
    seeds = range(1, 400) if long else (1, 2)
    for core in (False, True):
        label = "rdma-core" if core else "ours"
        for framed in (True, False):
            runner.case("ordering/%s/%s" % ("framed" if framed else "direct", label), in_order, core, framed)
        for seed in seeds if not core else list(seeds)[:2]:
            runner.case("framed and direct agree, seed %d/%s" % (seed, label), same_outcome, core, seed, 150)
        runner.case("memory taken back in a storm/direct/" + label, storm, core, False, 150 if long else 2)
    runner.case("memory taken back in a storm/framed", storm, False, True, 30 if long else 2)
    runner.case("initiators killed in the middle", killed_initiators, False, 60 if long else 3)
