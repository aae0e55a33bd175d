# SPDX-License-Identifier: MIT
# libmlx5's VFIO mode on the kernel's vfio-pci behind a virtual IOMMU, then the kernel's own driver again.
. /root/lib.sh
net_up $own/24
mac=$(cat /sys/class/net/eth0/address)
device=$(readlink -f /sys/class/infiniband/mlx5_0/device)
pci=$(basename "$device")
modprobe vfio_iommu_type1 && modprobe vfio-pci || fail "vfio"
echo vfio-pci >"$device/driver_override"
echo "$pci" >"$device/driver/unbind"
echo "$pci" >/sys/bus/pci/drivers_probe
[ "$(basename "$(readlink -f "$device/driver")")" = vfio-pci ] || fail "vfio-pci does not take the device"
for round in 1 2; do PYTHONPATH=/root/tests timeout 400 python3 /root/vfio.py "$pci" "$mac" $own || fail "VFIO mode, round $round"; done
echo >"$device/driver_override"
echo "$pci" >"$device/driver/unbind"
echo "$pci" >/sys/bus/pci/drivers_probe
wait_for 20 test -e /sys/class/infiniband/mlx5_0
net_up $own/24
loopback "ibv_rc_pingpong after VFIO mode" ibv_rc_pingpong -e -c -d mlx5_0 -g "$(gid_index 4)" -n 10
dmesg_clean
