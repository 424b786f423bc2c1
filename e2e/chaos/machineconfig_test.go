//go:build e2e

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	configv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

const (
	// poolName is the pool of the test, its namespace, and its MachineDeployment.
	poolName = "configured"
	poolSize = 5
	// rollKills is how many processes are killed, at most rollBetween apart.
	rollKills   = 20
	rollBetween = 10 * time.Second
)

// configs is a pool of VMs with real kubelets and daemons, and what the test knows of it.
type configs struct {
	*testing.T

	ctx    context.Context //nolint:containedctx // it is the test's own
	lab    *harness.Lab
	budget *harness.Budget
	random *rand.Rand
	target string
}

// TestMachineConfigurationUnderFaults rolls configurations while they are changed, paused, broken
// and abandoned, while Nodes drift and die, and while daemons, replicas and owners of slots are
// killed: maxUnavailable is never exceeded, and every Node ends on the target.
func TestMachineConfigurationUnderFaults(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("part of long runs")
	}
	if !harness.KubeletsWork(t) {
		t.Skip("the lab boots simulated Nodes only")
	}
	c := &configs{T: t, random: rand.New(rand.NewPCG(seed(t), 2))}
	c.ctx, c.lab = harness.Begin(t, harness.Options{
		Replicas: 3, CloudsimFlags: cloudFlags, MachineConfiguration: true, DaemonFlags: harness.DaemonFlags,
	}, nil)
	c.must(c.lab.WaitHeld(c.ctx, slots))
	c.must(c.lab.Prepare(c.ctx, poolName, `{"boot":"kubelet"}`))
	d := harness.Deployment(poolName, poolName, poolSize)
	d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{harness.LabelPool: poolName}
	_, err := c.lab.Machines.MachineV1alpha1().MachineDeployments(poolName).Create(c.ctx, d, metav1.CreateOptions{})
	c.must(err)
	c.within("all machines run", func(ctx context.Context) error { return c.lab.Running(ctx, poolName, poolSize) })
	c.budget, err = c.lab.WatchBudget(c.ctx, poolName, 1)
	c.must(err)
	c.setFile("1")
	_, err = c.lab.Configs.MachineConfigPools().Create(c.ctx, harness.NewPool(poolName, intstr.FromInt32(1)), metav1.CreateOptions{})
	c.must(err)
	c.newTarget()
	c.ends("the first configuration")

	c.changeInTheMiddle()
	c.rollBack()
	c.drift()
	c.nodeDies()
	c.kills()
	c.must(c.budget.Stop())
}

func (c *configs) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// within calls a function that waits, and bounds it.
func (c *configs) within(what string, wait func(context.Context) error) {
	c.Helper()
	start := time.Now()
	c.must(wait(c.ctx))
	c.Logf("%s: after %.1f s", what, time.Since(start).Seconds())
}

// setFile changes the pool's configuration.
func (c *configs) setFile(content string) {
	c.Helper()
	c.must(c.lab.SetConfig(c.ctx, poolName, "50-file",
		harness.Ignition([]string{harness.File("/etc/demo", content)}, []string{harness.Unit("demo.service")})))
}

// newTarget waits until the pool has another target.
func (c *configs) newTarget() {
	c.Helper()
	c.within("a target", func(ctx context.Context) (err error) {
		c.target, err = c.lab.NewTarget(ctx, poolName, c.target)
		return err
	})
}

// ends waits until all Nodes have the target.
func (c *configs) ends(what string) {
	c.Helper()
	c.within(what, func(ctx context.Context) error { return c.lab.AllOn(ctx, poolName, c.target, poolSize) })
}

func (c *configs) nodes() []corev1.Node {
	c.Helper()
	nodes, err := c.lab.PoolNodes(c.ctx, poolName)
	c.must(err)
	return nodes
}

// assigned waits until at least n Nodes are assigned the target, and returns those that are.
func (c *configs) assigned(n int) (names []string) {
	c.Helper()
	c.within(fmt.Sprintf("%d Nodes are assigned the target", n), func(ctx context.Context) error {
		return harness.Eventually(ctx, "Nodes are assigned "+c.target, func(context.Context) error {
			names = nil
			for _, node := range c.nodes() {
				if node.Annotations[configv1alpha1.DaemonPrefix.DesiredConfig()] == c.target {
					names = append(names, node.Name)
				}
			}
			if len(names) < n {
				return fmt.Errorf("%v are", names)
			}
			return nil
		})
	})
	return names
}

// changeInTheMiddle changes the configuration while it is rolled, pauses the pool, and changes it
// once more meanwhile: nothing is rendered and no Node begins. Then it resumes.
func (c *configs) changeInTheMiddle() {
	c.setFile("2")
	c.newTarget()
	c.assigned(2)
	c.setFile("3")
	c.newTarget()
	c.assigned(1)
	c.must(c.lab.PatchPool(c.ctx, poolName, `{"spec":{"paused":true}}`))
	time.Sleep(time.Second) // An assignment may be on its way.
	before := c.assigned(0)
	c.setFile("4")
	time.Sleep(15 * time.Second) // More than an update of a Node takes.
	if after := c.assigned(0); len(after) != len(before) {
		c.Errorf("Nodes of a paused pool are assigned the target: before %v, after %v", before, after)
	}
	pool, err := c.lab.Configs.MachineConfigPools().Get(c.ctx, poolName, metav1.GetOptions{})
	c.must(err)
	if pool.Status.CurrentMachineConfig != c.target {
		c.Errorf("a paused pool has the new target %s", pool.Status.CurrentMachineConfig)
	}
	c.must(c.lab.PatchPool(c.ctx, poolName, `{"spec":{"paused":false}}`))
	c.newTarget()
	c.ends("a change in the middle, paused and resumed")
}

// rollBack rolls a configuration with which no kubelet starts, and removes it when a Node has
// failed.
func (c *configs) rollBack() {
	good := c.target
	c.must(c.lab.SetConfig(c.ctx, poolName, "60-broken",
		harness.Ignition([]string{harness.File(harness.KubeletFile, harness.MaxPods(-1))}, nil)))
	c.newTarget()
	c.within("the pool reports the failure", func(ctx context.Context) error {
		return c.reports(ctx, configv1alpha1.PoolNodeDegraded, "not healthy")
	})
	c.must(c.lab.Configs.MachineConfigs().Delete(c.ctx, "60-broken", metav1.DeleteOptions{}))
	c.newTarget()
	if c.target != good {
		c.Errorf("the roll-back has the target %s, want %s again", c.target, good)
	}
	c.ends("a roll-back")
}

// reports waits until a condition of the pool is True, and its message has the text.
func (c *configs) reports(ctx context.Context, condition, text string) error {
	return harness.Eventually(ctx, condition+" is True", func(ctx context.Context) error {
		pool, err := c.lab.Configs.MachineConfigPools().Get(ctx, poolName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		found := apimeta.FindStatusCondition(pool.Status.Conditions, condition)
		if found == nil || found.Status != metav1.ConditionTrue || !strings.Contains(found.Message, text) {
			return fmt.Errorf("the conditions are %v", pool.Status.Conditions)
		}
		return nil
	})
}

// vm is the VM of a Node.
func vm(node *corev1.Node) string { return path.Base(node.Spec.ProviderID) }

// drift changes a file of a Node, which its daemon repairs.
func (c *configs) drift() {
	nodes := c.nodes()
	file := c.lab.MachineFile(vm(&nodes[c.random.IntN(len(nodes))]), "/etc/demo")
	c.must(os.WriteFile(file, []byte("another program's"), 0o644))
	c.within("drift is repaired", func(ctx context.Context) error {
		return harness.Eventually(ctx, "the file is as configured", func(context.Context) error {
			content, err := os.ReadFile(file)
			if err == nil && string(content) != "4" {
				err = fmt.Errorf("it is %q", content)
			}
			return err
		})
	})
	c.ends("all Nodes are done after a repair")
}

// nodeDies ends the VM of a Node that is being updated. The pool names it until its machine is
// replaced.
func (c *configs) nodeDies() {
	c.setFile("5")
	c.newTarget()
	name := c.assigned(1)[0]
	for _, node := range c.nodes() {
		if node.Name == name {
			c.must(c.lab.Cloud.Act(c.ctx, vm(&node), cloudapi.ActionDie))
		}
	}
	c.within("the pool names the dead Node", func(ctx context.Context) error { return c.reports(ctx, configv1alpha1.PoolUpdating, name) })
	c.must(c.lab.Machines.MachineV1alpha1().Machines(poolName).Delete(c.ctx, name, metav1.DeleteOptions{}))
	c.ends("a machine is replaced in the middle")
}

// kills changes the configuration again and again, and kills a daemon, a replica or the owner of
// the pool's slot at random moments.
func (c *configs) kills() {
	c.must(c.lab.PatchPool(c.ctx, poolName, `{"spec":{"maxUnavailable":"40%"}}`))
	c.budget.SetLimit(poolSize * 40 / 100)
	for i := range rollKills {
		if i%4 == 0 {
			c.setFile(fmt.Sprintf("kill %d", i))
		}
		time.Sleep(time.Duration(c.random.Int64N(int64(rollBetween))))
		switch nodes := c.nodes(); c.random.IntN(3) {
		case 0:
			pid, err := c.lab.Daemon(vm(&nodes[c.random.IntN(len(nodes))]))
			c.must(err)
			if pid != 0 { // its VM reboots
				c.Logf("kill daemon %d", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		case 1:
			names, err := c.lab.Replicas(c.ctx)
			c.must(err)
			c.crash(names[c.random.IntN(len(names))])
		case 2:
			c.crash(c.owner())
		}
	}
	c.setFile("last")
	c.within("the last target", func(ctx context.Context) error {
		return harness.Eventually(ctx, "all Nodes have the last file", func(ctx context.Context) error {
			pool, err := c.lab.Configs.MachineConfigPools().Get(ctx, poolName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			rendered, err := c.lab.Configs.RenderedMachineConfigs().Get(ctx, pool.Status.CurrentMachineConfig, metav1.GetOptions{})
			if err == nil && !strings.Contains(string(rendered.Spec.Config.Raw), "bGFzdA==") { // last
				err = fmt.Errorf("the target is still %s", rendered.Name)
			}
			c.target = pool.Status.CurrentMachineConfig
			return err
		})
	})
	c.ends("kills")
	if most := c.budget.Most(); most != poolSize*40/100 {
		c.Errorf("at most %d Nodes were updated at a time, want %d", most, poolSize*40/100)
	}
}

func (c *configs) crash(replica string) {
	c.Helper()
	c.Logf("crash %s", replica)
	c.must(c.lab.Do(c.ctx, replica, harness.Crash))
}

// owner returns the replica that holds the slot of the pool; the first one while none does.
func (c *configs) owner() string {
	c.Helper()
	spread, err := assignment.NewSpread(slots, assignment.ByDeployment)
	c.must(err)
	holders, err := c.lab.Holders(c.ctx)
	c.must(err)
	if replica := replicaOf(holders[member.SlotLeaseName(harness.FleetName, spread.Of("", poolName), slots)]); replica != "" {
		return replica
	}
	return harness.Fleet
}
