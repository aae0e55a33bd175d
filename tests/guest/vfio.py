# SPDX-License-Identifier: MIT
"""libmlx5's VFIO mode: a process that brings the HCA up itself, makes objects on it, and lets two RC QPs of its own play ping-pong with data
that is compared. The queues are written and read by pyverbs' own test resources (tests/mlx5_base.py), whose test of this mode
(test_mlx5_vfio.py) runs over InfiniBand only. Usage: vfio.py PCI-DEVICE MAC IPV4"""
import random
import struct
import sys

import pyverbs.enums as e
import pyverbs.providers.mlx5.mlx5_enums as dve
from pyverbs.pd import PD
from pyverbs.providers.mlx5.mlx5_vfio import Mlx5VfioAttr, Mlx5VfioContext
from pyverbs.providers.mlx5.mlx5dv import Mlx5UAR, Mlx5UMEM
from tests.test_mlx5_vfio import Mlx5VfioResources

ROUNDS = 20
MESSAGE = 100000  # bytes: about a hundred packets, and more than one page
SET_ROCE_ADDRESS = 0x761
ROCE_V2, L3_IPV4 = 2, 0
pci, mac, address = sys.argv[1:]
gid = [0, 0, 0xffff, int.from_bytes(bytes(map(int, address.split("."))), "big")]


class Context(Mlx5VfioContext):
    def query_gid_type(self, port, index):
        return e.IBV_GID_TYPE_SYSFS_ROCE_V2


class Resources(Mlx5VfioResources):
    """Of one side; the device's first RoCE address is the one that this process has set."""

    def __init__(self, context):
        super().__init__(1, pci, gid_index=0, ctx=context)

    def init_resources(self):
        self.gid, self.lid, self.msg_size = gid, 0, MESSAGE
        self.create_pd()
        self.create_mr()
        self.query_eqn()
        self.create_uar()
        self.create_queue_attrs()
        self.create_cq()
        self.create_qp()
        self.devx_objs = [self.qp, self.cq] + list(self.uar.values()) + list(self.umems.values()) + [self.mr, self.pd]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close_resources()


def set_address(context):
    """SET_ROCE_ADDRESS: the header with index 0, then roce_addr_layout: GID, no VLAN, MAC, kinds of address and version."""
    command = struct.pack(">H14x4I2x6s2xBB4x", SET_ROCE_ADDRESS, *gid, bytes.fromhex(mac.replace(":", "")), L3_IPV4, ROCE_V2)
    out = context.devx_general_cmd(command, 16)
    assert out[0] == 0, "SET_ROCE_ADDRESS: status %#x" % out[0]


def send(source, destination):
    """One message with immediate data; returns what has arrived."""
    imm = source.imm + source.qattr.sq.post_idx
    destination.post_recv()
    source.post_send()
    assert source.poll_cq().opcode == dve.MLX5_CQE_REQ
    cqe = destination.poll_cq()
    assert cqe.opcode == dve.MLX5_CQE_RESP_SEND_IMM and cqe.imm_inval_pkey == imm, cqe.dump()
    return destination.mem_read()


def ping_pong(a, b):
    for qp, other in ((a, b), (b, a)):
        qp.pre_run(other.psn, other.qpn, other.gid, other.lid, mac)
    for n in range(ROUNDS):
        ping = random.Random(n).randbytes(MESSAGE)
        a.mem_write(ping, MESSAGE)
        assert send(a, b) == ping, "ping %d" % n
        pong = ping[::-1]
        b.mem_write(pong, MESSAGE)
        a.mem_write(b"\0" * MESSAGE, MESSAGE)
        assert send(b, a) == pong, "pong %d" % n


attr = Mlx5VfioAttr(pci_name=pci)
attr.pci_name = pci
with Context(attr=attr) as context:
    with PD(context):
        print("ok PD")
    with Mlx5UMEM(context, 8192) as umem:
        uar = Mlx5UAR(context, dve._MLX5DV_UAR_ALLOC_TYPE_NC)
        print("ok umem %d, UAR %#x" % (umem.umem_id, uar.page_id))
        uar.close()
    set_address(context)
    with Resources(context) as a, Resources(context) as b:
        ping_pong(a, b)
    print("ok RC ping-pong, %d times %d bytes there and back" % (ROUNDS, MESSAGE))
