# SPDX-License-Identifier: MIT
# Our own libibverbs and providers (in /root/own) under Debian's tools, on the real kernel's uverbs.
. /root/lib.sh
net_up $own/24
g=$(gid_index 4)
ibv_devinfo -v -d mlx5_0 >/tmp/devinfo.stock || fail "ibv_devinfo"
own_libraries
ibv_devinfo -v -d mlx5_0 >/tmp/devinfo.own || { cat /tmp/devinfo.own; fail "ibv_devinfo"; }
cmp /tmp/devinfo.own /tmp/devinfo.stock || { cat /tmp/devinfo.own /tmp/devinfo.stock; fail "ibv_devinfo -v says something else"; }
loopback "ibv_rc_pingpong, 300 kB" ibv_rc_pingpong -e -c -d mlx5_0 -g "$g" -n 50 -s 300000
loopback "ibv_rc_pingpong, time stamps" ibv_rc_pingpong -t -c -d mlx5_0 -g "$g" -n 50
loopback "ibv_rc_pingpong, ibv_wr_*" ibv_rc_pingpong -N -e -c -d mlx5_0 -g "$g" -n 50
loopback "ibv_uc_pingpong" ibv_uc_pingpong -e -c -d mlx5_0 -g "$g" -n 50
loopback "ibv_ud_pingpong" ibv_ud_pingpong -e -c -d mlx5_0 -g "$g" -n 50 -s 1000
loopback "ibv_srq_pingpong" ibv_srq_pingpong -e -c -d mlx5_0 -g "$g" -n 100
loopback "ibv_xsrq_pingpong" ibv_xsrq_pingpong -e -d mlx5_0 -g "$g" -n 50
loopback "ib_write_bw" ib_write_bw -F -x "$g" -n 200 -d mlx5_0
loopback "ib_write_lat" ib_write_lat -F -x "$g" -n 20 -d mlx5_0
loopback "ib_send_bw" ib_send_bw -F -e -x "$g" -n 200 -d mlx5_0
loopback "ib_send_lat UD" ib_send_lat -F -c UD -x "$g" -n 20 -d mlx5_0
loopback "ib_read_bw" ib_read_bw -F -e -x "$g" -n 200 -d mlx5_0
for a in FETCH_AND_ADD CMP_AND_SWAP; do loopback "ib_atomic_bw $a" ib_atomic_bw -F -A $a -x "$g" -n 50 -d mlx5_0; done
rping_with_itself
dmesg_clean
