# SPDX-License-Identifier: MIT
# NVMe over RDMA, target and host in this guest: a kernel ULP that posts from the kernel and registers every buffer by work request.
. /root/lib.sh
net_up $own/24
modprobe null_blk memory_backed=1 gb=1 || fail "null_blk"
mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet || fail "nvmet"
mkdir subsystems/disk subsystems/disk/namespaces/1 ports/1
echo 1 >subsystems/disk/attr_allow_any_host
echo -n /dev/nullb0 >subsystems/disk/namespaces/1/device_path
echo 1 >subsystems/disk/namespaces/1/enable || fail "namespace"
echo rdma >ports/1/addr_trtype
echo ipv4 >ports/1/addr_adrfam
echo $own >ports/1/addr_traddr
echo 4420 >ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/disk ports/1/subsystems/disk || fail "the target does not listen"
cd /root
echo "transport=rdma,traddr=$own,trsvcid=4420,nqn=disk,nr_io_queues=1,queue_size=32" >/dev/nvme-fabrics || fail "connect"
wait_for 20 test -b /dev/nvme0n1
head -c 8388608 /dev/urandom >/tmp/blob
dd if=/tmp/blob of=/dev/nvme0n1 bs=256k conv=fsync 2>/dev/null || fail "write"
echo 3 >/proc/sys/vm/drop_caches
dd if=/dev/nvme0n1 bs=256k count=32 2>/dev/null | cmp - /tmp/blob || fail "other data came back"
dd if=/dev/nullb0 bs=256k count=32 2>/dev/null | cmp - /tmp/blob || fail "other data reached the disk"
echo "ok 8 MiB through nvme-rdma"
echo 1 >/sys/class/nvme/nvme0/delete_controller || fail "disconnect"
rm /sys/kernel/config/nvmet/ports/1/subsystems/disk
dmesg_clean
