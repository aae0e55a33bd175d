# SPDX-License-Identifier: MIT
"""Communication libraries above verbs: UCX, libfabric, fio. The command lines are those of docs/clients.md."""
import os
import re
import tempfile

from cases_cm import both, own_address
from rig import Place, finish, free_port, pair, require, sh


def ucx(core, transports, test):
    """ucx_perftest finds its peer by TCP, all else goes by RDMA: `transports` has none that could replace it."""
    # Whoever rings doorbells without a call waits for the service thread to look: milliseconds each, while both ends spin on two processors.
    count = "20" if "mlx5" in transports and test == "tag_lat" else "200"
    place = Place(rdma_core=core, env={"UCX_TLS": transports + ",self", "UCX_NET_DEVICES": "mlx5_0:1"})
    port = free_port()
    words = ["ucx_perftest", "-p", str(port)]
    server_out, out = pair(place, place, words, words + ["127.0.0.1", "-t", test, "-n", count, "-w", "5", "-s", "4096", "-f"], port)
    text = "client:\n%s\nserver:\n%s" % (out, server_out)
    require(re.search(r"(?m)^ +%s +[\d.]+ +([\d.]+|inf) +[\d.]+ " % count, out), "no result row\n" + text)
    require(not re.search("not available|ERROR", text), text)


def fi_pingpong(provider, kind):
    place = Place()
    port = free_port()
    words = ["fi_pingpong", "-p", provider, "-e", kind, "-c", "-I", "20", "-S", "4096"]
    server_out, out = pair(place, place, words + ["-B", str(port)], words + ["-P", str(port), own_address(place)], port)
    text = "client:\n%s\nserver:\n%s" % (out, server_out)
    require(re.search(r"(?m)^4k +20 +=20 +", out), "no result row\n" + text)


def fio(verb):
    place = Place()
    port = free_port()
    common = ["fio", "--ioengine=rdma", "--port=%d" % port, "--bs=64k", "--size=4m", "--iodepth=8"]
    server_out, out = both(place, place, common + ["--name=target", "--rw=read"],
                           common + ["--name=initiator", "--hostname=" + own_address(place), "--verb=" + verb, "--rw=write"], port)
    text = "client:\n%s\nserver:\n%s" % (out, server_out)
    require("err= 0" in out and re.search(r"io=4096KiB", out), "not all was moved\n" + text)


def mpi(flavour, transports, *options, core=False):
    """Two ranks that check every sum; with `transports`, nothing but RDMA lies between them."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi", "sums.c")
    with tempfile.TemporaryDirectory() as folder:
        binary, log = folder + "/sums", folder + "/log"
        sh("mpicc." + flavour, "-O1", "-o", binary, source)
        env = {"UHCA_LOG": log, "UHCA_LOG_LEVEL": "info"}
        if transports:
            env.update({"UCX_TLS": transports + ",self", "UCX_NET_DEVICES": "mlx5_0:1"})
        place = Place(rdma_core=core, env=env)
        p = place.start("mpirun." + flavour, "-n", "2", *options, binary)
        out = finish(p)
        require(p.returncode == 0 and "2 ranks: all sums right" in out, "exit status %d:\n%s" % (p.returncode, out))
        with open(log) as f:
            require(len(set(re.findall(r"uhca\[(\d+)\] info: mlx5_0: ", f.read()))) >= 2, "the ranks did not open mlx5_0")


OPEN_MPI = ["--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx"]


def register(runner):
    for core in (False, True):
        label = "rdma-core" if core else "ours"
        runner.case("mpi openmpi rc_verbs/" + label, mpi, "openmpi", "rc_verbs,ud_verbs", *OPEN_MPI, core=core)
        runner.case("mpi mpich rc_verbs/" + label, mpi, "mpich", "rc_verbs,ud_verbs", core=core)
    runner.case("mpi openmpi without settings", mpi, "openmpi", None, "--allow-run-as-root", "--oversubscribe")
    runner.case("mpi mpich without settings", mpi, "mpich", None)
    runner.case("mpi openmpi ud_verbs", mpi, "openmpi", "ud_verbs", *OPEN_MPI)
    for core in (False, True):
        label = "rdma-core" if core else "ours"
        for test in ("tag_lat", "ucp_put_bw"):
            runner.case("ucx rc_verbs %s/%s" % (test, label), ucx, core, "rc_verbs,ud_verbs", test)
            runner.case("ucx ud_verbs %s/%s" % (test, label), ucx, core, "ud_verbs", test)
            runner.case("ucx ud_mlx5 %s/%s" % (test, label), ucx, core, "ud_mlx5", test)
            runner.case("ucx rc_mlx5 %s/%s" % (test, label), ucx, core, "rc_mlx5,ud_mlx5", test)
            runner.case("ucx dc_mlx5 %s/%s" % (test, label), ucx, core, "dc_mlx5,ud_mlx5", test)
    runner.case("libfabric verbs msg", fi_pingpong, "verbs", "msg")
    for verb in ("write", "read"):
        runner.case("fio rdma " + verb, fio, verb)
    if os.environ.get("UHCA_LONG"):  # it does not pass every time (docs/support.md)
        runner.case("libfabric verbs;ofi_rxm rdm", fi_pingpong, "verbs;ofi_rxm", "rdm")
