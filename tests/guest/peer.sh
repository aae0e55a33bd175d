# SPDX-License-Identifier: MIT
# peer.sh ROLE OWN-ADDRESS PEER-ADDRESS: RC and UD pingpong, perftest and TCP with the peer, which runs the same script in the other role.
. /root/lib.sh
role=$1 own=$2 peer=$3
if [ -e /sys/class/net/eth0/device/infiniband ]; then
    net_up "$own/24"
    device=mlx5_0
else
    ip addr add "$own/24" dev eth0
    ip link set eth0 up
    rdma link add rxe0 type rxe netdev eth0 || fail "rxe"
    device=rxe0
fi
wait_for 20 gid_index 4 $device
wait_for 60 ping -c 1 -W 1 "$peer"
g=$(gid_index 4 $device)

# exchange NAME PORT COMMAND...: the client tries until the server listens.
exchange() {
    local name=$1 port=$2 tries=0
    shift 2
    if [ "$role" = server ]; then
        timeout 200 "$@" -p "$port" >/tmp/out 2>&1 || { cat /tmp/out; fail "$name: server"; }
    else
        until timeout 100 "$@" -p "$port" "$peer" >/tmp/out 2>&1; do
            grep -qi "couldn't connect\|connection refused" /tmp/out && [ $((tries += 1)) -lt 300 ] || { cat /tmp/out; fail "$name: client"; }
            sleep 0.2
        done
    fi
    ! grep -q 'invalid data' /tmp/out || fail "$name: data validation"
    echo "ok $name"
}

exchange "ibv_rc_pingpong" 18001 ibv_rc_pingpong -e -c -d $device -g "$g" -n 50 -s 20000
exchange "ibv_ud_pingpong" 18002 ibv_ud_pingpong -e -c -d $device -g "$g" -n 50 -s 1000
exchange "ib_write_bw" 18003 ib_write_bw -F -x "$g" -n 100 -d $device
exchange "ib_read_bw" 18004 ib_read_bw -F -e -x "$g" -n 100 -d $device
exchange "ib_send_bw" 18005 ib_send_bw -F -e -x "$g" -n 100 -d $device
exchange "ib_atomic_bw" 18006 ib_atomic_bw -F -x "$g" -n 20 -d $device
if [ "$role" = server ]; then
    timeout 200 iperf3 -s -1 -p 18007 >/tmp/out 2>&1 || { cat /tmp/out; fail "TCP: server"; }
else
    wait_for 60 iperf3 -c "$peer" -p 18007 -n 10M
fi
echo "ok TCP"
dmesg_clean
