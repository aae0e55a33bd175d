# SPDX-License-Identifier: MIT
"""Runs unmodified programs over uhca: where (one host, two namespaces), as whom, with whose user libraries."""
import os
import random
import re
import signal
import subprocess
import tempfile
import time

BUILD = os.path.abspath(os.environ.get("UHCA_BUILD", "build"))
UHCA = os.path.join(BUILD, "bin", "uhca")
LIMIT = 60  # seconds until a hung client counts as failed


class Failure(Exception):
    pass


def require(condition, message):
    if not condition:
        raise Failure(message)


def sh(*args, check=True):
    r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and r.returncode != 0:
        raise Failure("%s: %s" % (" ".join(args), r.stdout.strip()))
    return r.stdout


class Place:
    """Where a program runs: a network namespace (or the present one), a user, a choice of user libraries."""

    def __init__(self, namespace=None, user=None, rdma_core=False, netdev=None, env=None, address="127.0.0.1", gpu=None, container=False):
        """`container`: processes and /proc of its own, as in a container that shares only the network."""
        self.container = container
        self.namespace, self.user, self.rdma_core, self.netdev = namespace, user, rdma_core, netdev
        self.env = env or {}
        self.address = address
        self.gpu = gpu

    def prefix(self):
        p = []
        if self.namespace:
            p += ["nsenter", "--net=/run/netns/" + self.namespace]
        if self.container:
            p += ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if self.user:
            p += ["setpriv", "--reuid", str(self.user), "--regid", str(self.user), "--clear-groups", "--bounding-set=-all",
                  "--inh-caps=-all", "--no-new-privs"]
        return p

    def uhca(self, *words, sub="run"):
        options = [sub]
        if self.rdma_core:
            options.append("--rdma-core")
        if self.netdev:
            options += ["--netdev", self.netdev]
        if self.gpu:
            options += ["--gpu", self.gpu]
        return self.prefix() + [UHCA] + options + ["--"] + list(words)

    def environment(self):
        e = dict(os.environ)
        e.update(self.env)
        return e

    def start(self, *words, sub="run"):
        log = tempfile.TemporaryFile(mode="w+")
        p = subprocess.Popen(self.uhca(*words, sub=sub), stdout=log, stderr=subprocess.STDOUT, env=self.environment(),
                             stdin=subprocess.DEVNULL)
        p.log = log
        p.words = words
        return p

    def gid_index(self, want="ipv4"):
        if isinstance(want, int):
            return want
        command = self.prefix() + [UHCA, "devices"] + (["--netdev", self.netdev] if self.netdev else [])
        out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        v2 = [(int(m[1]), m[2]) for m in re.finditer(r"GID +(\d+) +(\S+) +RoCE v2", out)]
        require(v2, "no RoCE v2 GID: " + out)
        mapped = [i for i, g in v2 if g.startswith("0000:0000:0000:0000:0000:ffff:")]
        other = [i for i, g in v2 if not g.startswith(("0000:0000:0000:0000:0000:ffff:", "fe80"))]
        local = [i for i, g in v2 if g.startswith("fe80")]
        chosen = mapped if want == "ipv4" else other + local
        require(chosen, "no %s GID: %s" % (want, out))
        return chosen[0]


def output(p):
    p.log.seek(0)
    return p.log.read()


def finish(p, limit=LIMIT):
    try:
        p.wait(limit)
    except subprocess.TimeoutExpired:
        p.send_signal(signal.SIGKILL)
        p.wait()
        raise Failure("%s hung; output:\n%s" % (" ".join(p.words), output(p)))
    return output(p)


def stop(*processes):
    for p in processes:
        if p.poll() is None:
            p.kill()
            p.wait()


def listening(port, namespace=None):
    prefix = ["nsenter", "--net=/run/netns/" + namespace] if namespace else []
    out = subprocess.run(prefix + ["ss", "-Hltn", "sport = :%d" % port], stdout=subprocess.PIPE, text=True).stdout
    return bool(out.strip())


def wait_for(condition, process, what):
    """Until condition() holds, which `process` brings about while it lives."""
    for _ in range(600):
        if condition():
            return
        if process.poll() is not None:
            raise Failure("%s ended with %d before it %s:\n%s" % (" ".join(process.words), process.returncode, what, output(process)))
        time.sleep(0.05)
    raise Failure("%s never %s:\n%s" % (" ".join(process.words), what, output(process)))


def wait_listening(server, port, namespace=None):
    wait_for(lambda: listening(port, namespace), server, "listened")


def free_port():
    while True:
        port = random.randint(20000, 32000)  # below the ports that the kernel gives to connecting sockets
        if not listening(port):
            return port


def pair(server_place, client_place, server_words, client_words, port, limit=LIMIT, wait=None):
    """Both to their end; returns both outputs. Exit statuses must be 0. `wait` (called with the server): until it is ready; else until it listens."""
    server = server_place.start(*server_words)
    client = None
    try:
        if wait:
            wait(server)
        else:
            wait_listening(server, port, server_place.namespace)
        client = client_place.start(*client_words)
        client_out = finish(client, limit)
        server_out = finish(server, limit)
    finally:
        stop(server, *([client] if client else []))
    require(client.returncode == 0, "client %s: exit status %d\n%s\nserver:\n%s" % (" ".join(client_words), client.returncode, client_out, server_out))
    require(server.returncode == 0, "server %s: exit status %d\n%s\nclient:\n%s" % (" ".join(server_words), server.returncode, server_out, client_out))
    return server_out, client_out


def pingpong(server_place, client_place, *options, program="ibv_rc_pingpong", gid="ipv4", validate=True, limit=LIMIT):
    port = free_port()
    common = [program, "-d", "mlx5_0", "-p", str(port)] + (["-c"] if validate else []) + list(options)
    outs = pair(server_place, client_place, common + ["-g", str(server_place.gid_index(gid))],
                common + ["-g", str(client_place.gid_index(gid)), server_place.address], port, limit)
    for out in outs:
        require("bytes in" in out, "no result line:\n" + out)
        require("invalid data" not in out, "data validation failed:\n" + out)
    return outs


def perftest(server_place, client_place, program, *options, limit=LIMIT):
    """Its own calibration of the processor's clock fails now and then on a busy machine: it then says so and reports nothing, whatever it ran on."""
    for _ in range(5):
        port = free_port()
        common = [program, "-d", "mlx5_0", "-F", "-p", str(port)] + list(options)
        outs = pair(server_place, client_place, common + ["-x", str(server_place.gid_index())],
                    common + ["-x", str(client_place.gid_index()), server_place.address], port, limit)
        rows = [l for l in outs[1].splitlines() if re.match(r"^ *\d+ +\d+ +[\d.]+", l)]
        if rows or "Correlation coefficient" not in outs[1]:
            break
    require(rows, "no result row:\n" + outs[1])
    return outs


class Namespaces:
    """Two hosts joined by a veth; 10.99.0.1 and 10.99.0.2, fd99::1 and fd99::2."""

    def __init__(self):
        tag = "u%d" % os.getpid()
        self.names = [tag + "a", tag + "b"]
        self.links = [tag + "v0", tag + "v1"]

    def __enter__(self):
        try:
            for n in self.names:
                sh("ip", "netns", "add", n)
            sh("ip", "link", "add", self.links[0], "type", "veth", "peer", "name", self.links[1])
            for i, (n, l) in enumerate(zip(self.names, self.links)):
                sh("ip", "link", "set", l, "netns", n)
                sh("ip", "-n", n, "link", "set", "lo", "up")
                sh("ip", "-n", n, "addr", "add", "10.99.0.%d/24" % (i + 1), "dev", l)
                sh("ip", "-n", n, "addr", "add", "fd99::%d/64" % (i + 1), "dev", l, "nodad")
                sh("ip", "-n", n, "link", "set", l, "up")
                sh("nsenter", "--net=/run/netns/" + n, "ethtool", "-K", l, "tx-udp-segmentation", "off", check=False)
            time.sleep(0.3)
        except Failure:
            self.__exit__()
            raise
        return self

    def place(self, i, **kw):
        return Place(namespace=self.names[i], netdev=self.links[i], address="10.99.0.%d" % (i + 1), **kw)

    def __exit__(self, *_):
        for n in self.names:
            subprocess.run(["ip", "netns", "del", n], stderr=subprocess.DEVNULL)


class Runner:
    def __init__(self, only=None):
        self.passed = self.failed = 0
        self.only = only

    def wants(self, name):
        return not self.only or re.search(self.only, name)

    def case(self, name, function, *args, **kw):
        if not self.wants(name):
            return
        t = time.time()
        try:
            function(*args, **kw)
        except Exception as e:  # whatever it is, the other cases still run
            self.broken(name, e, time.time() - t)
        else:
            self.passed += 1
            print("ok    %s (%.1f s)" % (name, time.time() - t), flush=True)

    def broken(self, name, e, seconds=0.0):
        self.failed += 1
        what = str(e) if isinstance(e, Failure) else "%s: %s" % (type(e).__name__, e)
        print("FAIL  %s (%.1f s)\n      %s" % (name, seconds, what.replace("\n", "\n      ")), flush=True)

    def end(self):
        print("%d passed, %d failed" % (self.passed, self.failed))
        return 1 if self.failed or not self.passed else 0
