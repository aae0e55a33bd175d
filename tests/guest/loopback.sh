# SPDX-License-Identifier: MIT
# Debian's own tools over loopback, with validation where they can.  perftest's latency tests poll: with -e they take one completion
# for each event, and an event that an arm itself causes makes them stop polling what is there.
. /root/lib.sh
net_up $own/24
g=$(gid_index 4)
ibv_devinfo -v -d mlx5_0 >/tmp/devinfo || fail "ibv_devinfo"
! grep -q 'ODP_SUPPORT' /tmp/devinfo || { cat /tmp/devinfo; fail "ODP is offered, but there are no page faults"; }
loopback "ibv_rc_pingpong, 300 kB" ibv_rc_pingpong -e -c -d mlx5_0 -g "$g" -n 50 -s 300000
loopback "ibv_uc_pingpong" ibv_uc_pingpong -e -c -d mlx5_0 -g "$g" -n 50
loopback "ibv_ud_pingpong" ibv_ud_pingpong -e -c -d mlx5_0 -g "$g" -n 50 -s 1000
loopback "ibv_srq_pingpong" ibv_srq_pingpong -e -c -d mlx5_0 -g "$g" -n 100
loopback "ibv_xsrq_pingpong" ibv_xsrq_pingpong -e -d mlx5_0 -g "$g" -n 50
for t in RC UC; do
    loopback "ib_write_bw $t" ib_write_bw -F -c $t -x "$g" -n 200 -d mlx5_0
    loopback "ib_send_bw $t" ib_send_bw -F -c $t -e -x "$g" -n 200 -d mlx5_0
    loopback "ib_write_lat $t" ib_write_lat -F -c $t -x "$g" -n 20 -d mlx5_0
    loopback "ib_send_lat $t" ib_send_lat -F -c $t -x "$g" -n 20 -d mlx5_0
done
loopback "ib_send_bw UD" ib_send_bw -F -c UD -e -x "$g" -n 200 -s 1024 -d mlx5_0
loopback "ib_read_bw" ib_read_bw -F -e -x "$g" -n 200 -d mlx5_0
loopback "ib_read_lat" ib_read_lat -F -x "$g" -n 20 -d mlx5_0
loopback "ib_atomic_lat" ib_atomic_lat -F -x "$g" -n 20 -d mlx5_0
for a in FETCH_AND_ADD CMP_AND_SWAP; do loopback "ib_atomic_bw $a" ib_atomic_bw -F -A $a -x "$g" -n 50 -d mlx5_0; done
dmesg_clean

rping_with_itself
dmesg_clean
