# SPDX-License-Identifier: MIT
"""pyverbs' own suite (Debian's python3-pyverbs): every test id of pyverbs_ids.txt must say "ok"; a skipped test is a failure."""
import gzip
import os
import re
import shutil
import subprocess
import tempfile

from rig import Failure, Place, require

SUITE = "/usr/share/doc/rdma-core/tests"
HERE = os.path.dirname(os.path.abspath(__file__))
HUGE_PAGES = "/proc/sys/vm/nr_hugepages"
LIMIT = 900  # seconds until a hung suite counts as failed


def ids():
    names = []
    for file in ["pyverbs_ids.txt"] + (["pyverbs_root_ids.txt"] if os.geteuid() == 0 else []):
        with open(os.path.join(HERE, file)) as f:
            names += [line.strip() for line in f if line.strip() and not line.startswith("#")]
    return names


def unpack(folder):
    """A copy of the suite that python can import: Debian compresses the larger files."""
    tests = shutil.copytree(SUITE, os.path.join(folder, "tests"))
    for name in os.listdir(tests):
        if name.endswith(".gz"):
            with gzip.open(os.path.join(tests, name)) as packed, open(os.path.join(tests, name[:-3]), "wb") as plain:
                shutil.copyfileobj(packed, plain)


def results(log):
    """Test id -> "ok", "skipped ...", "FAIL" or "ERROR". unittest -v names a test on one line and answers there or further down."""
    found, current = {}, None
    for line in log.splitlines():
        m = re.match(r"(\w+) \((tests\.[\w.]+)\)", line)
        if m:
            current = m[2] if m[2].endswith("." + m[1]) else m[2] + "." + m[1]
        # A test may print before its answer, which then has a line of its own.
        m = re.search(r"\.\.\. (ok|skipped .*|FAIL|ERROR)$", line)
        if current and m:
            found.setdefault(current, m[1])
        elif current and line.strip() in ("ok", "ERROR", "FAIL"):
            found.setdefault(current, line.strip())
    return found


class HugePages:
    """Some tests want huge pages; who may, asks for a few while they run."""

    def __enter__(self):
        self.before = None
        try:
            with open(HUGE_PAGES) as f:
                self.before = f.read()
            with open(HUGE_PAGES, "w") as f:
                f.write(str(max(16, int(self.before))))
        except OSError:
            pass

    def __exit__(self, *_):
        try:
            with open(HUGE_PAGES, "w") as f:
                f.write(self.before)
        except (OSError, TypeError):
            pass


class Suite:
    """The whole list in one process, when the first of its tests is asked for."""

    def __init__(self, place):
        self.place = place
        self.found = self.log = None

    def run(self):
        with tempfile.TemporaryDirectory() as folder, HugePages():
            unpack(folder)
            words = ["/usr/bin/python3", "tests/run_tests.py", "--dev", "mlx5_0", "--port", "1", "--gid", str(self.place.gid_index()), "-v"]
            try:
                r = subprocess.run(self.place.uhca(*words, *ids()), cwd=folder, env=self.place.environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT)
                self.log = r.stdout
            except subprocess.TimeoutExpired as e:
                self.log = (e.stdout or b"").decode(errors="replace") + "\nhung"
        self.found = results(self.log)

    def test(self, name):
        if self.found is None:
            require(os.path.isdir(SUITE), "no " + SUITE + ": python3-pyverbs and rdma-core are needed (scripts/packages.txt)")
            self.run()
        answer = self.found.get(name)
        if answer is None:
            raise Failure("it did not run; the log ends with:\n" + self.log[-2000:])
        if answer != "ok":
            m = re.search(r"^(ERROR|FAIL): %s \(.*?(?=^={20}|\Z)" % name.rsplit(".", 1)[1], self.log, re.M | re.S)
            raise Failure(answer + ("\n" + m[0][-1500:] if m else ""))


def register(runner):
    for label, core in (("ours", False), ("rdma-core", True)):
        suite = Suite(Place(rdma_core=core))
        for name in ids():
            runner.case("pyverbs %s/%s" % (name[len("tests."):], label), suite.test, name)
