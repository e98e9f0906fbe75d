#!/bin/sh
# A SLURM cluster of two nodes on this machine, all of it below DIR (Debian: apt install slurm-wlm munge):
#     slurm_cluster.sh up DIR       then export SLURM_CONF=DIR/slurm.conf
#     slurm_cluster.sh node DIR N   start slurmd of node nN (again)
#     slurm_cluster.sh down DIR
# Needs no configuration of the machine. As root, munge runs as its own user, because it refuses to be root.
set -eu

usage() { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }

configure() {
    cat >"$dir/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=17000
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket=$dir/munge/socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=${SLURMD_TIMEOUT:-20}
KillWait=${KILL_WAIT:-5}
SchedulerParameters=sched_interval=2,bf_interval=2
NodeName=n[1-2] NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=2
PartitionName=test Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
END
}

start_munge() {
    mkdir -p "$dir/munge"
    head -c 128 /dev/urandom >"$dir/munge/key"
    chmod 600 "$dir/munge/key"
    if [ "$(id -u)" = 0 ]; then
        chown -R munge "$dir/munge"
        as_munge="setpriv --reuid=munge --regid=munge --clear-groups"
    fi
    ${as_munge:-} munged --socket="$dir/munge/socket" --key-file="$dir/munge/key" \
        --log-file="$dir/munge/log" --pid-file="$dir/munge/pid" --seed-file="$dir/munge/seed"
}

start_node() { SLURM_CONF=$dir/slurm.conf slurmd -N "n$1"; }

up() {
    mkdir -p "$dir/state" "$dir/n1" "$dir/n2"
    chmod 755 "$dir"
    configure
    start_munge
    SLURM_CONF=$dir/slurm.conf slurmctld
    start_node 1
    start_node 2
    tries=0
    until [ "$(SLURM_CONF=$dir/slurm.conf sinfo --noheader --Node --states=idle 2>/dev/null | wc -l)" = 2 ]; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || { echo "the nodes do not come up; see $dir/*.log" >&2; exit 1; }
        sleep 0.5
    done
}

down() {
    # Its jobs first: their slurmstepd have no file with their number.
    SLURM_CONF=$dir/slurm.conf timeout 10 scancel --user="$(id -un)" 2>/dev/null || true
    for pid in "$dir"/n1.pid "$dir"/n2.pid "$dir"/slurmctld.pid "$dir"/munge/pid; do
        [ -f "$pid" ] || continue
        number=$(cat "$pid")
        kill "$number" 2>/dev/null || continue
        tries=0
        while kill -0 "$number" 2>/dev/null && [ $tries -lt 50 ]; do tries=$((tries + 1)); sleep 0.1; done
    done
}

[ $# -ge 2 ] || usage
mkdir -p "$2"
dir=$(cd -- "$2" && pwd)
case $1 in
    up) up ;;
    node) start_node "$3" ;;
    down) down ;;
    *) usage ;;
esac
