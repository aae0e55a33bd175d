# SPDX-License-Identifier: MIT
# Plain Ethernet at the driver's default settings, with another station. ethernet.sh PEER OWN...
. /root/lib.sh
peer=$1
shift
net_up "$@"
for feature in tcp-segmentation-offload tx-checksumming rx-checksumming receive-hashing rx-vlan-offload; do
    ethtool -k eth0 | grep -q "^$feature: on" || fail "$feature is not on"
done

counter() { ethtool -S eth0 | sed -n "s/^ *$1: //p"; }
moved() { [ "$(counter "$1")" -gt 0 ] || fail "counter $1 is $(counter "$1")"; }

# Both serve 4 MiB of random bytes and fetch the other's, at the same time.
mkdir /tmp/www
dd if=/dev/urandom of=/tmp/www/data bs=64k count=64 2>/dev/null
sha256sum </tmp/www/data >/tmp/www/sum
httpd -p 80 -h /tmp/www || fail "httpd"
wait_for 90 ping -c 1 -W 1 "$peer"
ping -c 5 -i 0.2 -s 1400 "$peer" || fail "ping"
ping -c 3 -i 0.2 -s 8000 "$peer" || fail "ping in fragments"
wait_for 60 wget -q -O /tmp/sum "http://$peer/sum"
for round in 1 2; do
    timeout 60 wget -q -O /tmp/data "http://$peer/data" || fail "wget"
    [ "$(sha256sum </tmp/data)" = "$(cat /tmp/sum)" ] || fail "the data came changed"
done
moved tx_tso_packets
moved rx_csum_complete
echo "ok 4 MiB each way, twice"
# The other side may still be fetching.
touch /tmp/www/done
wait_for 120 wget -q -O /tmp/done "http://$peer/done"
ethtool -t eth0 offline >/tmp/selftest || { cat /tmp/selftest; fail "self-test"; }
moved tx_packets
moved rx_packets
moved rx_vport_unicast_packets
moved tx_vport_unicast_bytes
moved rx_packets_phy
for c in rx_wqe_err tx_cqe_err tx_queue_dropped rx_oversize_pkts_sw_drop; do
    [ "$(counter $c || echo 0)" = 0 ] || fail "counter $c is $(counter $c)"
done
dmesg_clean
sleep 3 # the other side's last fetch
