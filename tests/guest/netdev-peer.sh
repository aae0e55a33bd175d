# SPDX-License-Identifier: MIT
# netdev-peer.sh PEER-ADDRESS OWN-ADDRESS PEER-VLAN-ADDRESS OWN-VLAN-ADDRESS: answers netdev.sh until it says that it is done.
. /root/lib.sh
net_up "$2/24"
ip link set eth0 mtu 4000 || fail "MTU"
ip link add link eth0 name eth0.7 type vlan id 7 || fail "VLAN"
ip addr add "$4/24" dev eth0.7
ip link set eth0.7 up
timeout 500 nc -l -p 9 >/tmp/word || fail "nobody came"
[ "$(cat /tmp/word)" = done ] || fail "another word"
dmesg_clean
