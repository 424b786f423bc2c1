//go:build e2e

package helm

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/record"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// nodes of the lab's own, as documented: one replica of the fleet fits on each.
	nodes     = 5
	slots     = 256
	namespace = "load"
	// firstTag and secondTag are those of two builds of the image.
	firstTag, secondTag = "0.1.0", "0.2.0"
)

// bed is a lab in which Helm installs the fleet, and the load there.
type bed struct {
	*testing.T
	ctx      context.Context //nolint:containedctx // it is the test's own, and every step needs it
	lab      *harness.Lab
	commands map[string]string
	root     string // of the repository
	bin      string
	home     string // of Helm
	tag      string
	recorder *record.Recorder
}

// newBed starts a lab without a fleet. It skips the test where pods of the fleet cannot run.
func newBed(t *testing.T) *bed {
	t.Helper()
	root, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := harness.Bin()
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, commands: documented(t), root: root, bin: bin, home: t.TempDir(), tag: firstTag}
	if os.Geteuid() != 0 {
		t.Skip("the lab runs pods of other users than root only as root")
	}
	if !harness.KubeletsWork(t) {
		t.Skip("the fleet's pods need real kubelets")
	}
	b.ctx, b.lab = harness.Begin(t, harness.Options{Clusters: 1, NoFleet: true, Nodes: nodes}, nil)
	return b
}

// step runs one step of a test, and prints how long it took.
func (b *bed) step(what string, do func()) {
	b.Helper()
	start := time.Now()
	do()
	b.Logf("%5.1f s  %s", time.Since(start).Seconds(), what)
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// eventually waits until check returns nil.
func (b *bed) eventually(what string, check func(context.Context) error) {
	b.Helper()
	b.must(harness.EventuallyEvery(b.ctx, 250*time.Millisecond, what, check))
}

// follow runs a documented block.
func (b *bed) follow(block string) {
	b.Helper()
	commands, found := b.commands[block]
	if !found {
		b.Fatalf("%v have no block %q", pages, block)
	}
	b.step("documented: "+strings.TrimPrefix(strings.SplitN(commands, "\n", 2)[0], "# "), func() { b.shell(commands) })
}

// shell runs commands in the folder of the repository, as a user of the lab does, and returns what
// they print.
func (b *bed) shell(commands string) string {
	b.Helper()
	var output, failures bytes.Buffer
	cmd := exec.CommandContext(b.ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+filepath.Join(b.lab.Dir, "admin.kubeconfig"), "PATH="+b.bin+":"+os.Getenv("PATH"),
		"HELM_CACHE_HOME="+b.home, "HELM_CONFIG_HOME="+b.home, "HELM_DATA_HOME="+b.home,
		"IMAGE=registry.example.org/team/machine-controller-fleet", "TAG="+b.tag, "VALUES="+filepath.Join(b.lab.Dir, "values.yaml"),
	)
	cmd.Stdout, cmd.Stderr = &output, &failures
	if err := cmd.Run(); err != nil {
		b.Fatalf("%s\n%v\n%s%s\n%s", commands, err, output.String(), failures.String(), b.pods())
	}
	return output.String()
}

// pods describes the fleet's pods, for a message.
func (b *bed) pods() string {
	text, err := b.lab.Kubectl(context.WithoutCancel(b.ctx), "-n", harness.FleetNamespace, "get", "pods", "-o", "wide")
	if err != nil {
		return err.Error()
	}
	return text
}

// scale sets the number of replicas, and waits until those that are removed have ended.
func (b *bed) scale(replicas int) {
	b.Helper()
	b.shell(fmt.Sprintf("kubectl -n %s scale statefulset/fleet --replicas=%d", harness.FleetNamespace, replicas))
	b.eventually(fmt.Sprintf("there are %d pods", replicas), func(ctx context.Context) error {
		pods, err := b.lab.Control.CoreV1().Pods(harness.FleetNamespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) != replicas {
			err = fmt.Errorf("there are %d", len(pods.Items))
		}
		return err
	})
}

// held waits until all slots are held by exactly these replicas, each with its share.
func (b *bed) held(ordinals ...int) {
	b.Helper()
	var want []string
	for _, i := range ordinals {
		want = append(want, fmt.Sprintf("fleet-%d", i))
	}
	b.eventually(fmt.Sprintf("%v hold all slots", want), func(ctx context.Context) error {
		holders, err := b.lab.Holders(ctx)
		if err != nil {
			return err
		}
		shares := map[string]int{}
		for _, session := range holders {
			replica, _, _ := strings.Cut(session, "_")
			shares[replica]++
		}
		if got := slices.Sorted(maps.Keys(shares)); !slices.Equal(got, want) || len(holders) != slots {
			return fmt.Errorf("expected %d slots held by %v, got %d, by replica %v", slots, want, len(holders), shares)
		}
		return nil
	})
}

// prepare creates the namespace of the load, and starts to record.
func (b *bed) prepare() {
	b.Helper()
	b.must(b.lab.Prepare(b.ctx, namespace, ""))
	b.recorder = record.Start(b.ctx, b.T, b.lab, namespace)
}

// deploy creates a MachineDeployment whose rollouts replace surge machines at a time.
func (b *bed) deploy(name string, machines, surge int32) {
	b.Helper()
	d := harness.Deployment(namespace, name, machines)
	d.Spec.Strategy = strategy(surge)
	b.recorder.Rolls(name, int(surge))
	_, err := b.lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Create(b.ctx, d, metav1.CreateOptions{})
	b.must(err)
}

// scaleUp raises the number of machines of a MachineDeployment.
func (b *bed) scaleUp(name string, machines int) {
	b.Helper()
	b.recorder.Expect(name, machines)
	b.must(b.lab.ScaleDeployment(b.ctx, namespace, name, machines))
}

// roll changes the template of a MachineDeployment, and waits until some of its machines are
// replaced, and not all.
func (b *bed) roll(name, revision string) {
	b.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"revision":%q}}}}}`, revision)
	api := b.lab.Machines.MachineV1alpha1().MachineDeployments(namespace)
	_, err := api.Patch(b.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	b.must(err)
	b.eventually("the rollout of "+name+" is in its middle", func(ctx context.Context) error {
		d, err := api.Get(ctx, name, metav1.GetOptions{})
		if err == nil && (d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas < d.Spec.Replicas/5) {
			err = fmt.Errorf("%d of %d machines are updated", d.Status.UpdatedReplicas, d.Spec.Replicas)
		}
		return err
	})
}

// served waits until each MachineDeployment has its desired machines, of its present template, each
// with one VM.
func (b *bed) served() {
	b.Helper()
	b.eventually("all MachineDeployments are served", func(ctx context.Context) error {
		list, err := b.lab.Machines.MachineV1alpha1().MachineDeployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, d := range list.Items {
			if d.Status.UpdatedReplicas != d.Spec.Replicas {
				return fmt.Errorf("%d of %d machines of %s are updated", d.Status.UpdatedReplicas, d.Spec.Replicas, d.Name)
			}
		}
		return record.Converged(ctx, b.lab, namespace)
	})
}

// identity contains what stays when nothing is lost.
type identity struct{ machine, vm, node string }

// identities returns those of the machines of a MachineDeployment, by name.
func (b *bed) identities(name string) map[string]identity {
	b.Helper()
	machines, err := b.lab.Machines.MachineV1alpha1().Machines(namespace).
		List(b.ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelName + "=" + name})
	b.must(err)
	list, err := b.lab.Target.CoreV1().Nodes().List(b.ctx, metav1.ListOptions{})
	b.must(err)
	uids := map[string]string{}
	for _, n := range list.Items {
		uids[n.Name] = string(n.UID)
	}
	all := map[string]identity{}
	for _, m := range machines.Items {
		all[m.Name] = identity{machine: string(m.UID), vm: m.Spec.ProviderID, node: uids[m.Labels[v1alpha1.LabelNode]]}
	}
	return all
}

// unchanged checks that machines, their VMs and their Nodes still exist.
func (b *bed) unchanged(name string, before map[string]identity) {
	b.Helper()
	now := b.identities(name)
	for machine, was := range before {
		if is := now[machine]; is != was || is.vm == "" || is.node == "" {
			b.Errorf("machine %s of %s is %+v, and was %+v: something of it was lost", machine, name, is, was)
		}
	}
}

// end deletes everything, and judges the records.
func (b *bed) end() {
	b.Helper()
	api := b.lab.Machines.MachineV1alpha1()
	b.must(api.MachineDeployments(namespace).DeleteCollection(b.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	b.eventually("nothing of the load is left", func(ctx context.Context) error {
		machines, err := api.Machines(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		vms, err := b.lab.Cloud.VMs(ctx, namespace)
		if err != nil {
			return err
		}
		others, err := b.lab.Target.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "!" + controlPlane})
		if err == nil && len(machines.Items)+len(vms)+len(others.Items) > 0 {
			err = fmt.Errorf("%d machines, %d VMs, %d Nodes", len(machines.Items), len(vms), len(others.Items))
		}
		return err
	})
	report := b.recorder.Verdict(b.T)
	if report.Calls == 0 || report.Writes == 0 {
		b.Errorf("the checker was given %d calls and %d writes of the fleet; want those of its ServiceAccount", report.Calls, report.Writes)
	}
}

// controlPlane is the label of the Nodes of the lab's own.
const controlPlane = "node-role.kubernetes.io/control-plane"
