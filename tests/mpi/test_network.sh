#!/usr/bin/env bash
# test_network.sh - ranks on several hosts: network namespaces of this machine, joined by a bridge.
#
# Promise: Messages and collective operations between hosts are as in the model, and their bytes cross the network.
# Tier: full.
#
# The script runs itself in new namespaces of users, processes, mounts and the network, which go away with it. A
# program in the namespace of a host sees only the address and the name of that host. So MPI does not know that the
# hosts are one machine. UCX would find out, so it gets no transport but TCP.
set -u
if [ "${3:-}" != inside ]; then
    . "$1/tests/support/installed.sh"
    needs mpicc.mpich
    export PATH=$PATH:/sbin:/usr/sbin
    needs ip
    for with in --map-root-user --mount; do # a container's root may lack one of these rights
        spaces=("$with" --mount --net --uts --pid --fork --kill-child --mount-proc)
        if unshare "${spaces[@]}" sh -c 'mount -t sysfs none /sys && ip link add name x0 type veth peer name x1 &&
            ip link add name x2 type bridge' 2>/dev/null; then
            exec unshare "${spaces[@]}" bash "$0" "$1" "$2" inside
        fi
    done
    without "network namespaces: MPI between hosts"
    exit 77
fi
. "$1/tests/mpi/ranks.sh"
hosts=4
net=10.213.7

# make_hosts: h1 to h4 with the addresses .1 to .4, and a bridge with .254, where mpiexec runs
make_hosts() {
    local i
    mount -t sysfs none /sys && mount -t tmpfs none /run && mkdir /run/netns && ip link set lo up &&
        ip link add name crossing type bridge && ip addr add $net.254/24 dev crossing && ip link set crossing up || return 1
    printf '127.0.0.1 localhost\n%s.254 starter\n' $net >"$work/hosts"
    for i in $(seq $hosts); do
        echo "$net.$i h$i" >>"$work/hosts"
        ip netns add "h$i" && ip link add name "to$i" type veth peer name eth0 netns "h$i" &&
            ip link set "to$i" master crossing up && ip -n "h$i" link set lo up &&
            ip -n "h$i" addr add "$net.$i/24" dev eth0 && ip -n "h$i" link set eth0 up || return 1
    done
    mount --bind "$work/hosts" /etc/hosts && hostname starter
}

# Starts a program on a host, instead of ssh: start [OPTION...] HOST COMMAND...
cat >"$work/start" <<'SH'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do
    shift
done
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host && $*" </dev/null
SH
chmod +x "$work/start"

# crossed: the bytes that went to any host
crossed() {
    cat /sys/class/net/to*/statistics/tx_bytes | awk '{ n += $1 } END { print n }'
}

# over MPI HOSTS PROGRAM ARGUMENT...: runs the program on these hosts, such as h1:2,h2:2, and checks that the number
# of bytes that it prints crossed the network
over() {
    local mpi=$1 on=$2 program=$3 begin bytes n
    local with=(-launcher ssh -launcher-exec "$work/start" -iface crossing -disable-auto-cleanup -hosts "$on")
    local environment=(UCX_TLS=tcp,self NO_FINALIZE=1)
    shift 3
    if [ "$mpi" = openmpi ]; then
        environment=()
        with=(--mca plm_rsh_agent "$work/start" --mca pml ob1 --mca btl tcp,self,vader --mca btl_tcp_if_include "$net.0/24"
            --mca oob_tcp_if_include "$net.0/24" --mca mpi_yield_when_idle 1 --host "$on")
    fi
    n=$(echo "$on" | tr ',' '\n' | awk -F: '{ n += $2 } END { print n }')
    begin=$(crossed)
    # Without MPI_Finalize, MPICH's launcher may find a host that ended already, and end by SIGPIPE. So only the line
    # counts that the first rank prints when all ranks are well.
    (
        trap '' PIPE
        env "${environment[@]}" HEDDLE_CACHE=none timeout -k 1 300 "mpiexec.$mpi" "${with[@]}" -n "$n" "$work/$program.$mpi" "$@"
    ) >"$work/out" 2>&1 </dev/null || [ "$mpi" = mpich ] || fail "$program $* with $mpi on $on, status $?: $(tail -n 20 "$work/out")"
    begin=$(($(crossed) - begin))
    bytes=$(sed -n 's/.* are as in the model, with \([0-9]*\) bytes between.*/\1/p' "$work/out")
    echo "$program with $mpi on $on: ${bytes:-no} bytes in the model, $begin bytes crossed the network"
    [ "${bytes:-0}" -gt 0 ] && [ "$begin" -ge "$bytes" ] && return
    fail "$program $* with $mpi on $on: too few bytes crossed the network: $(tail -n 20 "$work/out")"
}

if ! make_hosts; then
    fail "the hosts cannot be made"
    exit 1
fi
compiled mpich messages && compiled mpich collectives || exit 1
over mpich h1:1,h2:1,h3:1,h4:1 messages 300 1 4000000
over mpich h1:2,h2:2 collectives 100 1
if compiled openmpi messages; then
    over openmpi h1:1,h2:1 messages 300 2 4000000
fi
exit $failed
