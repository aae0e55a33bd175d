# SPDX-License-Identifier: MIT
"""GPU memory: the simulated card under programs that know only a GPU's own interfaces, and verbs."""
import os
import subprocess
import tempfile

import cases_pyverbs
from cases_memory import run
from rig import Place, require

HERE = os.path.dirname(os.path.abspath(__file__))
DMABUF_TESTS = ["tests.test_mr.DmaBufMRTest.test_dmabuf_" + n
                for n in ("dereg_mr", "dereg_mr_twice", "lkey", "read", "reg_mr", "reg_mr_bad_flags", "rkey", "write")]
DMABUF_TESTS += ["tests.test_mr.DmaBufTestCase.test_dmabuf_" + n for n in ("rc_traffic", "rdma_traffic")]


def amd(place, name, *more):
    run(place, "gpu_amd", name, str(place.gid_index()), *more)


def pyverbs(place, *options):
    """pyverbs' own ten tests of dma-bufs, on the render node."""
    with tempfile.TemporaryDirectory() as folder:
        cases_pyverbs.unpack(folder)
        words = ["/usr/bin/python3", os.path.join(HERE, "pyverbs_dmabuf.py"), folder, "--dev", "mlx5_0", "--port", "1", "--gid",
                 str(place.gid_index()), "--gpu", "0", *options, "-v", *DMABUF_TESTS]
        r = subprocess.run(place.uhca(*words), env=place.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, errors="replace", timeout=120)
    found = cases_pyverbs.results(r.stdout)
    wrong = [n for n in DMABUF_TESTS if found.get(n) != "ok"]
    require(not wrong, "not ok: %s\n%s" % (", ".join(wrong), r.stdout[-3000:]))


def register(runner):
    for label, core in (("ours", False), ("rdma-core", True)):
        card = Place(rdma_core=core, gpu="amd,vram=64M")
        for name in ("exports", "lifetimes", "moves", "storm"):
            runner.case("gpu amd %s/%s" % (name, label), amd, card, name)
        runner.case("gpu pyverbs dma-buf in VRAM/%s" % label, pyverbs, card)
        runner.case("gpu pyverbs dma-buf in GTT/%s" % label, pyverbs, card, "--gtt")
