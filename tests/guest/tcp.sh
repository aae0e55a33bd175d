# SPDX-License-Identifier: MIT
# tcp.sh OWN-ADDRESS HOST-ADDRESS: ARP, ping small and large, TCP towards the guest with offloads as the driver sets them.
. /root/lib.sh
net_up "$1/24"
wait_for 30 ping -c 1 -W 1 "$2"
ping -c 5 -i 0.2 "$2" || fail "ping"
ping -c 3 -i 0.2 -s 6000 "$2" || fail "ping in fragments"
ethtool -k eth0 | grep -E '^(tcp-segmentation-offload|rx-checksumming|tx-checksumming): on' | wc -l | grep -q 3 || fail "offloads are off"
wget -q -O /tmp/blob "http://$2:8080/blob" || fail "download"
echo "md5 $(md5sum </tmp/blob | cut -d' ' -f1)"
ethtool -S eth0 | grep -E ' (rx_packets|tx_packets|rx_csum_complete|tx_tso_packets): '
dmesg_clean
