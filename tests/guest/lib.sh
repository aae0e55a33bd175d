# SPDX-License-Identifier: MIT
# What the guest's scripts share.
own=10.9.0.1  # the address of a guest that is alone

fail() {
    echo "FAIL: $*"
    dmesg | tail -n 30
    exit 1
}

# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
    local left=$(($1 * 10))
    shift
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -gt 0 ] || fail "never came true: $*"
        sleep 0.1
    done
}

# net_up ADDRESS...: the HCA's netdev, and waits for its RDMA port and the GIDs of the addresses.
net_up() {
    ip link set eth0 up || fail "eth0 does not come up"
    for a in "$@"; do ip addr add "$a" dev eth0 nodad 2>/dev/null || ip addr add "$a" dev eth0 || fail "address $a"; done
    wait_for 20 active
    wait_for 20 gid_index 4
}

active() { rdma link show mlx5_0/1 | grep -q 'state ACTIVE.*netdev eth0'; }

# gid_index 4|6 [DEVICE]: prints the index of the RoCE v2 GID of an IPv4 or a global IPv6 address.
gid_index() {
    local p=/sys/class/infiniband/${2:-mlx5_0}/ports/1 i gid
    for i in $(seq 0 31); do
        gid=$(cat $p/gids/$i 2>/dev/null) || continue
        [ "$(cat $p/gid_attrs/types/$i 2>/dev/null)" = "RoCE v2" ] || continue
        case $1:$gid in
            4:0000:0000:0000:0000:0000:ffff:*) echo $i; return 0 ;;
            6:0000:*|6:fe80:*) ;;
            6:*) echo $i; return 0 ;;
        esac
    done
    return 1
}

# dmesg_clean [PATTERN]: no warning or error of the drivers (but for the capability that the device has not, and PATTERN), no kernel splat.
dmesg_clean() {
    local bad
    bad=$(dmesg -r | grep -E '^<[0-4]>' | grep -E 'mlx5|infiniband|rdma|rxe|WARNING|BUG:|Call Trace' |
        grep -v 'Failed to get valid vendor specific ID' | grep -Ev "${1:-^$}")
    [ -z "$bad" ] || fail "the kernel complains: $bad"
}

# listening PORT: a TCP socket of this guest listens there.
listening() { grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F:]* 0A" /proc/net/tcp /proc/net/tcp6; }

# From here on programs use our user libraries.
own_libraries() {
    local l
    export LD_LIBRARY_PATH=/root/own
    LD_DEBUG=libs ibv_devinfo >/dev/null 2>/tmp/debug || fail "ibv_devinfo"
    for l in libibverbs libmlx5; do grep -q "calling init: $LD_LIBRARY_PATH/$l.so.1" /tmp/debug || fail "$l is not ours"; done
}

# rping between two processes of this guest.
rping_with_itself() {
    local server
    rping -s -a $own -C 10 -v >/tmp/server.out 2>&1 &
    server=$!
    sleep 1
    timeout 60 rping -c -a $own -C 10 -v >/tmp/client.out 2>&1 || { cat /tmp/server.out /tmp/client.out; fail "rping"; }
    wait $server || { cat /tmp/server.out; fail "rping server"; }
    echo "ok rping"
}

# loopback NAME SERVER-COMMAND: the same command as its own client; both must end with 0.
loopback() {
    local name=$1 pid
    shift
    "$@" >/tmp/server.out 2>&1 &
    pid=$!
    wait_for 30 listening 18515
    timeout 120 "$@" 127.0.0.1 >/tmp/client.out 2>&1 || { cat /tmp/server.out /tmp/client.out; kill $pid; fail "$name: client"; }
    wait $pid || { cat /tmp/server.out /tmp/client.out; fail "$name: server"; }
    ! grep -q 'invalid data' /tmp/server.out /tmp/client.out || fail "$name: data validation"
    echo "ok $name"
}
