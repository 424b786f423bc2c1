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

// newHosts creates the hosts of VMs. Without a cluster simulated VMs boot and join nothing.
func newHosts(opts options, joined *cluster, log *slog.Logger) (map[cloudapi.BootMode]guest.Host, error) {
	if joined == nil {
		if opts.kubeletCommand != "" {
			return nil, errors.New("--kubelet-command needs --kubeconfig: kubelets have to join something")
		}
		return map[cloudapi.BootMode]guest.Host{cloudapi.BootSimulated: guest.Nowhere{}}, nil
	}
	prove, err := simkubelet.NewProver(joined.config)
	if err != nil {
		return nil, err
	}
	simulate := simkubelet.Config{Client: joined.client, Prove: prove, Daemons: opts.daemons, Log: log}
	simulated, err := simkubelet.New(simulate)
	if err != nil {
		return nil, err
	}
	var kubelets guest.Host
	if opts.kubeletCommand == "" {
		// Simulated, too, but by a separate host: each is run once.
		kubelets, err = simkubelet.New(simulate)
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
