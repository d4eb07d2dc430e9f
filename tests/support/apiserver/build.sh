#!/bin/sh
# Builds main.go, one binary that is an etcd and a kube-apiserver. Takes 3 minutes on
# 2 cores, modules included.
# usage: build.sh OUT_FILE KUBERNETES_VERSION     (the version without v; Go 1.26)
set -eu
out=$1
kubernetes=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/main.go" "$work/"
cd "$work"
echo "apiserver: downloading the modules of Kubernetes $kubernetes" >&2
dir=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
minor=${kubernetes#1.}
# A release of Kubernetes names the etcd and the behaviour of Go that it was tested with.
etcd=$(sed -n 's#^	go.etcd.io/etcd/server/v3 v\([^ ]*\).*#\1#p' "$dir/go.mod")
godebug=$(sed -n 's/^godebug //p' "$dir/go.mod")
if [ -z "$etcd" ] || [ -z "$godebug" ]; then
    echo "apiserver: $dir/go.mod requires no etcd, or has no godebug; adapt $0 to Kubernetes $kubernetes" >&2
    exit 1
fi
# k8s.io/kubernetes names its siblings by relative path: who imports it has to name their releases.
{
    printf 'module skysail.dev/tests/apiserver\n\ngo 1.26.0\n\ngodebug %s\n\n' "$godebug"
    printf 'require (\n\tk8s.io/kubernetes v%s\n\tgo.etcd.io/etcd/server/v3 v%s\n\tk8s.io/component-base v0.%s\n)\n\n' \
        "$kubernetes" "$etcd" "$minor"
    printf 'replace (\n'
    sed -n "s#^	k8s.io/\([a-z-]*\) => ./staging.*#	k8s.io/\1 => k8s.io/\1 v0.$minor#p" "$dir/go.mod"
    printf ')\n'
} >go.mod
go mod tidy 2>tidy.log || { cat tidy.log >&2; exit 1; }
echo "apiserver: compiling (some minutes, once for each version)" >&2
# Without these, kubectl cannot read the server's version.
x=k8s.io/component-base/version
# -trimpath as for the manager in Go (tests/bench): both share what Go has compiled.
nice -n 5 go build -trimpath -buildvcs=false -o "$out.part" -ldflags \
    "-s -w -X $x.gitVersion=v$kubernetes -X $x.gitMajor=1 -X $x.gitMinor=${minor%%.*}" .
mv "$out.part" "$out"
echo "apiserver: built $out" >&2
