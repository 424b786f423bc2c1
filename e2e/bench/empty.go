package main

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// emptied is how many machines are deleted one after the other.
const emptied = 10

// measureEmpty deletes machines whose Nodes have no pods, one by one, and measures the time without
// that of the cloud.
func measureEmpty(ctx context.Context, lab *harness.Lab, s sample) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Standstill)
	defer cancel()
	namespace := fmt.Sprintf("empty-%d", os.Getpid())
	if err := lab.Prepare(ctx, namespace, ""); err != nil {
		return err
	}
	api := lab.Machines.MachineV1alpha1().Machines(namespace)
	var names []string
	for i := range emptied {
		m := &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", namespace, i)},
			Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: harness.ClassName}},
		}
		if _, err := api.Create(ctx, m, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create a machine: %w", err)
		}
		names = append(names, m.Name)
	}
	if err := lab.Running(ctx, namespace, emptied); err != nil {
		return err
	}
	position, err := lab.AuditEnd()
	if err != nil {
		return err
	}
	for i, name := range names {
		if err := api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete a machine: %w", err)
		}
		if err := lab.Running(ctx, namespace, emptied-i-1); err != nil {
			return err
		}
	}
	requests, err := lab.Requests(position)
	if err != nil {
		return err
	}
	calls, err := lab.Cloud.Calls()
	if err != nil {
		return err
	}
	var slowest pair
	for _, name := range names {
		took := durationOf(name, requests)
		if took <= 0 {
			return fmt.Errorf("the audit log has no complete deletion of machine %s", name)
		}
		cloud := timeAtCloud(name, calls)
		if beyond := (took - cloud).Seconds(); beyond > slowest.value {
			slowest = pair{value: beyond, floor: cloud.Seconds()}
		}
	}
	s["delete_empty_beyond_cloud_seconds"] = slowest
	return nil
}

// durationOf is the time from a machine's deletion until the fleet's last write of it, which
// removes the finalizer.
func durationOf(name string, requests []harness.Request) time.Duration {
	var begin, end time.Time
	for _, r := range requests {
		switch {
		case r.Resource != "machines" || r.Name != name || r.Subresource != "":
		case r.Verb == "delete" && begin.IsZero():
			begin = r.At.Add(-r.Took)
		case r.IsFleet() && r.IsWrite() && r.At.After(end):
			end = r.At
		}
	}
	return end.Sub(begin)
}

// timeAtCloud is the total time of the calls to delete the VM.
func timeAtCloud(name string, calls []cloudapi.Call) (took time.Duration) {
	for _, c := range calls {
		if c.Operation == cloudapi.OpDeleteInstance && c.Machine == name {
			took += c.End.Sub(c.Start)
		}
	}
	return took
}
