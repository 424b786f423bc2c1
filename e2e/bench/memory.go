package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/preload"
)

// perDeployment is how many machines each MachineDeployment has while memory is measured.
const perDeployment = 50

// many is the namespace of the machines that memory is measured with.
const many = "many"

// measureMemory compares the live heap of replicas with the number of machines that each owns, for
// fleets of 1, 2 and 4, and likewise the bytes that they receive when machines change. The cost of
// a machine is measured with a fleet of one, without and with machines.
func measureMemory(ctx context.Context, lab *harness.Lab, count int, s sample) error {
	if err := scale(ctx, lab, 1); err != nil {
		return err
	}
	before, err := ownedMachines(ctx, lab)
	if err != nil {
		return err
	}
	fixed, err := liveHeap(ctx, lab, harness.Fleet)
	if err != nil {
		return err
	}
	var position harness.AuditPosition
	labelled, err := standStill(ctx, lab, func() error {
		if err := addMachines(ctx, lab, preload.Load{Namespace: many, Deployments: count / perDeployment, Machines: perDeployment}); err != nil {
			return err
		}
		var err error
		position, err = lab.AuditEnd()
		return err
	})
	if err != nil {
		return err
	}
	s["mcm_taken_over_seconds"] = pair{value: labelled.Seconds()}
	var cost float64
	var alone traffic
	for _, size := range []int{1, 2, 4} {
		if err := scale(ctx, lab, size); err != nil {
			return err
		}
		owned, err := ownedMachines(ctx, lab)
		if err != nil {
			return err
		}
		for i := range size {
			replica := replicaName(i)
			if err := rests(ctx, lab, replica); err != nil {
				return err
			}
			heap, err := liveHeap(ctx, lab, replica)
			if err != nil {
				return err
			}
			if size == 1 {
				cost = (heap - fixed) / float64(owned[replica]-before[replica])
				s["heap_per_machine_kb"] = pair{value: cost / 1e3}
			}
			rest := (heap - float64(owned[replica])*cost) / 1e6
			name := fmt.Sprintf("heap_fixed_mb_of_%d", size)
			s[name] = pair{value: max(s[name].value, rest)}
			fmt.Printf("%d replicas: %s owns %d machines, %.1f MB live heap, %.1f MB beyond its machines\n",
				size, replica, owned[replica], heap/1e6, rest)
		}
		if err := ownWatches(ctx, lab, position); err != nil {
			return err
		}
		most, err := receivedForOwn(ctx, lab, size)
		if err != nil {
			return err
		}
		if size == 1 {
			alone = most
		} else {
			s[fmt.Sprintf("watch_bytes_ratio_of_%d", size)] = pair{value: max(most.control/alone.control, most.target/alone.target)}
		}
	}
	return nil
}

func replicaName(i int) string { return fmt.Sprintf("fleet-%d", i) }

// ownedMachines counts all machines by the replica that holds their slot.
func ownedMachines(ctx context.Context, lab *harness.Lab) (map[string]int, error) {
	var all []v1alpha1.Machine
	options := metav1.ListOptions{Limit: 1000}
	for {
		list, err := lab.Machines.MachineV1alpha1().Machines("").List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list machines: %w", err)
		}
		all = append(all, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			return ownedOf(ctx, lab, all)
		}
	}
}

// ownedOf counts machines by the replica that holds their slot.
func ownedOf(ctx context.Context, lab *harness.Lab, machines []v1alpha1.Machine) (map[string]int, error) {
	holders, err := lab.Holders(ctx)
	if err != nil {
		return nil, err
	}
	owned := map[string]int{}
	for _, m := range machines {
		slot, err := strconv.Atoi(m.Labels[v1alpha1.LabelSlot])
		if err != nil {
			return nil, fmt.Errorf("machine %s has no slot: %w", m.Name, err)
		}
		replica, _, _ := strings.Cut(holders[slotLeaseName(slot)], "_")
		owned[replica]++
	}
	return owned, nil
}

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// rests waits until a replica has had almost nothing in flight for some seconds: the memory of the
// first passes over thousands of machines is not the cost of these machines.
func rests(ctx context.Context, lab *harness.Lab, replica string) error {
	const few, seconds = 2, 5
	quiet := 0
	return harness.EventuallyEvery(ctx, time.Second, replica+" rests", func(ctx context.Context) error {
		inFlight, err := lab.Metric(ctx, replica, "mcf_in_flight")
		if err != nil {
			return err
		}
		if quiet++; inFlight > few {
			quiet = 0
		}
		if quiet < seconds {
			return fmt.Errorf("%.0f requests and passes are in flight, at most %d were for %d s", inFlight, few, quiet)
		}
		return nil
	})
}

// liveHeap forces a garbage collection of a replica and returns its heap after that, in bytes.
func liveHeap(ctx context.Context, lab *harness.Lab, replica string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, lab.Endpoint(replica)+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err != nil {
		return 0, fmt.Errorf("get the heap of %s: %w", replica, err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("get the heap of %s: %w", replica, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, fmt.Errorf("get the heap of %s: %w", replica, err)
	}
	found := heapAlloc.FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("get the heap of %s: unexpected answer %s: %.200s", replica, answer.Status, text)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}
