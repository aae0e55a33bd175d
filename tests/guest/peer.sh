# SPDX-License-Identifier: MIT
# peer.sh ROLES OWN-ADDRESS PEER-ADDRESS [tcp] [own] [via GATEWAY] [lladdr MAC beside OWN-ADDRESS PEER-ADDRESS]: exchange.sh with the peer; tcp:
# then TCP as well; own: with our user libraries; lladdr: the peer speaks nothing but RoCE on this wire, and connects over another interface.
. /root/lib.sh
roles=$1 own=$2 peer=$3
shift 3
if [ -e /sys/class/net/eth0/device/infiniband ]; then
    net_up "$own/24"
    device=mlx5_0
else
    ip addr add "$own/24" dev eth0
    ip link set eth0 up
    rdma link add rxe0 type rxe netdev eth0 || fail "rxe"
    device=rxe0
fi
echo "mac $(cat /sys/class/net/eth0/address)"
tcp="" way="" beside=""
while [ $# -gt 0 ]; do
    case $1 in
        tcp) tcp=tcp ;;
        own) own_libraries ;;
        via) ip route add default via "$2" || fail "route"
            way=routed
            shift ;;
        lladdr) ip neigh replace "$peer" lladdr "$2" dev eth0 nud permanent || fail "neighbour"
            shift ;;
        beside) ip addr add "$2/24" dev eth1 && ip link set eth1 up || fail "eth1"
            beside=$3
            shift 2 ;;
    esac
    shift
done
wait_for 20 gid_index 4 $device
peer=${beside:-$peer}
wait_for 90 ping -c 1 -W 1 "$peer"
sh /root/exchange.sh "$roles" $device "$(gid_index 4 $device)" "$peer" $way || fail "exchange"
case $tcp${roles%% *} in
    tcpserver) timeout 200 iperf3 -s -1 -p 18007 >/tmp/out 2>&1 || { cat /tmp/out; fail "TCP: server"; } ;;
    tcpclient) wait_for 60 iperf3 -c "$peer" -p 18007 -n 10M ;;
esac
dmesg_clean
