# SPDX-License-Identifier: MIT
"""GPU memory: the simulated card under programs that know only a GPU's own interfaces, and verbs."""
import os
import re
import shutil
import subprocess
import tempfile

import cases_pyverbs
from cases_memory import run
from cases_robust import program
from rig import Namespaces, Place, free_port, pair, require

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


def cuda(place, name):
    run(place, "gpu_cuda", name, str(place.gid_index()))


def cuda_tests(place, *names):
    """pyverbs' tests of CUDA memory, with our libcuda.so.1 behind a little package in cuda-python's place."""
    with tempfile.TemporaryDirectory() as folder:
        cases_pyverbs.unpack(folder)
        words = ["/usr/bin/python3", "tests/run_tests.py", "--dev", "mlx5_0", "--port", "1", "--gid", str(place.gid_index()), "--gpu", "0", "-v", *names]
        environment = dict(place.environment(), PYTHONPATH=os.path.join(HERE, "cuda_python"))
        r = subprocess.run(place.uhca(*words), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, errors="replace", timeout=60)
    require(re.search(r"^Ran %d test" % len(names), r.stdout, re.M) and re.search(r"^OK$", r.stdout, re.M), r.stdout[-3000:])


def queues(place):
    """DEVX queues in GPU memory (test_gpu_queues.py), run by pyverbs' suite."""
    with tempfile.TemporaryDirectory() as folder:
        cases_pyverbs.unpack(folder)
        for file in ("gpu_dmabuf.py", "test_gpu_queues.py"):
            shutil.copy(os.path.join(HERE, file), os.path.join(folder, "tests"))
        words = ["/usr/bin/python3", "tests/run_tests.py", "--dev", "mlx5_0", "--port", "1", "--gid", str(place.gid_index()), "-v", "tests.test_gpu_queues"]
        r = subprocess.run(place.uhca(*words), cwd=folder, env=place.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, errors="replace", timeout=60)
    require(re.search(r"^Ran 1 test", r.stdout, re.M) and re.search(r"^OK$", r.stdout, re.M), r.stdout[-3000:])


def gpu_to_gpu(server, client):
    """Each program has a GPU of its own; one writes, reads and sends the other's memory."""
    port = free_port()
    outs = pair(server, client, [program("gpu_cuda"), "server", str(port), str(server.gid_index())],
                [program("gpu_cuda"), "client", server.address, str(port), str(client.gid_index())], port)
    require("GPU to GPU: WRITE, READ and SEND of 1 MiB each" in outs[1], "\n".join(outs))


def far_storm(server, client):
    """Buffers of one program's GPU move while eight QPs of another program use them."""
    port = free_port()
    pair(server, client, [program("gpu_amd"), "server", str(port), str(server.gid_index())],
         [program("gpu_amd"), "client", server.address, str(port), str(client.gid_index())], port)


CUDA_TESTS = ["tests.test_cuda_dmabuf.DmabufCudaTest.test_cuda_dmabuf_rdma_write_traffic",
              "tests.test_mlx5_cuda_umem.Mlx5GpuDevxRcTrafficTest.test_mlx_devx_cuda_send_imm_traffic"]
STORM = os.environ.get("UHCA_STORM", "2")  # seconds
LOSS = {"UHCA_IMPAIR": "drop=0.005,dup=0.001,reorder=0.005,seed=11"}


def register(runner):
    for label, core in (("ours", False), ("rdma-core", True)):
        card = Place(rdma_core=core, gpu="amd,vram=64M")
        for name in ("exports", "lifetimes", "moves"):
            runner.case("gpu amd %s/%s" % (name, label), amd, card, name)
        runner.case("gpu amd storm/%s" % label, amd, card, "storm", STORM)
        runner.case("gpu pyverbs dma-buf in VRAM/%s" % label, pyverbs, card)
        runner.case("gpu queues in GPU memory/%s" % label, queues, card)
        runner.case("gpu pyverbs dma-buf in GTT/%s" % label, pyverbs, card, "--gtt")
        runner.case("gpu amd storm, frames get lost/%s" % label, amd, Place(rdma_core=core, gpu="amd,vram=64M", env=LOSS), "storm", STORM)
        nvidia = Place(rdma_core=core, gpu="nvidia,vram=256M")
        for name in ("api", "export", "probes"):
            runner.case("gpu cuda %s/%s" % (name, label), cuda, nvidia, name)
        runner.case("gpu cuda no route/%s" % label, cuda, Place(rdma_core=core, gpu="nvidia,vram=256M,p2p=off"), "no_route")
        runner.case("gpu cuda BAR 1 is full/%s" % label, cuda, Place(rdma_core=core, gpu="nvidia,vram=256M,bar=small"), "bar1")
        runner.case("gpu cuda GPU to GPU/%s/one host" % label, gpu_to_gpu, nvidia, nvidia)
        runner.case("gpu pyverbs CUDA tests/%s" % label, cuda_tests, nvidia, *CUDA_TESTS)
    runner.case("gpu none without being asked for", cuda, Place(), "none")
    with Namespaces() as hosts:
        a, b = hosts.place(0), hosts.place(1)
        a.gpu = b.gpu = "nvidia,vram=256M"
        runner.case("gpu cuda GPU to GPU/two hosts", gpu_to_gpu, a, b)
        near = Place(gpu="amd,vram=64M", env={"STORM": STORM})
        runner.case("gpu amd storm of another program/one host", far_storm, near, near)
        a.env, b.env = dict(a.env, **LOSS), dict(b.env, **LOSS)
        runner.case("gpu cuda GPU to GPU/two hosts, frames get lost", gpu_to_gpu, a, b)
        a.gpu = b.gpu = "amd,vram=64M"
        a.env, b.env = dict(a.env, STORM=STORM), dict(b.env, STORM=STORM)
        runner.case("gpu amd storm of another program/two hosts, frames get lost", far_storm, a, b)
