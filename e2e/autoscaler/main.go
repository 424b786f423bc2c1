// Command autoscaler changes MachineDeployments like the cluster-autoscaler with its provider for
// Machine Controller Manager, one step in each run, and prints the result as JSON. Tests run it to
// check the fleet from the view of the cluster-autoscaler.
//
// It reads, decides and writes like the cluster-autoscaler, for the three generations of its
// scale-down, and uses the clientset of Machine Controller Manager v0.60.0: it writes whole
// objects, and fields that are not in that version's types are lost. It is not the
// cluster-autoscaler: it has no loop and no cache, reads no pods, and does not check the Deployment
// of Machine Controller Manager.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	machineclientset "github.com/gardener/machine-controller-manager/pkg/client/clientset/versioned"
	"k8s.io/client-go/kubernetes"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// userAgent identifies this client in audit logs.
const userAgent = "cluster-autoscaler"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err == nil {
		return
	}
	// Even the error is JSON: tests read the reason of a rejection.
	var why refusal
	errors.As(err, &why)
	answer, _ := json.Marshal(map[string]string{"error": err.Error(), "refusal": string(why)})
	fmt.Println(string(answer))
	os.Exit(1)
}

// run runs one command and writes its answer.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("autoscaler", flag.ContinueOnError)
	control := flags.String("control-kubeconfig", "", "access to the control cluster")
	target := flags.String("target-kubeconfig", "", "access to the target cluster")
	s := scaler{groups: groups{}, clock: time.Now}
	flags.Var(s.groups, "nodes", "a node group as <min>:<max>:<namespace>.<MachineDeployment>; may be repeated, with one namespace")
	flags.IntVar(&s.generation, "generation", marksWithTime, "of scale-down: 1 sets priorities, 2 writes names, 3 writes names with times")
	flags.DurationVar(&s.retryInterval, "retry-interval", 5*time.Second, "between tries of a write that failed")
	flags.DurationVar(&s.retryTimeout, "retry-timeout", time.Minute, "of a write, with all its tries")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: autoscaler [flags] "+strings.Join(names(), "|"))
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	do, known := commands[flags.Arg(0)]
	if !known {
		return fmt.Errorf("want a command of %v, got %q", names(), flags.Arg(0))
	}
	if s.generation < setsPriorities || s.generation > marksWithTime {
		return fmt.Errorf("want generation 1, 2 or 3, got %d", s.generation)
	}
	if err := s.connect(*control, *target); err != nil {
		return err
	}
	answer, err := do(ctx, &s, flags.Args()[1:])
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(flags.Args(), " "), err)
	}
	return json.NewEncoder(out).Encode(answer)
}

// commands are the calls of the cluster-autoscaler to a cloud provider, by name.
var commands = map[string]func(ctx context.Context, s *scaler, args []string) (any, error){
	"refresh":              inGroup(func(ctx context.Context, s *scaler, g group, _ []string) (any, error) { return s.refresh(ctx, g) }),
	"nodes":                inGroup(func(ctx context.Context, s *scaler, g group, _ []string) (any, error) { return s.nodes(ctx, g) }),
	"group-of-node":        groupOfNode,
	"increase-size":        inGroup(resize(+1)),
	"decrease-target-size": inGroup(resize(-1)),
	"delete-nodes": inGroup(func(ctx context.Context, s *scaler, g group, ids []string) (any, error) {
		return s.deleteNodes(ctx, g, ids)
	}),
	"template-node": inGroup(func(ctx context.Context, s *scaler, g group, _ []string) (any, error) { return s.templateNode(ctx, g) }),
}

func names() (all []string) {
	for name := range commands {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// inGroup returns a command whose first argument is a node group.
func inGroup(
	do func(ctx context.Context, s *scaler, g group, args []string) (any, error),
) func(context.Context, *scaler, []string) (any, error) {
	return func(ctx context.Context, s *scaler, args []string) (any, error) {
		if len(args) == 0 {
			return nil, errors.New("want a node group")
		}
		g, known := s.groups[args[0]]
		if !known {
			return nil, fmt.Errorf("want a node group of --nodes, got %q", args[0])
		}
		return do(ctx, s, g, args[1:])
	}
}

func resize(sign int) func(context.Context, *scaler, group, []string) (any, error) {
	return func(ctx context.Context, s *scaler, g group, args []string) (any, error) {
		if len(args) != 1 {
			return nil, fmt.Errorf("want a number of machines, got %q", args)
		}
		by, err := strconv.Atoi(args[0])
		if err != nil || by <= 0 {
			return nil, fmt.Errorf("want a positive number of machines, got %q", args[0])
		}
		return s.resize(ctx, g, sign*by)
	}
}

func groupOfNode(ctx context.Context, s *scaler, args []string) (any, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("want one Node, got %q", args)
	}
	return s.groupOfNode(ctx, args[0])
}

// connect creates the clients.
func (s *scaler) connect(control, target string) error {
	controlConfig, err1 := access(control)
	targetConfig, err2 := access(target)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	machines, err1 := machineclientset.NewForConfig(controlConfig)
	cluster, err2 := kubernetes.NewForConfig(targetConfig)
	deployments, err3 := appsclient.NewForConfig(controlConfig)
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("create the clients: %w", err)
	}
	s.machineAPI, s.nodeAPI, s.deploymentAPI = machines.MachineV1alpha1(), cluster.CoreV1().Nodes(), deployments
	return nil
}

func access(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig %q: %w", kubeconfig, err)
	}
	config.UserAgent = userAgent
	return config, nil
}
