# SPDX-License-Identifier: MIT
# exchange.sh ROLES DEVICE GID-INDEX PEER-ADDRESS [routed]: RC and UD pingpong and perftest with the peer, which runs the same with the other role first
# (ROLES: one or both of "server client", in the order in which they are played). Runs in guests and, under `uhca run`, on the host.
device=$2 gid=$3 peer=$4 way=$5 round=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT

fail() {
    cat "$out"
    echo "FAIL: $*"
    exit 1
}

# exchange NAME PORT COMMAND...: the client tries until the server listens.
exchange() {
    local name=$1 port=$(($2 + 100 * round)) tries=0
    shift 2
    if [ "$role" = server ]; then
        timeout 200 "$@" -p "$port" >"$out" 2>&1 || fail "$name: server"
    else
        until timeout 100 "$@" -p "$port" "$peer" >"$out" 2>&1; do
            grep -qi "couldn't connect\|connection refused" "$out" && [ $((tries += 1)) -lt 300 ] || fail "$name: client"
            sleep 0.2
        done
    fi
    ! grep -q 'invalid data' "$out" || fail "$name: data validation"
    echo "ok $name, $role"
}

for role in $1; do
    exchange "ibv_rc_pingpong" 18001 ibv_rc_pingpong -e -c -d "$device" -g "$gid" -n 50 -s 20000
    # Its address handles have a hop limit of 1.
    [ "$way" = routed ] || exchange "ibv_ud_pingpong" 18002 ibv_ud_pingpong -e -c -d "$device" -g "$gid" -n 50 -s 1000
    exchange "ib_write_bw" 18003 ib_write_bw -F -x "$gid" -n 100 -d "$device"
    # Without -o the client takes over what the server can, which may be more than it can itself.
    exchange "ib_read_bw" 18004 ib_read_bw -F -e -o 4 -x "$gid" -n 100 -d "$device"
    exchange "ib_send_bw" 18005 ib_send_bw -F -e -x "$gid" -n 100 -d "$device"
    exchange "ib_atomic_bw" 18006 ib_atomic_bw -F -o 4 -x "$gid" -n 20 -d "$device"
    round=$((round + 1))
done
