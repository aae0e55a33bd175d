# SPDX-License-Identifier: MIT
"""pyverbs' tests of dma-bufs on the render node, run as `python3 pyverbs_dmabuf.py FOLDER-OF-SUITE [arguments of run_tests.py]`.

The tests and DmaBufMR are Debian's, untouched. DmaBuf, the class that allocates, is replaced: Debian 12 builds it without DRM, and DmaBufMR cannot take a
DmaBuf in any release up to v65 (it calls DmaBuf.add_ref, which Python cannot see). This one makes the same ioctls."""
import os
import sys

folder = sys.argv[1]
sys.path[:0] = [folder, os.path.join(folder, "tests")]
os.chdir(folder)

import pyverbs.mr  # noqa: E402
from gpu_dmabuf import DmaBuf  # noqa: E402

class DmaBufMR(pyverbs.mr.DmaBufMR):
    def __init__(self, pd, length, access, dmabuf=None, offset=0, gpu=0, gtt=0):
        super().__init__(pd, length, access, dmabuf or DmaBuf(length + offset, gpu, gtt), offset)


import tests.test_mr  # noqa: E402

tests.test_mr.DmaBuf, tests.test_mr.DmaBufMR = DmaBuf, DmaBufMR
sys.argv = ["tests/run_tests.py"] + sys.argv[2:]
__file__ = os.path.join(folder, sys.argv[0])
exec(compile(open(__file__).read(), __file__, "exec"))
