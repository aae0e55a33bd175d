# SPDX-License-Identifier: MIT
"""The direct way between two programs of one host against the framed one: same outcome, same order, same care with memory."""
import os
import random
import re
import time

from cases_robust import program
from rig import Failure, Place, finish, free_port, output, require, stop

FRAMED = {"UHCA_PATH": "framed"}
DIRECT = "direct access to process"


def ends(name, server, client, limit=60):
    """Both outputs; both exit statuses are 0."""
    port = free_port()
    gid = str(server.gid_index())
    s = server.start(program(name), "server", str(port), gid)
    c = client.start(program(name), "client", "127.0.0.1", str(port), gid)
    try:
        outs = finish(c, limit), finish(s, limit)
    finally:
        stop(s, c)
    require(s.returncode == 0 and c.returncode == 0, "server %d, client %d\nclient:\n%s\nserver:\n%s" % (s.returncode, c.returncode, outs[0][-2000:], outs[1][-2000:]))
    return outs


def place(framed, core, **env):
    e = dict(env)
    e.update({"UHCA_LOG": "stderr", "UHCA_LOG_LEVEL": "info"})
    if framed:
        e.update(FRAMED)
    return Place(rdma_core=core, env=e)


def transcript(text):
    return [l for l in text.splitlines() if re.match(r"round|  |async", l)]


def used_directly(outs, framed):
    seen = any(DIRECT in o and "possible" in o for o in outs)
    require(seen != framed, "direct access %s:\n%s" % ("used although frames were asked for" if seen else "not used", outs[0][-1500:]))


def same_outcome(core, seed, rounds):
    results = []
    for framed in (True, False):
        p = place(framed, core, SEED=str(seed), ROUNDS=str(rounds))
        outs = ends("random_ops", p, p, limit=120)
        used_directly(outs, framed)
        results.append([transcript(o) for o in outs])
    for who, a, b in zip(("client", "server"), *results):
        require(len(a) > rounds, "no transcript")
        for i, (x, y) in enumerate(zip(a, b)):
            require(x == y, "seed %d, %s, line %d: framed '%s', direct '%s'; before:\n%s" % (seed, who, i, x, y, "\n".join(a[max(0, i - 8):i])))
        require(len(a) == len(b), "transcripts of different lengths")


def in_order(core, framed):
    env = {} if framed else {"STOP": "1"}
    p = place(framed, core, **env)
    outs = ends("ordering", p, p)
    used_directly(outs, framed)
    require(all("in order" in o for o in outs), "no result")


def storm(core, framed, seconds):
    p = place(framed, core, SECONDS=str(seconds))
    outs = ends("storm", p, p, limit=seconds + 60)
    used_directly(outs, framed)


def killed_initiators(core, times):
    """The target takes memory back while its initiators die in the middle of accesses."""
    for _ in range(times):
        port = free_port()
        p = place(False, core, SECONDS="20", KILLED="1")
        gid = str(p.gid_index())
        server = p.start(program("storm"), "server", str(port), gid)
        client = p.start(program("storm"), "client", "127.0.0.1", str(port), gid)
        try:
            time.sleep(0.4 + random.random() * 0.4)
            require(server.poll() is None and client.poll() is None, "ended early:\n" + output(server) + output(client))
            client.kill()
            out = finish(server, 40)
            require(server.returncode in (0, 1) and "rounds" in out and "afterwards" not in out, out[-2000:])
        finally:
            stop(server, client)


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
