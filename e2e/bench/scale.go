package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// scaleTimeout bounds the work on all machines of one size by one number of replicas.
const scaleTimeout = time.Hour

// scaleSurge is how many machines of a MachineDeployment are replaced at the same time.
const scaleSurge = 10

// measureScale creates, rolls and deletes many machines: first by the plain loop, and then by
// fleets of different numbers of replicas.
func measureScale(ctx context.Context, lab *harness.Lab, o options, s sample) error {
	sizes, counts, err := o.scales()
	if err != nil {
		return err
	}
	for _, size := range sizes {
		floor, err := size.floor(ctx, lab)
		if err != nil {
			return err
		}
		for _, replicas := range counts {
			if err := scale(ctx, lab, replicas); err != nil {
				return err
			}
			steps, err := size.fleet(ctx, lab, replicas)
			if err != nil {
				return err
			}
			fmt.Printf("\n%d machines in %d MachineDeployments, %d replicas:\n\n%s",
				size.total(), size.deployments, replicas, stepTable(floor, steps))
			for i, step := range steps {
				step.addTo(s, fmt.Sprintf("_of_%d_by_%d", size.total(), replicas), floor[i])
			}
		}
	}
	return nil
}

// scales returns the sizes and the numbers of replicas to measure.
func (o options) scales() (sizes []load, replicas []int, err error) {
	if sizes, err = parseSizes(o.sizes); err != nil {
		return nil, nil, err
	}
	replicas, err = parseNumbers(o.fleets)
	return sizes, replicas, err
}

// parseSizes reads numbers of machines and of MachineDeployments, as "1000x20,5000x100".
func parseSizes(text string) (sizes []load, err error) {
	for part := range strings.SplitSeq(text, ",") {
		total, deployments, ok := strings.Cut(part, "x")
		machines, err1 := strconv.Atoi(total)
		n, err2 := strconv.Atoi(deployments)
		if !ok || err1 != nil || err2 != nil || n < 1 || machines < n || machines%n != 0 {
			return nil, fmt.Errorf("--scale-sizes: expected a multiple of machines and MachineDeployments, such as 1000x20, got %q", part)
		}
		sizes = append(sizes, load{deployments: n, machines: machines / n, surge: intstr.FromInt32(scaleSurge)})
	}
	return sizes, nil
}

// parseNumbers reads numbers of replicas.
func parseNumbers(text string) (numbers []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--scale-replicas: expected positive numbers, separated by commas, got %q", part)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// step is the measurement of one of create, roll and delete.
type step struct {
	what      string
	took      time.Duration
	machines  int
	cpu       map[string]time.Duration // by kind of process
	resident  float64                  // bytes of the largest replica, at the end
	requests  []harness.Request
	reactions []time.Duration // from a machine's create or delete to the call of the cloud
}

// observe measures while do runs.
func (l load) observe(ctx context.Context, lab *harness.Lab, what string, do func() (time.Duration, error)) (s step, err error) {
	s = step{what: what, machines: l.total()}
	position, err := lab.AuditEnd()
	if err != nil {
		return s, err
	}
	before, err := cpuByKind(lab)
	if err != nil {
		return s, err
	}
	if s.took, err = do(); err != nil {
		return s, err
	}
	if err := pause(ctx, settled); err != nil { // late writes are counted with what caused them
		return s, err
	}
	after, err := cpuByKind(lab)
	if err != nil {
		return s, err
	}
	for kind, used := range after {
		after[kind] = used - before[kind]
	}
	s.cpu = after
	s.requests, err = lab.Requests(position)
	return s, err
}

// fleet has the fleet create, roll and delete the machines.
func (l load) fleet(ctx context.Context, lab *harness.Lab, replicas int) (steps []step, err error) {
	ctx, cancel := context.WithTimeout(ctx, scaleTimeout)
	defer cancel()
	namespace := fmt.Sprintf("scale-%d-%d-%d", os.Getpid(), l.total(), replicas)
	if err := lab.Prepare(ctx, namespace, ""); err != nil {
		return nil, err
	}
	api := lab.Machines.MachineV1alpha1().MachineDeployments(namespace)
	took := func(p pair, err error) (time.Duration, error) {
		return time.Duration(p.value * float64(time.Second)), err
	}
	for _, one := range []struct {
		what string
		do   func() (time.Duration, error)
	}{
		{"create", func() (time.Duration, error) {
			return took(timed(ctx, lab, namespace, run(l.total()), func() error { return l.deploy(ctx, lab, namespace) }))
		}},
		{"roll", func() (time.Duration, error) {
			r, err := l.roll(ctx, lab, namespace)
			if err != nil {
				return 0, err
			}
			return r.took(), nil
		}},
		{"delete", func() (time.Duration, error) {
			return took(timed(ctx, lab, namespace, gone, func() error {
				// Its deletes are one after the other, which may take a busy API server longer
				// than its timeout.
				return harness.Eventually(ctx, "the MachineDeployments are deleted", func(ctx context.Context) error {
					return api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
				})
			}))
		}},
	} {
		if err := rebalanced(ctx, lab); err != nil { // a slot that moves causes a new list of its objects
			return nil, err
		}
		fmt.Printf("%s %d machines, %d replicas\n", one.what, l.total(), replicas)
		step, err := l.observe(ctx, lab, one.what, one.do)
		if err != nil {
			return nil, err
		}
		if step.resident, err = largestReplica(ctx, lab); err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	calls, err := lab.Cloud.Calls()
	for i := range steps {
		steps[i].reactions = reactions(steps[i].requests, calls, namespace)
	}
	return steps, err
}

// floor has the plain loop create, roll and delete the machines.
func (l load) floor(ctx context.Context, lab *harness.Lab) (steps []step, err error) {
	created := make([]*v1alpha1.Machine, l.total())
	err = onFloor(ctx, lab, fmt.Sprintf("scale-floor-%d-%d", os.Getpid(), l.total()), func(ctx context.Context, f *floor) error {
		for _, one := range []struct {
			what string
			do   func(i int) error
		}{
			{"create", func(i int) (err error) { created[i], err = f.create(ctx, i); return err }},
			{"delete", func(i int) error { return f.delete(ctx, created[i]) }},
		} {
			fmt.Printf("%s %d machines, the floor\n", one.what, l.total())
			step, err := l.observe(ctx, lab, one.what, func() (time.Duration, error) {
				start := time.Now()
				err := f.all(l.total(), one.do)
				return time.Since(start), err
			})
			if err != nil {
				return err
			}
			steps = append(steps, step)
		}
		fmt.Printf("roll %d machines, the floor\n", l.total())
		step, err := l.observe(ctx, lab, "roll", func() (time.Duration, error) {
			start := time.Now()
			err := f.roll(ctx, l.total(), l.deployments*scaleSurge, l.machines/scaleSurge)
			return time.Since(start), err
		})
		steps = slices.Insert(steps, 1, step)
		return err
	})
	return steps, err
}

// reactions returns the times from the creates and deletes of a namespace's Machines to the calls
// of the cloud. Both have the clock of this computer.
func reactions(requests []harness.Request, calls []cloudapi.Call, namespace string) (all []time.Duration) {
	first := map[string]time.Time{}
	for _, c := range calls {
		key := string(c.Operation) + " " + c.Machine
		if _, known := first[key]; !known {
			first[key] = c.Start
		}
	}
	operations := map[string]cloudapi.Operation{"create": cloudapi.OpCreateInstance, "delete": cloudapi.OpDeleteInstance}
	for _, r := range requests {
		operation := operations[r.Verb]
		if r.Resource != "machines" || r.Subresource != "" || r.Namespace != namespace || operation == "" || r.Name == "" || r.Code >= 300 {
			continue
		}
		if called, known := first[string(operation)+" "+r.Name]; known {
			all = append(all, called.Sub(r.At))
		}
	}
	return all
}

// addTo adds the rows of a step.
func (s step) addTo(all sample, suffix string, floor step) {
	machines := float64(s.machines)
	row := func(name string, value, floor float64) {
		all["scale_"+s.what+"_"+name+suffix] = pair{value: value, floor: floor}
	}
	row("time_ratio", s.took.Seconds()/floor.took.Seconds(), 0)
	row("cpu_ms_per_machine", s.cpu["fleet"].Seconds()*1e3/machines, 0)
	writes, tokens, _ := s.own()
	floorWrites := map[string]float64{"create": floorCreateWrites, "roll": floorCreateWrites + floorDeleteWrites, "delete": floorDeleteWrites}
	row("writes_per_machine", writes, floorWrites[s.what])
	if s.what != "delete" {
		row("token_writes_per_machine", tokens, floorTokenWrites)
	}
}

// own returns the fleet's requests for each machine.
func (s step) own() (writes, tokens, reads float64) {
	each := 1 / float64(s.machines)
	for _, r := range s.requests {
		switch {
		case !r.IsFleet() || !counts(r):
		case r.IsWrite() && r.IsToken():
			tokens += each
		case r.IsWrite():
			writes += each
		default:
			reads += each
		}
	}
	return writes, tokens, reads
}

// stepTable returns a table of the fleet's steps, with the floor's.
func stepTable(floor, steps []step) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STEP\tSECONDS\tFLOOR\tRATIO\tOWN WRITES\tTOKENS\tREADS\tALL\tREACTION P50\tP99\tLARGEST REPLICA\t")
	for i, s := range steps {
		writes, tokens, reads := s.own()
		all := 0
		for _, r := range s.requests {
			if counts(r) {
				all++
			}
		}
		p50, p99 := "-", "-"
		if len(s.reactions) > 0 {
			p50, p99 = fmt.Sprint(percentile(s.reactions, 50).Round(time.Millisecond)),
				fmt.Sprint(percentile(s.reactions, 99).Round(time.Millisecond))
		}
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t%s\t%.0f MB\t\n", s.what, s.took.Seconds(), floor[i].took.Seconds(),
			s.took.Seconds()/floor[i].took.Seconds(), writes, tokens, reads, float64(all)/float64(s.machines), p50, p99, s.resident/1e6)
	}
	_ = w.Flush() // a strings.Builder returns no errors
	text.WriteString("\nms of CPU for each machine, by process, and those of the floor in parentheses:\n\n")
	kinds := slices.Sorted(maps.Keys(steps[0].cpu))
	fmt.Fprintln(w, "STEP\t"+strings.ToUpper(strings.Join(kinds, "\t"))+"\t")
	for i, s := range steps {
		each := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(s.machines) }
		fmt.Fprint(w, s.what, "\t")
		for _, kind := range kinds {
			fmt.Fprintf(w, "%.1f (%.1f)\t", each(s.cpu[kind]), each(floor[i].cpu[kind]))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	return text.String()
}

// cpuByKind returns the CPU time that the processes of the lab have used, by their kind.
func cpuByKind(lab *harness.Lab) (map[string]time.Duration, error) {
	pids, err := lab.Pids()
	if err != nil {
		return nil, err
	}
	used := map[string]time.Duration{}
	for name, pid := range pids {
		used[kindOfProcess(name)] += harness.CPUTime(pid)
	}
	return used, nil
}

func kindOfProcess(name string) string {
	switch {
	case strings.HasPrefix(name, "driver-"):
		return "drivers"
	case strings.HasPrefix(name, "fleet-"):
		return "fleet"
	case strings.Contains(name, "etcd"):
		return "etcd"
	case strings.HasSuffix(name, "kube-apiserver"):
		return "kube-apiserver"
	case strings.HasSuffix(name, "kube-controller-manager"):
		return "kube-controller-manager"
	case name == "cloudsim":
		return name
	default:
		return "others"
	}
}

// largestReplica returns the RSS of the largest replica, in bytes.
func largestReplica(ctx context.Context, lab *harness.Lab) (most float64, err error) {
	replicas, err := lab.Replicas(ctx)
	for _, replica := range replicas {
		rss, failed := lab.Metric(ctx, replica, "process_resident_memory_bytes")
		most, err = max(most, rss), errors.Join(err, failed)
	}
	return most, err
}
