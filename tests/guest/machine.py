# SPDX-License-Identifier: MIT
"""HCAs served to virtual machines, and the machines: every guest runs a script of this folder and reports its exit status."""
import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "clients"))
from rig import BUILD, Failure, UHCA, require, sh  # noqa: E402

# What is left of a failed case: consoles of the guests, their output, traces and messages of the servers.
LOGS = os.path.join(BUILD, "guest-logs")
RDMA = "mlx5_core mlx5_ib ib_uverbs"


def set_up(long=True):
    """The guest's kernels and tools; takes a minute or two and network the first time. `long`: what only the long cases need, too."""
    r = subprocess.run([os.path.join(HERE, "setup")] + (["--long"] if long else []), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if r.returncode != 0:
        raise Failure("tests/guest/setup failed:\n" + "\n".join(r.stdout.splitlines()[-25:]))


class Host:
    """A network namespace of its own with the servers and machines of one case."""

    def __init__(self, name):
        self.logs = os.path.join(LOGS, name)
        self.namespace = "uhcag%d" % os.getpid()
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
        self.running.append(p)
        return p

    def ip(self, *words):
        sh("ip", "-n", self.namespace, *words)

    def bridge(self, *taps):
        self.ip("link", "add", "br0", "type", "bridge")
        self.ip("link", "set", "br0", "up")
        for t in taps:
            self.ip("tuntap", "add", "dev", t, "mode", "tap")
            self.ip("link", "set", t, "master", "br0", "up")

    def device(self, name="hca", *options):
        """Serves an HCA; returns the socket's path."""
        socket = self.path(name + ".sock")
        p = self.start(name + ".log", UHCA, "pci", "--socket", socket, "--trace", "-o", self.path(name + ".trace"), *options,
                       env={"UHCA_LOG": self.path(name + ".refusals")})
        for _ in range(600):
            if os.path.exists(socket):
                return socket
            require(p.poll() is None, "uhca pci ended with %s: %s" % (p.returncode, self.read(name + ".log")))
            time.sleep(0.05)
        raise Failure("uhca pci does not listen")

    def guest(self, script, *devices, name="guest", arguments="", modules=RDMA, limit=240, options=(), kernel=None):
        """Boots a machine that runs tests/guest/SCRIPT; returns the process."""
        words = [os.path.join(HERE, "run-guest"), "--cmd", "sh /root/%s %s" % (script, arguments), "--modules", modules, "--timeout", str(limit),
                 "--console", self.path(name + ".console"), "--append", "loglevel=7"]
        for f in ("lib.sh", script):
            words += ["--file", os.path.join(HERE, f)]
        for d in devices:
            words += ["--vfio-user", d]
        if kernel:
            words += ["--kernel", kernel]
        p = self.start(name + ".out", *words, *options)
        p.guest = name
        return p

    def finish(self, *guests):
        """All to their end; exit statuses must be 0. Returns what they printed."""
        for g in guests:
            g.wait()
        for g in guests:
            require(g.returncode == 0, "%s: exit status %d; logs in %s\n%s" % (g.guest, g.returncode, self.logs, self.read(g.guest + ".out", 40)))
        return [self.read(g.guest + ".out") for g in guests]

    def read(self, name, last=None):
        with open(self.path(name), errors="replace") as f:
            lines = f.read().splitlines()
        return "\n".join(lines[-last:] if last else lines)

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
