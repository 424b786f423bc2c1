package orphans

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// fewAPage is the size of pages, small so that lists have several.
const fewAPage = 2

// toCloud is the way of a call of the process to the cloud.
func (p *process) toCloud(ctx context.Context, call fakecloud.Call, send func() error) error {
	isFurther := call.Continue != ""
	if call.Op == driver.OpScope {
		return send()
	}
	if call.Op == driver.OpResources {
		if err := p.send(ctx, "list "+call.Class.Namespace+string(call.Secret["account"])+call.Continue, isFurther); err != nil && isFurther &&
			p.w.broken.partialLists {
			return nil
		} else if err != nil {
			return err
		}
		if !isFurther {
			p.w.countList(call.Class.Namespace + "/" + string(call.Secret["account"]))
		}
		return send()
	}
	if err := p.send(ctx, "delete "+call.Resource.ID, false); err != nil {
		return err
	}
	for _, r := range p.w.cloud.All() {
		if r.ID == call.Resource.ID && r.Gone {
			p.w.report("%s %s was deleted again after it was gone", r.Kind, r.ID)
		}
	}
	if err := send(); err != nil || !p.loses() {
		return err
	}
	return driver.Errorf(driver.OpSweep, driver.Unavailable, "the answer was lost")
}

// countList counts a list of a scope. A suspicion does not become old enough sooner because of
// lists in addition to the usual ones.
func (w *world) countList(scope string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists[scope]++
	if now := time.Now(); now.Sub(w.counted[scope]) >= w.period-w.period/10 {
		w.usual[scope]++
		w.counted[scope] = now
	}
}

// judge compares a deletion that the cloud is about to accept with the promises.
func (w *world) judge(i *fakecloud.Resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	i.Ends = now.Add(time.Duration(w.randomOf("end "+i.ID).IntN(3)) * time.Minute)
	if i.ControlCluster != "ours" {
		w.fail("%s %s of another fleet was deleted", i.Kind, i.ID)
	}
	if age := now.Sub(i.Created); age < w.quarantine {
		w.fail("%s %s was deleted %s after it was created", i.Kind, i.ID, age)
	}
	if ended, had := w.ended[i.MachineUID]; had && !w.surplus[i.ID] && now.Sub(ended) < w.quarantine {
		w.fail("%s %s was deleted %s after its machine had ended", i.Kind, i.ID, now.Sub(ended))
	}
	for _, m := range w.machines() {
		surplus := i.Kind == driver.ResourceVM && m.providerID != "" && m.providerID != i.ID
		if m.uid == i.MachineUID && !surplus {
			w.fail("%s %s of a machine was deleted", i.Kind, i.ID)
		}
		if m.providerID == i.ID {
			w.fail("%s %s is named by machine %s, and was deleted", i.Kind, i.ID, m.name)
		}
		if m.namespace == i.Namespace && w.control.Get("machineclasses", m.namespace, m.class) == nil {
			w.fail("%s %s was deleted in a namespace with a machine without its class", i.Kind, i.ID)
		}
	}
	if w.off[i.Namespace] {
		w.fail("%s %s was deleted in a namespace of another manager", i.Kind, i.ID)
	}
	if w.approved[i.ID] {
		return
	}
	if w.isNodeReady(i.NodeName) {
		w.fail("VM %s with a Node that is Ready was deleted", i.ID)
	}
	w.deletions[i.Namespace] = append(w.deletions[i.Namespace], now)
	// A request takes some seconds, and counts from its reservation on.
	w.deletions[i.Namespace] = slices.DeleteFunc(w.deletions[i.Namespace], func(at time.Time) bool {
		return now.Sub(at) >= time.Hour-time.Minute
	})
	if n := len(w.deletions[i.Namespace]); n > w.limit {
		w.fail("%d resources of namespace %s were deleted in an hour, the limit is %d", n, i.Namespace, w.limit)
	}
}

// create creates resources for a machine, whether it exists or not.
func (w *world) create(kind driver.ResourceKind, namespace, account, machine string, uid types.UID) *fakecloud.Resource {
	w.mu.Lock()
	w.count++
	count := w.count
	w.mu.Unlock()
	i := fakecloud.Resource{Account: account, ControlCluster: "ours"}
	i.Resource = driver.Resource{Kind: kind, ID: fmt.Sprintf("%s-%d", kind, count), Namespace: namespace, Machine: machine, MachineUID: uid}
	if kind == driver.ResourceVM {
		i.NodeName = "node-" + strconv.Itoa(count)
	}
	return w.cloud.Add(i)
}

// errDead is the error of requests of a process that was killed.
var errDead = errors.New("the process was killed")
