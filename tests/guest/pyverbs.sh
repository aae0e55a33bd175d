# SPDX-License-Identifier: MIT
# pyverbs' own suite, the tests of /root/pyverbs_ids.txt; whether each says "ok" is for the caller.
. /root/lib.sh
net_up $own/24
echo 64 >/proc/sys/vm/nr_hugepages
python3 tests/run_tests.py --dev mlx5_0 --port 1 --gid "$(gid_index 4)" -v $(grep -v '^#' pyverbs_ids.txt)
dmesg_clean
