#!/usr/bin/env bash
# A real Incus on this machine, for tests: containers from an image of busybox made here, an OVN
# network on userspace Open vSwitch (no kernel module), network load balancers that carry traffic,
# the HTTPS API on 127.0.0.1:8443. All of it lives in network, mount, PID and cgroup namespaces of
# its own, with its files in DIR: the machine's network, /run and running services are not touched,
# and several can run side by side. Needs root. Modelled on a recipe from the project's trial of
# Incus; no image server and no VM is needed.
#
# usage: incus.sh install          the packages, after saying which; started services and the
#                                  machine's apt sources stay as they were
#        incus.sh check            says what is missing
#        incus.sh up DIR           starts it (DIR is made; a running one is left alone)
#        incus.sh launch DIR NAME  one container on the OVN network; on ports 80 and 30080 it
#                                  answers HTTP with its own name
#        incus.sh pid DIR          PID whose network namespace it is
#        incus.sh run DIR CMD…     a command in its network namespace, with INCUS_DIR set for the
#                                  client `incus`
#        incus.sh down DIR         ends everything and removes DIR; fine where nothing runs
set -euo pipefail

packages=(openvswitch-switch ovn-central ovn-host dnsmasq-base busybox-static ethtool nftables iproute2 python3-minimal)
uplink_net=198.51.100 # TEST-NET-2: never routed anywhere
say() { printf 'incus: %s\n' "$*" >&2; }
die() { printf 'incus: %s\n' "$@" >&2; exit 1; }
# What `set -e` ends says where.
set -E; trap 'say "line $LINENO failed: $BASH_COMMAND"' ERR

# === packages ===

missing() {
  local tool
  for tool in incus ovs-vsctl ovsdb-server ovs-vswitchd ovn-northd ovn-nbctl ovn-controller dnsmasq ethtool nft ip unshare nsenter busybox; do
    PATH=$PATH:/usr/sbin:/sbin command -v $tool >/dev/null || printf '%s ' "$tool"
  done
  [ -x /usr/libexec/incus/incusd ] || printf 'incusd '
}

check() {
  [ "$(id -u)" = 0 ] || die "a real Incus needs root (namespaces, containers): run the tests as root"
  local absent; absent=$(missing)
  [ -z "$absent" ] || die "not installed: $absent" "Run '$0 install' as root (Debian 12), or install Incus 6, Open vSwitch and OVN by hand."
}

# Incus comes from the backports of the machine's own Debian mirror. They are read through apt
# settings of this one run, so that the machine's sources stay as they are.
install() {
  [ -n "$(missing)" ] || { say "everything is installed"; return; }
  [ "$(id -u)" = 0 ] || die "installing needs root"
  command -v apt-get >/dev/null || die "no apt-get: install Incus 6, Open vSwitch and OVN by hand; missing: $(missing)"
  local codename mirror work keep policy=/usr/sbin/policy-rc.d
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mirror=$({ sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources
    sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list; } 2>/dev/null | grep -E '/debian/?$' | head -n 1 || true)
  [ -n "$mirror" ] || die "no Debian mirror in /etc/apt/sources.list*: Incus cannot be installed from $codename-backports"
  say "installing from Debian, for the end-to-end tests: ${packages[*]}, and incus-base from $codename-backports"
  work=$(mktemp -d); keep=
  if [ -e $policy ]; then keep=yes; else
    # Without this, apt would start Open vSwitch, OVN and Incus on the machine itself.
    printf '#!/bin/sh\nexit 101\n' >$policy; chmod +x $policy
  fi
  # shellcheck disable=SC2064
  trap "rm -rf '$work'; [ -n '$keep' ] || rm -f $policy" EXIT
  cp -r /etc/apt/sources.list.d "$work/parts"; [ ! -e /etc/apt/sources.list ] || cp /etc/apt/sources.list "$work/parts/machine.list"
  echo "deb $mirror $codename-backports main" >"$work/parts/backports.list"
  mkdir -p "$work/lists/partial"
  local apt=(apt-get -q -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=600 -o Dir::Etc::sourcelist=/dev/null
    -o Dir::Etc::sourceparts="$work/parts" -o Dir::State::lists="$work/lists")
  export DEBIAN_FRONTEND=noninteractive
  { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${packages[@]}" &&
    "${apt[@]}" install -y --no-install-recommends -t "$codename-backports" incus-base; } >"$work/log" 2>&1 </dev/null ||
    { tail -n 20 "$work/log" >&2; die "apt-get could not install the packages (see above)"; }
  check
  say "installed: $(incus --version 2>/dev/null | sed -n '1s/^/incus /p')"
}

# === the inside: PID 1 of the namespaces ===

inside() {
  local dir=$1 ovn=$1/ovn vsctl
  exec </dev/null
  mount --make-rprivate /
  # A private /run for the daemons.
  mount -t tmpfs -o mode=755 tmpfs /run; mkdir -p /run/ovn /run/lock /run/keep
  # A /sys that shows this namespace's interfaces, with the machine's control groups kept.
  mount --rbind /sys/fs/cgroup /run/keep; mount -t sysfs sysfs /sys; mount --rbind /run/keep /sys/fs/cgroup
  ip link set lo up; sysctl -qw net.ipv4.ip_forward=1
  export OVS_RUNDIR=$ovn OVN_RUNDIR=$ovn INCUS_DIR=$dir/incus INCUS_SECURITY_APPARMOR=false
  mkdir -p "$ovn" "$INCUS_DIR"; cd "$ovn"
  vsctl="ovs-vsctl --timeout=120 --db=unix:$ovn/db.sock"
  ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema
  ovsdb-tool create nb.db /usr/share/ovn/ovn-nb.ovsschema
  ovsdb-tool create sb.db /usr/share/ovn/ovn-sb.ovsschema
  ovsdb-server conf.db --remote=punix:"$ovn/db.sock" --unixctl="$ovn/ovsdb.ctl" >ovsdb.log 2>&1 &
  ovsdb-server nb.db --remote=punix:"$ovn/nb.sock" --unixctl="$ovn/nb.ctl" >nb.log 2>&1 &
  ovsdb-server sb.db --remote=punix:"$ovn/sb.sock" --unixctl="$ovn/sb.ctl" >sb.log 2>&1 &
  local socket
  for socket in db nb sb; do await "$ovn/$socket.sock"; done
  ovn-northd --ovnnb-db=unix:"$ovn/nb.sock" --ovnsb-db=unix:"$ovn/sb.sock" --unixctl="$ovn/northd.ctl" >northd.log 2>&1 &
  ovn-nbctl --db=unix:"$ovn/nb.sock" init; ovn-sbctl --db=unix:"$ovn/sb.sock" init; $vsctl --no-wait init
  $vsctl --no-wait set open . external_ids:system-id=h1 external_ids:hostname=h1 external_ids:ovn-remote=unix:"$ovn/sb.sock" \
    external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip=127.0.0.1 external_ids:ovn-bridge-datapath-type=netdev
  ovs-vswitchd unix:"$ovn/db.sock" --unixctl="$ovn/vswitchd.ctl" --disable-system >vswitchd.log 2>&1 &
  $vsctl add-br br-up -- set bridge br-up datapath_type=netdev
  $vsctl add-br br-int -- set bridge br-int datapath_type=netdev fail-mode=secure
  ip addr add $uplink_net.1/24 dev br-up; ip link set br-up up
  ethtool -K br-up tx off >/dev/null 2>&1 || true # userspace Open vSwitch fills in no checksums
  ovn-controller unix:"$ovn/db.sock" >controller.log 2>&1 &
  /usr/libexec/incus/incusd --logfile "$dir/incusd.log" &
  wait $! # PID 1: when the daemon ends, all ends
}

await() { # PATH: until it exists
  local _
  for _ in $(seq 1200); do [ -e "$1" ] && return; sleep 0.1; done
  die "$1 did not appear within 120 s"
}

# === up, launch, down ===

# A root file system of one static program: boots in half a second, asks for its address, serves its
# host name on ports 80 and 30080 (a node port).
image() {
  local root=$1/image/rootfs applet
  mkdir -p "$root"/{bin,sbin,etc,proc,sys,dev,tmp,root,usr/share/udhcpc}
  cp "$(command -v busybox)" "$root/bin/busybox"
  for applet in sh init ip udhcpc httpd sleep mount mkdir hostname ping poweroff; do ln -sf busybox "$root/bin/$applet"; done
  ln -sf ../bin/busybox "$root/sbin/init"
  cat >"$root/usr/share/udhcpc/default.script" <<'X'
#!/bin/sh
[ "$1" = bound ] || exit 0
ip addr flush dev $interface; ip addr add $ip/24 dev $interface; ip link set $interface up; ip route add default via $router
X
  chmod +x "$root/usr/share/udhcpc/default.script"
  cat >"$root/etc/inittab" <<'X'
::sysinit:/bin/ip link set lo up
::respawn:/bin/udhcpc -f -i eth0 -s /usr/share/udhcpc/default.script
::sysinit:/bin/sh -c "mkdir -p /tmp/www; hostname > /tmp/www/index.html"
::respawn:/bin/httpd -f -p 80 -h /tmp/www
::respawn:/bin/httpd -f -p 30080 -h /tmp/www
::ctrlaltdel:/bin/poweroff
X
  echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
  printf 'architecture: %s\ncreation_date: 1700000000\nproperties: {os: busybox, description: busybox}\n' "$(uname -m)" >"$1/image/metadata.yaml"
  tar -C "$1/image" -czf "$1/image.tar.gz" metadata.yaml rootfs
}

running() { [ -s "$1/pid" ] && [ -d "/proc/$(cat "$1/pid")/ns" ] && [ "$(readlink "/proc/$(cat "$1/pid")/ns/net")" = "$(cat "$1/netns")" ]; }

pivots() { find /sys/fs/cgroup -maxdepth 2 -type d -name lxc.pivot; }

up() {
  local dir=$1
  check
  if running "$dir"; then say "already up in $dir"; return; fi
  down "$dir" quietly; mkdir -p "$dir"; chmod 711 "$dir"
  # The daemon's socket has to fit into 108 bytes.
  [ ${#dir} -le 80 ] || die "$dir is too long for a Unix socket's path: use a shorter folder"
  image "$dir"
  # liblxc leaves this control group behind; where it was before, it belongs to another process.
  [ -n "$(pivots)" ] || touch "$dir/pivots-are-ours"
  # Found out before: in the background it would be a child of its own, and
  # could be taken for PID 1.
  local self; self=$(realpath "$0")
  unshare --net --mount --pid --cgroup --fork --kill-child=KILL --mount-proc bash "$self" inside "$dir" >"$dir/out.log" 2>&1 &
  local outer=$!; disown
  # The namespace exists once PID 1 is the shell, and distinguishes a reused PID.
  local _ inner= netns=
  for _ in $(seq 1200); do
    inner=$(tr -d ' ' 2>/dev/null <"/proc/$outer/task/$outer/children" || true)
    [ -n "$inner" ] && netns=$(readlink "/proc/$inner/ns/net") && [ "$netns" != "$(readlink /proc/$$/ns/net)" ] && break
    netns=
    sleep 0.05
  done
  if [ -z "$netns" ]; then
    # No later command would find a PID, so everything that started has to end here.
    kill -KILL "$outer" 2>/dev/null || true
    cat "$dir/out.log" >&2; die "no namespaces (unshare): is this process really root, outside a restricted container?"
  fi
  echo "$outer" >"$dir/outer"; echo "$inner" >"$dir/pid"; echo "$netns" >"$dir/netns"
  preseed "$dir" || { tail -n 20 "$dir/out.log" "$dir/incusd.log" "$dir"/ovn/*.log >&2 2>/dev/null; down "$dir" quietly
    die "Incus did not start (its logs are above)"; }
  say "up: https://127.0.0.1:8443 in the network namespace of PID $inner; load balancers listen on $uplink_net.200/29"
}

preseed() {
  local dir=$1
  client "$dir"
  await "$INCUS_DIR/unix.socket" || return 1
  incus remote list >/dev/null 2>&1 || true # takes the client's greeting
  timeout 180 incus admin waitready --timeout 170 || return 1
  incus admin init --preseed <<X || return 1
config: {core.https_address: "127.0.0.1:8443", network.ovn.northbound_connection: "unix:$dir/ovn/nb.sock", network.ovs.connection: "unix:$dir/ovn/db.sock"}
storage_pools: [{name: default, driver: dir}]
profiles: [{name: default, devices: {root: {type: disk, path: /, pool: default}}}]
X
  incus network create UPLINK --type=physical parent=br-up ipv4.ovn.ranges=$uplink_net.100-$uplink_net.150 \
    ipv4.gateway=$uplink_net.1/24 ipv4.routes=$uplink_net.200/29 dns.nameservers=$uplink_net.1 >/dev/null &&
    incus network create ovnnet --type=ovn network=UPLINK ipv4.address=10.88.0.1/24 ipv4.nat=true ipv6.address=none >/dev/null &&
    incus image import "$dir/image.tar.gz" --alias busybox >/dev/null
}

launch() {
  local dir=$1 name=$2 pid
  client "$dir"
  incus launch busybox "$name" -q --network ovnnet </dev/null
  pid=$(incus query "/1.0/instances/$name/state" | sed -n 's/^[[:space:]]*"pid": \([0-9]*\).*/\1/p')
  # As for br-up: the container's side of the pair must fill in checksums itself. The PID is one
  # of the daemon's namespace.
  nsenter -t "$(cat "$dir/pid")" -m -n -p nsenter -t "$pid" -n ethtool -K eth0 tx off >/dev/null 2>&1
}

down() {
  local dir=$1 quiet=${2:-} pid outer _
  if running "$dir"; then
    client "$dir"
    timeout 120 incus list -f csv -c n 2>/dev/null | timeout 120 xargs -r incus delete -f >/dev/null 2>&1 || true
    timeout 60 incus admin shutdown --timeout 50 >/dev/null 2>&1 || true
    pid=$(cat "$dir/pid"); outer=$(cat "$dir/outer")
    # The end of PID 1 is the end of every process in there.
    kill -KILL "$pid" 2>/dev/null || true
    for _ in $(seq 600); do [ -d "/proc/$outer" ] || break; sleep 0.1; done
  fi
  # Where the daemon was killed, its containers' control groups are left; those of a living
  # process cannot be removed.
  local container
  for container in "$dir"/incus/containers/*; do
    [ -e "$container" ] || [ -L "$container" ] || continue
    find /sys/fs/cgroup -depth -type d -path "*/lxc.*.${container##*/}*" -exec rmdir {} + 2>/dev/null || true
  done
  if [ -e "$dir/pivots-are-ours" ]; then pivots | xargs -r rmdir 2>/dev/null || true; fi
  if [ -e "$dir" ]; then rm -rf "${dir:?}"; [ -n "$quiet" ] || say "down; $dir is removed"; fi
}

# === the command line ===

folder() { # an absolute path, but never a folder that could hold something else
  [ -n "${1:-}" ] || die "which DIR?"
  local dir; dir=$(realpath -m "$1")
  case $dir in / | /root | /home | /usr* | /etc* | /var | /tmp | /run) die "$dir cannot be DIR" ;; esac
  [ ! -e "$dir" ] || [ -e "$dir/image" ] || [ -z "$(ls -A "$dir")" ] || die "$dir holds something else: DIR must be empty or this script's"
  echo "$dir"
}
export PATH=$PATH:/usr/sbin:/sbin
# The client keeps its settings with the rest.
client() { export INCUS_DIR=$1/incus INCUS_CONF=$1/client; }
case ${1:-} in
install) install ;;
check) check ;;
up) d=$(folder "${2:-}"); up "$d" ;;
launch) d=$(folder "${2:-}"); launch "$d" "${3:?which NAME?}" ;;
pid) d=$(folder "${2:-}"); running "$d" || die "nothing runs in $d"; cat "$d/pid" ;;
run) d=$(folder "${2:-}"); running "$d" || die "nothing runs in $d"; shift 2; client "$d"; exec nsenter -t "$(cat "$d/pid")" -n "$@" ;;
down) d=$(folder "${2:-}"); down "$d" ;;
inside) inside "$2" ;;
*) sed -n '9,18s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
