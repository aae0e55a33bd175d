# SPDX-License-Identifier: MIT
"""libmlx5's VFIO mode: a process that brings the HCA up itself, makes objects on it, lets two RC QPs of its own play ping-pong with data
that is compared, and hears of the port by an EQ with an interrupt of its own. The queues are written and read by the resources of pyverbs'
own test of this mode (tests/test_mlx5_vfio.py), which runs over InfiniBand only. Usage: vfio.py PCI-DEVICE MAC IPV4"""
import os
import random
import select
import struct
import sys

import pyverbs.enums as e
import pyverbs.mem_alloc as mem
import pyverbs.providers.mlx5.mlx5_enums as dve
from pyverbs.pd import PD
from pyverbs.providers.mlx5.mlx5_vfio import Mlx5VfioAttr, Mlx5VfioContext
from pyverbs.providers.mlx5.mlx5dv import Mlx5UAR, Mlx5UMEM
from tests.mlx5_base import PortStatus
from tests.mlx5_prm_structs import EventType
from tests.test_mlx5_vfio import Mlx5VfioEqResources, Mlx5VfioResources

ROUNDS = 20
MESSAGE = 100000  # bytes: about a hundred packets, and more than one page
SET_ROCE_ADDRESS = 0x761
EQE_BYTES = 64
ROCE_V2, L3_IPV4 = 2, 0
pci, mac, address = sys.argv[1:]
gid = [0, 0, 0xffff, int.from_bytes(bytes(map(int, address.split("."))), "big")]


class Context(Mlx5VfioContext):
    def query_gid_type(self, port, index):
        return e.IBV_GID_TYPE_SYSFS_ROCE_V2


class OverEthernet:
    """The device's first RoCE address is the one that this process has set."""

    def __init__(self, context, **more):
        super().__init__(1, pci, gid_index=0, ctx=context, **more)

    def init_resources(self):
        self.gid, self.lid, self.msg_size = gid, 0, MESSAGE
        self.create_pd()
        self.create_mr()
        self.query_eqn()
        self.create_uar()
        self.create_queue_attrs()
        self.create_eq()
        self.create_cq()
        self.create_qp()
        self.devx_objs = [self.qp, self.cq, self.eq, self.msi_vector, *self.uar.values(), *self.umems.values(), self.mr, self.pd]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close_resources()


class Side(OverEthernet, Mlx5VfioResources):
    pass


class SideWithEq(OverEthernet, Mlx5VfioEqResources):
    """Its own way to read EQEs: the one of the test resources asks more of scapy than Debian 13's does."""

    def init_dveq_buff(self):
        self.update_ci(0)  # arms; what it writes with arm=1 does not (Linux eq.c: eq_update_ci)

    def next_event(self):
        ready = select.poll()
        ready.register(self.msi_vector.fd, select.POLLIN)
        assert ready.poll(60000), "no interrupt"
        os.read(self.msi_vector.fd, 8)
        eqe = mem.read64(self.eq.vaddr + self.cons_index % self.nent * EQE_BYTES).to_bytes(8, "little")
        self.update_ci(1)
        return eqe[1]


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


def port_events(side):
    for state in (PortStatus.MLX5_PORT_DOWN, PortStatus.MLX5_PORT_UP):
        side.change_port_state_with_registers(state)
        assert side.next_event() == EventType.PORT_STATE_CHANGE
        assert side.query_port_state_with_registers()[1] == state


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
    with Side(context, activate_port_state=True) as a, Side(context) as b:
        ping_pong(a, b)
    print("ok RC ping-pong, %d times %d bytes there and back" % (ROUNDS, MESSAGE))
    with SideWithEq(context) as side:
        port_events(side)
    print("ok port events")
