# SPDX-License-Identifier: MIT
# pyverbs' own suite, the tests of /root/pyverbs_ids.txt; whether each says "ok" is for the caller.
. /root/lib.sh
net_up $own/24
echo 64 >/proc/sys/vm/nr_hugepages
python3 tests/run_tests.py --dev mlx5_0 --port 1 --gid "$(gid_index 4)" -v $(grep -v '^#' pyverbs_ids.txt)
# A program that closes its context and leaves a CQ to the kernel, which then frees the UAR before it.
python3 - <<'EOF' || fail "a context that is closed before its CQ"
import ctypes
ibv = ctypes.CDLL("libibverbs.so.1")
ibv.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
ibv.ibv_open_device.restype = ibv.ibv_create_cq.restype = ctypes.c_void_p
context = ctypes.c_void_p(ibv.ibv_open_device(ctypes.c_void_p(ibv.ibv_get_device_list(None)[0])))
assert ibv.ibv_create_cq(context, 16, None, None, 0)
assert ibv.ibv_close_device(context) == 0
EOF
dmesg_clean
