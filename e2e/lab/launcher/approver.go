package launcher

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/approver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/controlplane"
)

// approverName is the user that approves the certificate requests of kubelets.
const approverName = "approver"

// startApprover approves certificate requests until ctx ends; the returned function waits for the
// end.
func (l *Launcher) startApprover(ctx context.Context) (wait func(), err error) {
	target, err := clientConfig(l.target)
	if err != nil {
		return nil, err
	}
	control, err := clientConfig(l.control)
	if err != nil {
		return nil, err
	}
	nodes, err := kubernetes.NewForConfig(target)
	if err != nil {
		return nil, fmt.Errorf("a client for the approver: %w", err)
	}
	machines, err := machineclient.NewForConfig(control)
	if err != nil {
		return nil, fmt.Errorf("a client for the approver: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := approver.Run(ctx, approver.Config{Target: nodes, Machines: machines, Clock: l.clock, Log: l.log}); err != nil {
			l.log.Error("The approver ended", "err", err)
		}
	})
	return running.Wait, nil
}

// clientConfig is the approver's for a cluster.
func clientConfig(cluster *controlplane.Cluster) (*rest.Config, error) {
	kubeconfig, err := cluster.Kubeconfig(controlplane.Subject{User: approverName})
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of the approver: %w", err)
	}
	config.QPS = -1 // the VMs of a whole lab join at the same time
	return config, nil
}
