# SPDX-License-Identifier: MIT
"""Communication libraries above verbs: UCX, libfabric, fio. The command lines are those of docs/clients.md."""
import re

from cases_cm import own_address, wait_cm
from rig import Place, finish, free_port, require, stop, wait_listening


def ucx(core, transports, test, extra=None):
    """ucx_perftest finds its peer by TCP, all else goes by RDMA: `transports` has none that could replace it."""
    # Whoever rings doorbells without a call waits for the service thread to look: milliseconds each, while both ends spin on two processors.
    count = "20" if "mlx5" in transports and test == "tag_lat" else "200"
    place = Place(rdma_core=core, env=dict({"UCX_TLS": transports + ",self", "UCX_NET_DEVICES": "mlx5_0:1"}, **(extra or {})))
    port = str(free_port())
    server = place.start("ucx_perftest", "-p", port)
    client = None
    try:
        wait_listening(server, int(port))
        client = place.start("ucx_perftest", "-p", port, "127.0.0.1", "-t", test, "-n", count, "-w", "5", "-s", "4096", "-f")
        out = finish(client)
        server_out = finish(server)
    finally:
        stop(server, *([client] if client else []))
    text = "client:\n%s\nserver:\n%s" % (out, server_out)
    require(client.returncode == 0 and server.returncode == 0, "exit status %d, %d\n%s" % (client.returncode, server.returncode, text))
    require(re.search(r"(?m)^ +%s +[\d.]+ +([\d.]+|inf) +[\d.]+ " % count, out), "no result row\n" + text)
    require(not re.search("not available|ERROR", text), text)


def fi_pingpong(provider, kind):
    place = Place()
    port = free_port()
    words = ["fi_pingpong", "-p", provider, "-e", kind, "-c", "-I", "20", "-S", "4096"]
    server = place.start(*words, "-B", str(port))
    client = None
    try:
        wait_listening(server, port)
        client = place.start(*words, "-P", str(port), own_address(place))
        out = finish(client)
        server_out = finish(server)
    finally:
        stop(server, *([client] if client else []))
    text = "client:\n%s\nserver:\n%s" % (out, server_out)
    require(client.returncode == 0 and server.returncode == 0, "exit status %d, %d\n%s" % (client.returncode, server.returncode, text))
    require(re.search(r"(?m)^4k +20 +=20 +", out), "no result row\n" + text)


def fio(verb):
    place = Place()
    port = free_port()
    common = ["fio", "--ioengine=rdma", "--port=%d" % port, "--bs=64k", "--size=4m", "--iodepth=8"]
    server = place.start(*common, "--name=target", "--rw=read")
    client = None
    try:
        wait_cm(server, place, port, 0x106)
        client = place.start(*common, "--name=initiator", "--hostname=" + own_address(place), "--verb=" + verb, "--rw=write")
        out = finish(client)
        server_out = finish(server)
    finally:
        stop(server, *([client] if client else []))
    text = "client:\n%s\nserver:\n%s" % (out, server_out)
    require(client.returncode == 0 and server.returncode == 0, "exit status %d, %d\n%s" % (client.returncode, server.returncode, text))
    require("err= 0" in out and re.search(r"io=4096KiB", out), "not all was moved\n" + text)


def register(runner):
    for core in (False, True):
        label = "rdma-core" if core else "ours"
        for test in ("tag_lat", "ucp_put_bw"):
            runner.case("ucx rc_verbs %s/%s" % (test, label), ucx, core, "rc_verbs,ud_verbs", test)
            runner.case("ucx ud_verbs %s/%s" % (test, label), ucx, core, "ud_verbs", test)
            runner.case("ucx ud_mlx5 %s/%s" % (test, label), ucx, core, "ud_mlx5", test)
            runner.case("ucx rc_mlx5 %s/%s" % (test, label), ucx, core, "rc_mlx5,ud_mlx5", test, {"UCX_IB_MLX5_DEVX": "n"})
            runner.case("ucx dc_mlx5 %s/%s" % (test, label), ucx, core, "dc_mlx5,ud_mlx5", test, {"UCX_IB_MLX5_DEVX": "n"})
    runner.case("libfabric verbs msg", fi_pingpong, "verbs", "msg")
    runner.case("libfabric verbs;ofi_rxm rdm", fi_pingpong, "verbs;ofi_rxm", "rdm")
    for verb in ("write", "read"):
        runner.case("fio rdma " + verb, fio, verb)
