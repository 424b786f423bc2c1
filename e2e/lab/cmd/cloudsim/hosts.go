package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/clusters"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/realkubelet"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/simkubelet"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// cluster is the one that VMs join.
type cluster struct {
	config *rest.Config
	client kubernetes.Interface
}

// connect creates the clients of the cluster; nil without one.
func connect(kubeconfig string) (*cluster, error) {
	if kubeconfig == "" {
		return nil, nil //nolint:nilnil // a cloud without a cluster is valid
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read --kubeconfig: %w", err)
	}
	config.UserAgent = "cloudsim"
	config.QPS = -1 // Thousands of kubelets do not share one limit.
	compact := rest.CopyConfig(config)
	compact.ContentType = runtime.ContentTypeProtobuf
	compact.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(compact)
	if err != nil {
		return nil, fmt.Errorf("create a client of the cluster: %w", err)
	}
	return &cluster{config, client}, nil
}

// fewWorkers are enough for the VMs of one of many clusters.
const fewWorkers = 4

// newHosts creates the hosts of VMs. Without a cluster simulated VMs boot and join nothing.
func newHosts(opts options, joined *cluster, log *slog.Logger) (map[cloudapi.BootMode]guest.Host, error) {
	simulated, err := simulate(opts, joined, log)
	if err != nil {
		return nil, err
	}
	if joined == nil {
		if opts.kubeletCommand != "" {
			return nil, errors.New("--kubelet-command needs --kubeconfig: kubelets have to join something")
		}
		return map[cloudapi.BootMode]guest.Host{cloudapi.BootSimulated: simulated}, nil
	}
	var kubelets guest.Host
	if opts.kubeletCommand == "" {
		// Simulated, too, but by a separate host: each is run once.
		kubelets, err = simulate(opts, joined, log)
	} else {
		kubelets, err = realkubelet.New(realkubelet.Config{
			Command: strings.Fields(opts.kubeletCommand), Dir: filepath.Join(opts.stateDir, "vms"),
			Volumes: filepath.Join(opts.stateDir, cloudsim.VolumesFolder), Cluster: joined.config, Client: joined.client, Log: log,
		})
	}
	if err != nil {
		return nil, err
	}
	return map[cloudapi.BootMode]guest.Host{cloudapi.BootSimulated: simulated, cloudapi.BootKubelet: kubelets}, nil
}

// simulate makes a host of simulated VMs, which join the cluster of their user data.
func simulate(opts options, joined *cluster, log *slog.Logger) (guest.Host, error) {
	simulator := func(of *cluster, workers int) (guest.Host, error) {
		prove, err := simkubelet.NewProver(of.config)
		if err != nil {
			return nil, err
		}
		return simkubelet.New(simkubelet.Config{Client: of.client, Prove: prove, Workers: workers, Daemons: opts.daemons, Log: log})
	}
	var first guest.Host = guest.Nowhere{}
	if joined != nil {
		var err error
		if first, err = simulator(joined, 0); err != nil {
			return nil, err
		}
	}
	if opts.clusters == "" {
		return first, nil
	}
	kubeconfigs, err := filepath.Glob(filepath.Join(opts.clusters, "*.kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("look for kubeconfigs in --clusters: %w", err)
	}
	byServer := map[string]*cluster{}
	for _, kubeconfig := range kubeconfigs {
		one, err := connect(kubeconfig)
		if err != nil {
			return nil, err
		}
		byServer[one.config.Host] = one
	}
	return clusters.New(clusters.Config{Default: first, Log: log, Open: func(server string) (guest.Host, error) {
		if byServer[server] == nil {
			return nil, fmt.Errorf("none of the %d kubeconfigs in %s has that server", len(byServer), opts.clusters)
		}
		return simulator(byServer[server], fewWorkers)
	}}), nil
}
