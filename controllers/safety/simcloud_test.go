package safety

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// fewAPage is the size of pages, small so that lists have several.
const fewAPage = 2

// item is a resource at the simulated cloud.
type item struct {
	driver.Resource

	account, fleet string
	made           time.Time
	surplus        bool      // it is a second VM of a machine, which has named another one since before it was made
	ends           time.Time // when an accepted deletion has ended; zero for none
	gone           bool      // it was reported
}

// cloud is a Sweeper whose resources are in memory. Requests go through the network of a process.
type cloud struct {
	w *world
	p *process
}

// sweeperOf returns the cloud as a process reaches it.
func (w *world) sweeperOf(p *process) driver.Sweeper { return &cloud{w: w, p: p} }

func (*cloud) Scope(req driver.ScopeRequest) (string, error) {
	return string(req.Secret["account"]), nil
}

func (c *cloud) ListResources(ctx context.Context, req driver.ListResourcesRequest) (answer driver.ListResourcesResponse, err error) {
	from, _ := strconv.Atoi(req.Continue)
	if err := c.p.send(ctx, "list "+req.Class.Namespace+string(req.Secret["account"])+req.Continue, req.Continue != ""); err != nil {
		if c.w.broken.partialLists && from > 0 {
			return driver.ListResourcesResponse{}, nil
		}
		return answer, err
	}
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if req.Continue == "" {
		w.countList(req.Class.Namespace + "/" + string(req.Secret["account"]))
	}
	var all []driver.Resource
	for _, i := range w.items {
		if i.account == string(req.Secret["account"]) && i.fleet == req.ControlCluster && i.Namespace == req.Class.Namespace && i.ends.IsZero() {
			all = append(all, i.Resource)
		}
	}
	answer.Items = all[min(from, len(all)):min(from+fewAPage, len(all))]
	if from+fewAPage < len(all) {
		answer.Continue = strconv.Itoa(from + fewAPage)
	}
	return answer, nil
}

// countList counts a list of a scope. w.mu is held. A suspicion does not become old enough sooner because of lists beside the usual ones.
func (w *world) countList(scope string) {
	w.lists[scope]++
	if now := time.Now(); now.Sub(w.counted[scope]) >= w.period-w.period/10 {
		w.usual[scope]++
		w.counted[scope] = now
	}
}

func (c *cloud) DeleteResource(ctx context.Context, req driver.DeleteResourceRequest) (answer driver.DeleteResourceResponse, err error) {
	if err := c.p.send(ctx, "delete "+req.Resource.ID, false); err != nil {
		return answer, err
	}
	answer = c.w.deleteAt(req)
	if c.p.loses() {
		return driver.DeleteResourceResponse{}, driver.Errorf(driver.OpSweep, driver.Unavailable, "the answer was lost")
	}
	return answer, nil
}

// deleteAt is the cloud's part of a deletion.
func (w *world) deleteAt(req driver.DeleteResourceRequest) (answer driver.DeleteResourceResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answer.Gone = true
	for _, i := range w.items {
		if i.ID == req.Resource.ID && i.MachineUID == req.Resource.MachineUID && i.fleet == req.ControlCluster {
			if i.ends.IsZero() {
				w.judge(i)
				i.ends = time.Now().Add(time.Duration(w.randomOf("end "+i.ID).IntN(3)) * time.Minute)
			}
			answer.Gone = !time.Now().Before(i.ends)
			if i.gone {
				w.fail("%s %s was deleted again after it was gone", i.Kind, i.ID)
			}
			i.gone = answer.Gone
		}
	}
	return answer
}

// judge compares a deletion that the cloud is about to accept with the promises. w.mu is held.
func (w *world) judge(i *item) {
	now := time.Now()
	if i.fleet != "ours" {
		w.fail("%s %s of another fleet was deleted", i.Kind, i.ID)
	}
	if age := now.Sub(i.made); age < w.quarantine {
		w.fail("%s %s was deleted %s after it was made", i.Kind, i.ID, age)
	}
	if ended, had := w.ended[i.MachineUID]; had && !i.surplus && now.Sub(ended) < w.quarantine {
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
	w.deletions[i.Namespace] = slices.DeleteFunc(w.deletions[i.Namespace], func(at time.Time) bool { return now.Sub(at) >= time.Hour-time.Minute })
	if n := len(w.deletions[i.Namespace]); n > w.limit {
		w.fail("%d resources of namespace %s were deleted in an hour, the limit is %d", n, i.Namespace, w.limit)
	}
}

// create makes resources for a machine, whether it exists or not.
func (w *world) create(kind driver.ResourceKind, namespace, account, machine, uid string) *item {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	i := &item{account: account, fleet: "ours", made: time.Now()}
	i.Resource = driver.Resource{Kind: kind, ID: fmt.Sprintf("%s-%d", kind, w.count), Namespace: namespace, Machine: machine}
	i.MachineUID = uidOf(uid)
	if kind == driver.ResourceVM {
		i.NodeName = "node-" + strconv.Itoa(w.count)
	}
	w.items = append(w.items, i)
	return i
}

// end ends a resource by another hand than the sweep's.
func (w *world) end(i *item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i.ends = time.Now()
}

// errDead is the error of requests of a process that was killed.
var errDead = errors.New("the process was killed")
