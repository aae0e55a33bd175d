# SPDX-License-Identifier: MIT
"""libmlx5's VFIO mode: a process that brings the HCA up itself and makes objects on it. Usage: vfio.py PCI-DEVICE"""
import sys

import pyverbs.providers.mlx5.mlx5_enums as dve
from pyverbs.pd import PD
from pyverbs.providers.mlx5.mlx5_vfio import Mlx5VfioAttr, Mlx5VfioContext
from pyverbs.providers.mlx5.mlx5dv import Mlx5UAR, Mlx5UMEM

attr = Mlx5VfioAttr(pci_name=sys.argv[1])
attr.pci_name = sys.argv[1]
with Mlx5VfioContext(attr=attr) as context:
    with PD(context):
        print("ok PD")
    with Mlx5UMEM(context, 8192) as umem:
        uar = Mlx5UAR(context, dve._MLX5DV_UAR_ALLOC_TYPE_NC)
        print("ok umem %d, UAR %#x" % (umem.umem_id, uar.page_id))
        uar.close()
