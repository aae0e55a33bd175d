# SPDX-License-Identifier: MIT
"""What pyverbs' CUDA tests use of the package cuda-python, over whatever libcuda.so.1 the process finds."""
__version__ = "12.4.0"
