//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan"
)

var (
	plans    = flag.Int("plans", 4, "changes of TestPlans")
	planSeed = flag.Uint64("plan-seed", 1, "the seed from which TestPlans draws changes")
	planFile = flag.String("plan-table", "", "the file that the table of TestPlans is written to")
)

// plansAtOnce is how many changes of TestPlans are made at the same time.
const plansAtOnce = 10

// change is a change of a pool, its plan, and the machines that were created and deleted.
type change struct {
	pool, words      string
	before, after    *v1alpha1.MachineDeployment
	plan             plan.Plan
	created          int
	deleted          [][]string // in turn, those that were seen at the same time together
	most             int
	took             time.Duration
	deviation        float64
	begun, lastEvent time.Time
}

// TestPlans makes generated changes of MachineDeployments, and compares each with its plan: the
// same machines in the same order, as many at once, and the time of nine in ten within 30 %.
func TestPlans(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "plans", func(o *harness.Options) { o.CloudsimFlags = "--create-latency=500ms --delete-latency=6s" })
	s := newSpace(t, lab, "plans", "")
	s.must(lab.Cloud.Set(t.Context(), `{"bootTime":{"mean":"13s","spread":"3s"}}`))
	dice := rand.New(rand.NewPCG(*planSeed, 1))
	var all []*change
	for i := range *plans {
		all = append(all, drawPlan(dice, fmt.Sprint("p-", i)))
	}
	s.deploy("measured", 6) // so that durations of deletions are known
	s.running("measured", 6)
	s.remove("machinedeployments", "measured")
	for chunk := range slices.Chunk(all, plansAtOnce) {
		var running sync.WaitGroup
		for _, c := range chunk {
			s.deploy(c.pool, c.before.Spec.Replicas, func(d *v1alpha1.MachineDeployment) { d.Spec.Strategy = c.before.Spec.Strategy })
		}
		for _, c := range chunk {
			s.running(c.pool, int(c.before.Spec.Replicas))
			s.settled(c.pool)
			c.plan = s.planned(c)
			running.Go(func() { s.carryOut(c) })
		}
		running.Wait()
		for _, c := range chunk {
			s.remove("machinedeployments", c.pool)
		}
	}
	s.judge(all)
}

// drawPlan draws a pool and its change.
func drawPlan(dice *rand.Rand, pool string) *change {
	c := &change{pool: pool, before: &v1alpha1.MachineDeployment{}}
	limits := []string{"0", "1", "2", "50%"}
	surge, unavailable := intstr.Parse(limits[dice.IntN(4)]), intstr.Parse(limits[dice.IntN(4)])
	if surge.String() == "0" && unavailable.String() == "0" {
		surge = intstr.FromInt32(1)
	}
	c.before.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
		Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
		RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &surge, MaxUnavailable: &unavailable},
		},
	}
	strategy := surge.String() + "/" + unavailable.String()
	if dice.IntN(5) == 0 {
		c.before.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{Type: v1alpha1.RecreateMachineDeploymentStrategyType}
		strategy = "Recreate"
	}
	c.before.Spec.Replicas = int32(1 + dice.IntN(5))
	c.after = c.before.DeepCopy()
	var words []string
	for len(words) == 0 {
		if dice.IntN(3) > 0 {
			metav1.SetMetaDataAnnotation(&c.after.Spec.Template.ObjectMeta, "version", "2")
			words = append(words, "template")
		}
		if c.after.Spec.Replicas = int32(dice.IntN(7)); dice.IntN(2) == 0 {
			c.after.Spec.Replicas = c.before.Spec.Replicas
		}
		if c.after.Spec.Replicas != c.before.Spec.Replicas {
			words = append(words, fmt.Sprintf("replicas %d → %d", c.before.Spec.Replicas, c.after.Spec.Replicas))
		}
	}
	c.words = fmt.Sprintf("%s (%d replicas, %s)", strings.Join(words, ", "), c.after.Spec.Replicas, strategy)
	return c
}

// document returns the change as a user applies it.
func (c *change) document() []byte {
	content, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "MachineDeployment", "metadata": map[string]any{"name": c.pool},
		"spec": map[string]any{
			"replicas": c.after.Spec.Replicas,
			"template": map[string]any{"metadata": map[string]any{"annotations": c.after.Spec.Template.Annotations}},
		},
	})
	if err != nil {
		return nil // it always encodes
	}
	return content
}

// settled waits until a deployment reports that it is rolled out.
func (s *space) settled(pool string) {
	s.Helper()
	s.lasting(pool+" is rolled out", func(ctx context.Context) error {
		if is, err := s.isSettled(ctx, pool); err != nil || !is {
			return fmt.Errorf("it is not: %w", err)
		}
		return nil
	})
}

func (s *space) isSettled(ctx context.Context, pool string) (bool, error) {
	d, err := s.api().MachineDeployments(s.name).Get(ctx, pool, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	v := view.RolloutOf(d, nil)
	return v.Done && v.Total == v.Desired && v.Available == v.Desired, nil
}

// planned returns the plan of a change, as kubectl mcf prints it.
func (s *space) planned(c *change) (p plan.Plan) {
	s.Helper()
	file := filepath.Join(s.TempDir(), c.pool+".json")
	s.must(os.WriteFile(file, c.document(), 0o600))
	out, code := s.mcf("plan", "-f", file, "-o", "json", "--endpoints", filepath.Join(s.lab.Dir, "endpoints.json"))
	if code != 0 {
		s.Fatalf("kubectl mcf plan: exit code %d: %s", code, out)
	}
	s.must(json.Unmarshal([]byte(out), &p))
	return p
}

// carryOut applies a change, and records what happens until it is done.
func (s *space) carryOut(c *change) {
	known, deleted, running := map[types.UID]bool{}, map[types.UID]bool{}, 0
	see := func(isFirst bool) error {
		now, err := s.machines(s.Context(), c.pool)
		if err != nil {
			return err
		}
		var begins []string
		standing, before, run := map[types.UID]bool{}, len(known), 0
		for _, m := range now {
			if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
				run++
			}
			standing[m.UID] = true
			if !known[m.UID] && !isFirst {
				c.created++
				c.lastEvent = time.Now()
			}
			if m.DeletionTimestamp != nil && !deleted[m.UID] {
				deleted[m.UID] = true
				begins = append(begins, m.Name)
			}
		}
		if len(begins) > 0 {
			c.deleted = append(c.deleted, begins)
		}
		if len(begins) > 0 || len(standing) != before || run != running {
			c.lastEvent = time.Now()
		}
		running = run
		known, c.most = standing, max(c.most, len(now))
		return nil
	}
	if err := see(true); err != nil {
		s.Error(err)
		return
	}
	c.begun, c.lastEvent = time.Now(), time.Now()
	_, err := s.api().MachineDeployments(s.name).Patch(s.Context(), c.pool, types.MergePatchType, c.document(), metav1.PatchOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	s.lasting(c.pool+" is changed", func(ctx context.Context) error {
		if err := see(false); err != nil {
			return err
		}
		if is, err := s.isSettled(ctx, c.pool); err != nil || !is || time.Since(c.lastEvent) < 3*time.Second {
			return fmt.Errorf("it is not done: %w", err)
		}
		return nil
	})
	c.took = c.lastEvent.Sub(c.begun)
}

// judge compares all changes with their plans, and logs the table, or writes it to -plan-table.
func (s *space) judge(all []*change) {
	table := "| | change (replicas after it, maxSurge/maxUnavailable) | created | deleted | at once | order | planned | took | " +
		"difference |\n|---|---|---|---|---|---|---|---|---|\n"
	timed, within := 0, 0
	for i, c := range all {
		m := c.plan.Machines
		deleted := len(slices.Concat(c.deleted...))
		if m.Created != c.created || m.Deleted != deleted || m.Most != c.most || !c.plan.Ends {
			s.Errorf("%s: planned %+v, happened: %d created, %d deleted, %d at once", c.words, m, c.created, deleted, c.most)
		}
		order := "same"
		if wrong := c.disorder(); wrong != "" {
			order = "**differs**"
			s.Errorf("%s: %s", c.words, wrong)
		}
		if planned := c.plan.Time.Median.Duration; planned > 0 {
			timed++
			c.deviation = float64(c.took-planned) / float64(planned)
			if c.deviation < 0.3 && c.deviation > -0.3 {
				within++
			}
		}
		table += fmt.Sprintf("| %d | %s | %s | %s | %s | %s | %.1f s | %.1f s | %+.0f %% |\n", i+1, c.words, same(m.Created, c.created),
			same(m.Deleted, deleted), same(m.Most, c.most), order, c.plan.Time.Median.Seconds(), c.took.Seconds(), 100*c.deviation)
	}
	s.Logf("the time of %d of %d changes is within 30 %%\n%s", within, timed, table)
	if *planFile != "" {
		s.must(os.WriteFile(*planFile, []byte(table), 0o600))
	}
	if timed >= 10 && 10*within < 9*timed {
		s.Errorf("the time of %d of %d changes is within 30 %%, want nine in ten", within, timed)
	}
}

// same returns a cell of the table: one number, or what was planned and what happened.
func same(planned, happened int) string {
	if planned == happened {
		return strconv.Itoa(planned)
	}
	return fmt.Sprintf("**%d, not %d**", happened, planned)
}

// disorder returns the first machine that was deleted before one that is planned earlier; "" if
// there is none.
func (c *change) disorder() string {
	at := map[string]time.Duration{}
	for _, step := range c.plan.Steps {
		if step.Do == plan.DeleteMachine && !step.IsNew {
			at[step.Name] = step.After.Duration
		}
	}
	latest := time.Duration(-1)
	for _, batch := range c.deleted {
		next := latest
		for _, name := range batch {
			planned, known := at[name]
			if !known || planned < latest {
				return fmt.Sprintf("machine %s is deleted in turn %v, and planned: %v (planned at all: %t)", name, c.deleted, at, known)
			}
			next = max(next, planned)
		}
		latest = next
	}
	return ""
}
