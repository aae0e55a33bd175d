# SPDX-License-Identifier: MIT
# netdev.sh OWN-ADDRESS PEER-ADDRESS OWN-VLAN-ADDRESS PEER-VLAN-ADDRESS: what an administrator does to the netdev, with traffic after each
# change. The peer (netdev-peer.sh) carries VLAN 7 and frames of 4000 bytes.
. /root/lib.sh
net_up "$1/24" fd09::1/64
peer=$2
reach() { ping -c 2 -i 0.2 -W 30 "$@" >/tmp/ping 2>&1 || { cat /tmp/ping; fail "ping $*"; }; }
tool() { ethtool "$@" >/tmp/ethtool 2>&1 || { cat /tmp/ethtool; fail "ethtool $*"; }; }
shows() { grep -Eq "$1" /tmp/ethtool || { cat /tmp/ethtool; fail "no '$1'"; }; }
counter() { ethtool -S eth0 | sed -n "s/^ *$1: //p"; }
wait_for 90 ping -c 1 -W 1 "$peer"

tool eth0
shows 'Link detected: yes'
shows 'Speed: [1-9][0-9]*Mb/s'
tool -i eth0
shows '^driver: mlx5_core'
shows '^firmware-version: [0-9]'
for query in -k -g -l -c -x -n -a -T --show-priv-flags -S; do tool $query eth0; done
tool -t eth0
echo "ok ethtool's questions"

tool -G eth0 rx 512 tx 256
tool -g eth0
[ "$(awk '$1 == "RX:" { rx = $2 } $1 == "TX:" { tx = $2 } END { print rx, tx }' /tmp/ethtool)" = "512 256" ] || { cat /tmp/ethtool; fail "rings"; }
reach "$peer"
tool -L eth0 combined 1
reach "$peer"
tool -L eth0 combined 2
reach "$peer"
tool -X eth0 weight 1 0
reach "$peer"
tool -X eth0 default
for feature in tx rx tso gso gro rxhash rxvlan txvlan; do
    for state in off on; do
        tool -K eth0 $feature $state
        reach "$peer" -s 1400
    done
done
echo "ok rings, channels, indirection, offloads"

tool -c eth0
shows 'Adaptive RX: on +TX: on'
tool -C eth0 adaptive-rx off adaptive-tx off
tool -C eth0 cqe-mode-rx on cqe-mode-tx on
# Behind each CQE the event waits for more of them as long as it may: no answer to a ping is seen earlier.
tool -C eth0 rx-usecs 4095 rx-frames 1000 tx-usecs 4095 tx-frames 1000
tool -c eth0
shows 'rx-usecs:[[:space:]]*4095'
shows 'tx-frames:[[:space:]]*1000'
shows 'CQE mode RX: on +TX: on'
reach "$peer" -c 10
late=$(sed -n 's/.* time=\([0-9]*\).*/\1/p' /tmp/ping | awk '$1 >= 4' | wc -l)
[ "$late" -ge 8 ] || { cat /tmp/ping; fail "moderation: $late of 10 answers came after 4 ms"; }
tool -C eth0 cqe-mode-rx off cqe-mode-tx off
tool -C eth0 rx-usecs 50 rx-frames 32 tx-usecs 0 tx-frames 0
reach "$peer"
ethtool -C eth0 rx-usecs 5000 2>/dev/null && fail "a period of 5000 us does not fit into a CQ context"
tool -Q eth0 queue_mask 1 --coalesce rx-usecs 20 rx-frames 8
reach "$peer"
for flag in rx_cqe_moder tx_cqe_moder; do
    for state in on off; do
        tool --set-priv-flags eth0 $flag $state
        reach "$peer"
    done
done
tool -C eth0 adaptive-rx on adaptive-tx on
reach "$peer"
echo "ok moderation"

ip link set eth0 mtu 4000 || fail "MTU 4000"
reach "$peer" -M do -s 3972
ibv_devinfo -d mlx5_0 | grep -q 'active_mtu:.*2048' || fail "the RDMA port's MTU did not follow"
ip link set eth0 mtu 9000 2>/dev/null && fail "MTU 9000 is more than the port carries"
ip link set eth0 mtu 600 || fail "MTU 600"
reach "$peer" -s 500
ip link set eth0 mtu 1500 || fail "MTU 1500"
reach "$peer" -M do -s 1472
echo "ok MTU"

ip link add link eth0 name eth0.7 type vlan id 7 || fail "VLAN"
ip addr add "$3/24" dev eth0.7
ip link set eth0.7 up
reach "$4" -s 1400
tool -K eth0 rxvlan off txvlan off
reach "$4" -s 1400
tool -K eth0 rxvlan on txvlan on
reach "$4" -s 1400
tool -K eth0 rx-vlan-filter off
reach "$4"
tool -K eth0 rx-vlan-filter on
reach "$4"
ip link del eth0.7
echo "ok VLAN"

old=$(cat /sys/class/net/eth0/address)
ip link set eth0 address 02:00:00:00:00:77 || fail "MAC"
reach "$peer"
ip link set eth0 address "$old" || fail "MAC"
reach "$peer"
ip link set eth0 promisc on && ip link set eth0 allmulticast on || fail "promiscuity"
reach "$peer"
ip link set eth0 promisc off && ip link set eth0 allmulticast off || fail "promiscuity"
for round in 1 2 3; do
    ip link set eth0 down || fail "down"
    ip link set eth0 up || fail "up"
done
wait_for 20 active
wait_for 20 gid_index 4
wait_for 30 ping -c 1 -W 1 "$peer"
echo "ok MAC, promiscuity, down and up"

pci=$(basename "$(readlink -f /sys/class/net/eth0/device)")
devlink dev info "pci/$pci" >/tmp/info || fail "devlink info"
grep -q 'driver mlx5_core' /tmp/info || { cat /tmp/info; fail "devlink info"; }
devlink health show "pci/$pci" >/tmp/health || fail "devlink health"
devlink dev reload "pci/$pci" || fail "devlink reload"
net_up "$1/24"
wait_for 30 ping -c 1 -W 1 "$peer"
loopback "ibv_rc_pingpong after devlink reload" ibv_rc_pingpong -e -c -d mlx5_0 -g "$(gid_index 4)" -n 10
echo "ok devlink"
# What the driver says about stripping C-tags from everything, and about firmware components that this device has not.
dmesg_clean 'S-tagged traffic will be dropped|fw query isn.t supported'
echo done | nc "$peer" 9 || fail "the peer has gone"
