// One process that is an etcd and a real kube-apiserver, for tests on loopback.
//
// Made of Kubernetes' and etcd's public Go modules (k8s.io/kubernetes/cmd/kube-apiserver/app and
// go.etcd.io/etcd/server/v3/embed); nothing is copied from them. The recipe came with
// the project's own research.
// usage: apiserver CLIENT_PORT PEER_PORT DATA_DIR -- KUBE_APISERVER_FLAGS...
package main

import (
	"fmt"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// etcd on an empty folder is ready within a second; this covers a loaded machine.
const etcdReady = time.Minute

func main() {
	if len(os.Args) < 5 || os.Args[4] != "--" {
		fail(fmt.Errorf("usage: apiserver CLIENT_PORT PEER_PORT DATA_DIR -- FLAGS"))
	}
	if err := etcd(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fail(err)
	}
	os.Args = append([]string{"kube-apiserver"}, os.Args[5:]...)
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}

func etcd(clientPort, peerPort, dir string) error {
	client, err := url.Parse("http://127.0.0.1:" + clientPort)
	if err != nil {
		return err
	}
	peer, err := url.Parse("http://127.0.0.1:" + peerPort)
	if err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir = dir
	config.LogLevel = "error"
	// The data dies with the test.
	config.UnsafeNoFsync = true
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	select {
	case <-server.Server.ReadyNotify():
		return nil
	case <-time.After(etcdReady):
		return fmt.Errorf("etcd was not ready after %v", etcdReady)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
