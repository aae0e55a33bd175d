# SPDX-License-Identifier: MIT
"""A test for pyverbs' suite: DEVX queues that lie in GPU memory, as NVSHMEM's IBGDA makes them. CQ, QP and both doorbell records are umems over dma-bufs;
the doorbell is one store of 8 bytes whose opcode byte is 0. The CPU plays the shader's part, through its mapping of VRAM."""
import mmap

from gpu_dmabuf import DmaBuf
import pyverbs.dma_util as dma
import pyverbs.enums as e
import pyverbs.mem_alloc as mem
import pyverbs.providers.mlx5.mlx5_enums as dve
from pyverbs.providers.mlx5.mlx5dv import Mlx5UMEM
from tests.mlx5_base import Mlx5DevxRcResources, Mlx5DevxTrafficBase

PAGE = mmap.PAGESIZE


class GpuUmem:
    def __init__(self, ctx, size, access):
        size = (size + PAGE - 1) // PAGE * PAGE
        self.buffer = DmaBuf(size)
        self.umem_addr = mem.mmap(length=size, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_SHARED, fd=self.buffer.drm_fd,
                                  offset=self.buffer.map_offset)
        self.size = size
        self.umem = Mlx5UMEM(ctx, size, 0, PAGE, access, PAGE, dve.MLX5DV_UMEM_MASK_DMABUF, self.buffer.fd)
        self.umem_id = self.umem.umem_id

    def close(self):
        self.umem.close()
        mem.munmap(self.umem_addr, self.size)
        self.buffer.close()


class GpuQueues(Mlx5DevxRcResources):
    rung = 0

    def create_umem(self, size, access=e.IBV_ACCESS_LOCAL_WRITE, alignment=PAGE):
        return GpuUmem(self.ctx, size, access)

    def post_send(self):
        before = self.qattr.sq.post_idx
        plain, dma.mmio_write64_as_be = dma.mmio_write64_as_be, self.zero_opcode
        try:
            super().post_send()
        finally:
            dma.mmio_write64_as_be = plain
        assert self.qattr.sq.post_idx == before + 1

    def zero_opcode(self, address, wqe_start):
        """Instead of the first 8 bytes of the WQE: its index, an opcode of 0, and the QPN."""
        self.rung += 1
        store = (((self.qattr.sq.post_idx - 1) & 0xffff) << 8) << 32 | self.qpn << 8
        self.plain_store(address, int.from_bytes(store.to_bytes(8, "big"), "little"))

    plain_store = staticmethod(dma.mmio_write64_as_be)


class GpuQueuesTest(Mlx5DevxTrafficBase):
    def test_queues_in_gpu_memory(self):
        self.create_players(GpuQueues)
        self.send_imm_traffic()
        self.assertEqual(self.client.rung + self.server.rung, self.client.qattr.sq.post_idx + self.server.qattr.sq.post_idx)
        self.assertGreater(self.client.rung, 0)
