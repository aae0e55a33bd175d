# SPDX-License-Identifier: MIT
# The stock driver binds, the port comes up, RC runs over loopback; unload and reload, remove and rescan.
. /root/lib.sh
net_up $own/24 fd09::1/64
rdma link
ibv_devinfo -v -d mlx5_0 >/tmp/devinfo || fail "ibv_devinfo"
grep -q 'state:.*PORT_ACTIVE' /tmp/devinfo || { cat /tmp/devinfo; fail "port state"; }
grep -q "::ffff:$own, RoCE v2" /tmp/devinfo || { cat /tmp/devinfo; fail "GIDs"; }
loopback "ibv_rc_pingpong" ibv_rc_pingpong -e -c -d mlx5_0 -g "$(gid_index 4)" -n 20
loopback "ibv_rc_pingpong, IPv6" ibv_rc_pingpong -e -c -d mlx5_0 -g "$(gid_index 6)" -n 10 -s 30000
dmesg_clean

for round in 1 2; do
    rmmod mlx5_ib && rmmod mlx5_core || fail "unload, round $round"
    [ ! -e /sys/class/net/eth0 ] || fail "eth0 outlives its driver"
    modprobe mlx5_core && modprobe mlx5_ib || fail "reload, round $round"
done
net_up $own/24
loopback "ibv_rc_pingpong after a reload" ibv_rc_pingpong -e -c -d mlx5_0 -g "$(gid_index 4)" -n 10
dmesg_clean

device=$(readlink -f /sys/class/infiniband/mlx5_0/device)
echo 1 >"$device/remove" || fail "PCI remove"
[ ! -e /sys/class/infiniband/mlx5_0 ] || fail "mlx5_0 outlives its device"
echo 1 >/sys/bus/pci/rescan
wait_for 20 test -e /sys/class/infiniband/mlx5_0
net_up $own/24
loopback "ibv_rc_pingpong after a rescan" ibv_rc_pingpong -e -c -d mlx5_0 -g "$(gid_index 4)" -n 10
dmesg_clean
