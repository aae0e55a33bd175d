# SPDX-License-Identifier: MIT
"""perftest: every program with its variants of transport, queue, size and posting, between processes of one host and between hosts. A selection in
`make test`, all of it in `make test-long`."""
import os

from rig import Namespaces, Place, perftest

WRITE, READ, SEND, ATOMIC = "write", "read", "send", "atomic"
ALL = (WRITE, READ, SEND, ATOMIC)
# Options, of which operations, whether for bandwidth (b) or latency (l) tests, whether in the selection.
VARIANTS = (
    (["-a", "-n", "5"], (WRITE, READ, SEND), "bl", False),
    (["-s", "1"], (WRITE, READ, SEND), "bl", False),
    (["-s", "8388608", "-n", "5"], (WRITE, READ, SEND), "bl", False),
    (["-q", "8"], ALL, "b", True),
    (["-b"], ALL, "b", True),
    (["-q", "4", "-b", "-l", "16", "-n", "192"], (WRITE, READ, SEND), "b", True),
    (["-l", "16", "-n", "192"], (WRITE, READ, SEND), "b", False),
    (["-e"], (READ, SEND, ATOMIC), "b", False),
    (["-I", "64", "-s", "64"], (WRITE, SEND), "bl", True),
    (["--use_old_post_send"], ALL, "bl", True),
    (["-m", "256"], (WRITE, READ, SEND), "bl", True),
    (["-m", "4096"], (WRITE, READ, SEND), "bl", False),
    (["-c", "UC"], (WRITE, SEND), "bl", True),
    (["-c", "UD", "-s", "1024"], (SEND,), "bl", True),
    (["-c", "XRC"], ALL, "bl", True),
    (["-c", "DC"], ALL, "bl", True),
    (["--use-srq"], (SEND,), "bl", True),
    (["-c", "DC", "-q", "4"], (WRITE, SEND), "b", False),
    (["-c", "XRC", "-q", "4"], (WRITE, SEND), "b", False),
    (["--use_hugepages"], (WRITE,), "b", False),
    (["-A", "FETCH_AND_ADD"], (ATOMIC,), "bl", True),
    (["-A", "CMP_AND_SWAP"], (ATOMIC,), "bl", True),
)


def matrix(long):
    """Program and options."""
    for options, operations, kinds, short in VARIANTS:
        for operation in operations:
            for kind in kinds:
                # Of the selection one kind: bandwidth tests have many requests at a time, latency tests wait for each.
                if not long and not (short and (kind == kinds[0] if operation in (WRITE, ATOMIC) else kind == kinds[-1])):
                    continue
                count = [] if "-n" in options else ["-n", "200"]
                yield "ib_%s_%s" % (operation, "bw" if kind == "b" else "lat"), options + count


def register(runner):
    long = bool(os.environ.get("UHCA_LONG"))
    with Namespaces() as hosts:
        for label, core in (("ours", False), ("rdma-core", True)):
            here = Place(rdma_core=core)
            a, b = (hosts.place(i, rdma_core=core) for i in (0, 1))
            for i, (program, options) in enumerate(matrix(long)):
                name = "perftest %s %s/%s" % (program, " ".join(options), label)
                # In short each place has every second one, and each side's libraries the others.
                if long or i % 2 == core:
                    runner.case(name + "/one host", perftest, here, here, program, *options)
                if long or i % 2 != core:
                    runner.case(name + "/two hosts", perftest, a, b, program, *options)
