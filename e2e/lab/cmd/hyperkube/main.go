// Command hyperkube is Kubernetes in one binary: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, kubectl, a kubelet that runs containers as local processes, and etcd-snapshot,
// which saves and restores an etcd. Which of them it is, is decided by the name of the binary, or
// else by its first argument.
//
// The kubelet is that of a lab's machine (see package vm): the code of Kubernetes, with package cri
// for a container runtime. The hardware that it would detect (cores, memory) is configured, and it
// does not use control groups.
//
// If the machine has a cloud with volumes, the node part of the cloud's CSI driver (package cri)
// runs in it, too.
//
// Its settings are those of the machine's configuration (vm.KubeletConfigPath), if there is one,
// but for what the lab depends on: addresses, ports, certificates, and what needs control groups.
// With settings that are not valid it does not start.
//
// It joins its cluster as kubelets do, with a bootstrap token and a signed certificate. It expects
// a cloud that reports the Node's addresses and removes the taint
// node.cloudprovider.kubernetes.io/uninitialized.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/etcdsnapshot"
)

// A component gets its whole command line, its own name first, and returns the exit code.
type component func(args []string) int

func main() {
	components := map[string]component{
		"etcd":                    runEtcd,
		etcdsnapshot.Command:      runSnapshot,
		"kube-apiserver":          func([]string) int { return cli.Run(apiserver.NewAPIServerCommand()) },
		"kube-controller-manager": func([]string) int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
		"kube-scheduler":          func([]string) int { return cli.Run(scheduler.NewSchedulerCommand()) },
		"kubectl":                 runKubectl,
		"kubelet":                 runKubelet,
	}
	name := filepath.Base(os.Args[0])
	run, ok := components[name]
	if !ok && len(os.Args) > 1 {
		// The components read os.Args themselves.
		os.Args = os.Args[1:]
		name = os.Args[0]
		run, ok = components[name]
	}
	if !ok {
		names := make([]string, 0, len(components))
		for name := range components {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: hyperkube %s [flags]\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	os.Exit(run(os.Args))
}

func runEtcd(args []string) int {
	etcdmain.Main(args)
	return 0
}

func runSnapshot(args []string) int {
	if err := etcdsnapshot.Main(context.Background(), args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, args[0]+":", err)
		return 1
	}
	return 0
}

func runKubectl([]string) int {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // Prints it as kubectl does, and exits.
	}
	return 0
}
