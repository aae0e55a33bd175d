# SPDX-License-Identifier: MIT
"""HCAs served to virtual machines, and the machines: every guest runs a script of this folder and reports its exit status."""
import os
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "clients"))
from rig import BUILD, Failure, Place, UHCA, require, sh  # noqa: E402

# What is left of a failed case: consoles of the guests, their output, traces and messages of the servers.
LOGS = os.path.join(BUILD, "guest-logs")
RDMA = "mlx5_core mlx5_ib ib_uverbs"


def set_up(long=True):
    """The guest's kernels and tools; takes a minute or two and network the first time. `long`: what only the long cases need, too."""
    r = subprocess.run([os.path.join(HERE, "setup")] + (["--long"] if long else []), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if r.returncode != 0:
        raise Failure("tests/guest/setup failed:\n" + "\n".join(r.stdout.splitlines()[-25:]))


def read(path, last=None):
    with open(path, errors="replace") as f:
        lines = f.read().splitlines()
    return "\n".join(lines[-last:] if last else lines)


class Host:
    """A network namespace of its own with the servers and machines of one case."""

    made = 0

    def __init__(self, name):
        self.logs = os.path.join(LOGS, name)
        self.namespace = "uhcag%d-%d" % (os.getpid(), Host.made)
        Host.made += 1
        self.running = []

    def __enter__(self):
        shutil.rmtree(self.logs, ignore_errors=True)
        os.makedirs(self.logs)
        sh("ip", "netns", "add", self.namespace)
        sh("ip", "-n", self.namespace, "link", "set", "lo", "up")
        return self

    def path(self, name):
        return os.path.join(self.logs, name)

    def start(self, log, *words, env=None):
        with open(self.path(log), "w") as out:
            p = subprocess.Popen(["nsenter", "--net=/run/netns/" + self.namespace] + list(words), stdout=out, stderr=subprocess.STDOUT,
                                 stdin=subprocess.DEVNULL, env=dict(os.environ, **(env or {})))
        p.out = self.path(log)
        self.running.append(p)
        return p

    def ip(self, *words):
        sh("ip", "-n", self.namespace, *words)

    def tap(self, name, address=None):
        self.ip("tuntap", "add", "dev", name, "mode", "tap")
        if address:
            self.ip("addr", "add", address, "dev", name)
        self.ip("link", "set", name, "up")

    def bridge(self, *taps):
        self.ip("link", "add", "br0", "type", "bridge")
        self.ip("link", "set", "br0", "up")
        for t in taps:
            self.tap(t)
            self.ip("link", "set", t, "master", "br0")

    def device(self, name="hca", *options):
        """Serves an HCA; returns the socket's path."""
        socket = self.path(name + ".sock")
        p = self.start(name + ".log", UHCA, "pci", "--socket", socket, "--trace", "-o", self.path(name + ".trace"), *options,
                       env={"UHCA_LOG": self.path(name + ".refusals")})
        for _ in range(600):
            if os.path.exists(socket):
                return socket
            require(p.poll() is None, "uhca pci ended with %s: %s" % (p.returncode, read(self.path(name + ".log"))))
            time.sleep(0.05)
        raise Failure("uhca pci does not listen")

    def guest(self, script, *devices, name="guest", arguments="", modules=RDMA, limit=240, options=(), kernel=None):
        """Boots a machine that runs tests/guest/SCRIPT; returns the process."""
        words = [os.path.join(HERE, "run-guest"), "--cmd", "sh /root/%s %s" % (script, arguments), "--modules", modules, "--timeout", str(limit),
                 "--console", self.path(name + ".console"), "--append", "loglevel=7"]
        for f in ("lib.sh", "exchange.sh", script):
            words += ["--file", os.path.join(HERE, f)]
        for d in devices:
            words += ["--vfio-user", d]
        if kernel:
            words += ["--kernel", kernel]
        return self.start(name + ".out", *words, *options)

    def program(self, roles, peer, netdev, limit=600):
        """exchange.sh in a process of this host, on a function of its own; returns the process."""
        place = Place(namespace=self.namespace, netdev=netdev)
        words = [UHCA, "run", "--netdev", netdev, "--", "timeout", str(limit), "sh", os.path.join(HERE, "exchange.sh"), roles, "mlx5_0",
                 str(place.gid_index()), peer]
        return self.start("program.out", *words, env={"UHCA_LOG": self.path("program.refusals")})

    def said(self, process, pattern):
        """Waits for a line of this pattern in what a process prints; returns its first group."""
        while process.poll() is None:
            m = re.search(pattern, read(process.out))
            if m:
                return m[1]
            time.sleep(0.1)
        raise Failure("%s ended without saying %s:\n%s" % (process.out, pattern, read(process.out, 40)))

    @staticmethod
    def finish(*processes):
        """All to their end; exit statuses must be 0, and the first that is not ends the waiting. Returns what they printed."""
        left = list(processes)
        while left:
            time.sleep(0.1)
            left = [p for p in left if p.poll() is None]
            for p in processes:
                require(p.returncode in (None, 0), "exit status %s, %s:\n%s" % (p.returncode, p.out, read(p.out, 40)))
        return [read(p.out) for p in processes]

    def __exit__(self, kind, *_):
        for p in reversed(self.running):
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
                try:
                    p.wait(10)
                except subprocess.TimeoutExpired:
                    p.kill()
                    p.wait()
        subprocess.run(["ip", "netns", "del", self.namespace], stderr=subprocess.DEVNULL)
        if kind is None:
            shutil.rmtree(self.logs, ignore_errors=True)
