package namespacelease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease/policy"
)

const (
	// leaseWorlds is the number of generated worlds, with the seeds 1, 2, 3 …: a failure names its
	// own.
	leaseWorlds = 200
	worldSlots  = 4
	// prompt is the time within which a namespace is served whose Leases are free: watches lag by at
	// most a second each.
	prompt = 5 * time.Second
)

// leaseWorld is a fleet of replicas, two namespaces with roots that are created and deleted, a
// manager in each that starts and stops, and a user who edits Leases.
type leaseWorld struct {
	t        *testing.T
	dice     *rand.Rand
	server   *apiserver.Server
	replicas []*replica
	roots    map[Key]bool
	managers map[string]bool // the namespaces with a live manager

	mu      sync.Mutex
	changed map[string]time.Time // time of the last change of each Lease
	writes  int                  // number of writes of the fleet
}

// replica is the caller of NamespaceLeases in a process of the fleet: it calls Served once for each
// root, and again only after the root was rejected and the Leases have changed hands, or when its
// slot is opened.
type replica struct {
	world  *leaseWorld
	leases *NamespaceLeases

	mu        sync.Mutex
	open      map[int]bool
	suspended bool
	waiting   map[Key]bool
	served    map[Key]bool
}

func (r *replica) Admit(ctx context.Context, key Key) (context.Context, func(), bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return ctx, func() {}, r.open[key.Slot] && !r.suspended
}

// enter is a pass for a root.
func (r *replica) enter(root Key) {
	if _, _, ok := r.Admit(r.world.t.Context(), root); !ok {
		return
	}
	r.mu.Lock()
	r.waiting[root] = true // before the call: the awaited change may happen during it
	r.mu.Unlock()
	if r.leases.Served(root.Namespace, root.Slot) {
		r.mu.Lock()
		delete(r.waiting, root)
		r.served[root] = true
		r.mu.Unlock()
	}
}

// leasesChanged enters the roots again that were rejected.
func (r *replica) leasesChanged(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for root := range r.waiting {
		if root.Namespace == namespace {
			delete(r.waiting, root)
			go r.enter(root)
		}
	}
}

// opened enters the roots of slots. The caller must not hold a lock.
func (r *replica) opened(slots ...int) {
	for root := range r.world.roots {
		if slices.Contains(slots, root.Slot) {
			go r.enter(root)
		}
	}
	r.leases.Opened(slots)
}

func (w *leaseWorld) ownerOf(slot int) *replica {
	for _, r := range w.replicas {
		if r.open[slot] {
			return r
		}
	}
	return nil
}

func (w *leaseWorld) namespaces() []string { return []string{"0", "1"} } // each in the slot of that number

// as returns a client of the API server, whose watches lag. A live manager must never lose a Lease.
func (w *leaseWorld) as(who string, lag time.Duration) kubernetes.Interface {
	return w.server.Late(lag, func(r apiserver.Request, send func() error) error {
		if r.Resource != "leases" || r.Verb != "create" && r.Verb != "update" {
			return send()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		name := r.Namespace + "/" + r.Name
		age, before, unchanged := time.Since(w.changed[name]), w.holder(r.Namespace, r.Name), w.server.Get("leases", r.Namespace, r.Name)
		if err := send(); err != nil || w.server.Get("leases", r.Namespace, r.Name) == unchanged {
			return err
		}
		if before != "" && before != w.holder(r.Namespace, r.Name) && who == "fleet" && before != who && age < policy.Unchanged {
			w.t.Errorf("Lease %s is taken from %s, which has changed it %s ago", name, before, age)
		}
		if who == "fleet" {
			w.writes++
		}
		w.changed[name] = time.Now()
		return nil
	}).Core
}

// holder returns the holder of a Lease; "" when there is none.
func (w *leaseWorld) holder(namespace, name string) string {
	if lease := apiserver.Read[coordinationv1.Lease](w.server, "leases", namespace, name); lease != nil {
		return holderOf(lease)
	}
	return ""
}

func newLeaseWorld(t *testing.T, seed uint64) *leaseWorld {
	t.Helper()
	w := &leaseWorld{
		t: t, dice: rand.New(rand.NewPCG(seed, 0)), server: apiserver.Recording(), roots: map[Key]bool{}, managers: map[string]bool{},
		changed: map[string]time.Time{},
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	for range 3 {
		r := &replica{world: w, open: map[int]bool{}, waiting: map[Key]bool{}, served: map[Key]bool{}}
		lag := time.Duration(w.dice.IntN(1000)) * time.Millisecond
		var err error
		r.leases, err = New(Config{
			Client: w.as("fleet", lag), Metadata: w.server.Metadata(), Fleet: "fleet", Gate: r, Clock: clock.RealClock{},
			SlotOf: func(namespace string) int { return int(namespace[0] - '0') },
			Refused: func(refused Key, why Refusal, _ map[types.UID]bool) map[types.UID]bool {
				if why.Other != "manager of "+refused.Namespace {
					t.Errorf("%s is refused for %q", refused, why.Other)
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.leases.OnChange(r.leasesChanged)
		if err := r.leases.Start(ctx); err != nil {
			t.Fatal(err)
		}
		running.Go(func() { r.leases.Run(ctx) })
		w.replicas = append(w.replicas, r)
	}
	for slot := range worldSlots {
		w.handOver(slot)
	}
	for _, namespace := range w.namespaces() {
		running.Go(func() { w.manage(ctx, namespace) })
	}
	return w
}

// manage is a manager, which takes what is free and renews what it has, like client-go's elector.
func (w *leaseWorld) manage(ctx context.Context, namespace string) {
	holder, duration := "manager of "+namespace, int32(15)
	leases := w.as("manager", 0).CoordinationV1().Leases(namespace)
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.mu.Lock()
		lives := w.managers[namespace]
		w.mu.Unlock()
		for _, name := range names() {
			if !lives {
				continue
			}
			spec := coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &duration, RenewTime: new(metav1.NowMicro())}
			if lease, err := leases.Get(ctx, name, metav1.GetOptions{}); err != nil {
				_, _ = leases.Create(ctx,
					&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}, metav1.CreateOptions{})
			} else if before := holderOf(lease); before == "" || before == holder {
				lease.Spec = spec
				_, _ = leases.Update(ctx, lease, metav1.UpdateOptions{})
			}
		}
	}
}

// setManager starts or stops the manager of a namespace. One that stops releases its Leases; one
// that dies does not.
func (w *leaseWorld) setManager(namespace string, lives, releases bool) {
	w.mu.Lock()
	w.managers[namespace] = lives
	w.mu.Unlock()
	if releases {
		w.byHand(namespace, func(lease *coordinationv1.Lease) bool { return holderOf(lease) == "manager of "+namespace })
	}
}

// byHand clears the holder of Leases.
func (w *leaseWorld) byHand(namespace string, which func(*coordinationv1.Lease) bool) {
	for _, name := range names() {
		apiserver.Change(w.server, "leases", namespace, name, func(lease *coordinationv1.Lease) {
			if which(lease) {
				lease.Spec.HolderIdentity = new("")
			}
		})
	}
}

// handOver hands a slot over to some replica, or to the same one again.
func (w *leaseWorld) handOver(slot int) {
	next := w.replicas[w.dice.IntN(len(w.replicas))]
	for _, r := range w.replicas {
		r.mu.Lock()
		r.open[slot] = r == next
		for root := range r.waiting {
			if root.Slot == slot {
				delete(r.waiting, root)
			}
		}
		r.mu.Unlock()
	}
	next.opened(slot)
}

// suspend stops a replica for a while.
func (w *leaseWorld) suspend(r *replica, d time.Duration) {
	set := func(suspended bool) (open []int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.suspended = suspended
		for slot, is := range r.open {
			if is {
				open = append(open, slot)
			}
		}
		return open
	}
	set(true)
	time.Sleep(d)
	r.opened(set(false)...)
}

// setRoot creates or deletes a root. No replica is notified of a deletion.
func (w *leaseWorld) setRoot(root Key, exists bool) {
	if w.roots[root] == exists {
		return
	}
	name := strconv.Itoa(root.Slot)
	if exists {
		apiserver.Add(w.server, &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: root.Namespace, Name: name}})
		w.roots[root] = true
		go w.ownerOf(root.Slot).enter(root)
	} else {
		w.server.Remove("machinedeployments", root.Namespace, name)
		delete(w.roots, root)
		for _, r := range w.replicas {
			r.mu.Lock()
			delete(r.waiting, root)
			r.mu.Unlock()
		}
	}
}

// act executes a random action.
func (w *leaseWorld) act() {
	namespace := w.namespaces()[w.dice.IntN(2)]
	switch root := (Key{namespace, w.dice.IntN(worldSlots)}); w.dice.IntN(8) {
	case 0, 1:
		w.setRoot(root, true)
	case 2:
		for slot := range worldSlots {
			w.setRoot(Key{namespace, slot}, false)
		}
	case 3:
		w.handOver(root.Slot)
	case 4:
		w.suspend(w.replicas[w.dice.IntN(len(w.replicas))], time.Duration(w.dice.IntN(20))*time.Second)
	case 5:
		w.setManager(namespace, w.dice.IntN(2) == 0, w.dice.IntN(2) == 0)
	case 6:
		w.byHand(namespace, func(*coordinationv1.Lease) bool { return w.dice.IntN(2) == 0 })
	case 7:
		for _, name := range names() {
			if w.dice.IntN(2) == 0 {
				w.server.Remove("leases", namespace, name)
			}
		}
	}
	pause := []time.Duration{0, time.Second, 7 * time.Second, 40 * time.Second, 11 * time.Minute}
	time.Sleep(pause[w.dice.IntN(len(pause))])
}

// isServed fails unless the fleet holds the Leases of all namespaces with roots, and the holders of
// the roots' slots serve them.
func (w *leaseWorld) isServed(when string) {
	synctest.Wait()
	for root := range w.roots {
		if got := w.holders(root.Namespace); got != [2]string{"fleet", "fleet"} {
			w.t.Errorf("%s namespace %s has roots, and its Leases have the holders %q", when, root.Namespace, got)
		}
		r := w.ownerOf(root.Slot)
		r.mu.Lock()
		if !r.served[root] || r.waiting[root] {
			w.t.Errorf("%s the root %s is not served", when, root)
		}
		r.mu.Unlock()
	}
}

func (w *leaseWorld) holders(namespace string) (holders [2]string) {
	for i, name := range names() {
		holders[i] = w.holder(namespace, name)
	}
	return holders
}

// Regardless of what happens to Leases, roots, slots and managers: when changes stop, a namespace
// with roots is served within seconds, the Leases of one without roots are released within ten
// minutes, and nothing else is written.
func TestEveryNamespaceWithRootsIsServedInTheEnd(t *testing.T) {
	for seed := range uint64(worlds.Some(leaseWorlds)) {
		t.Run(fmt.Sprintf("seed %d", seed+1), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLeaseWorld(t, seed+1)
				for range 12 {
					w.act()
				}
				for _, namespace := range w.namespaces() {
					w.setManager(namespace, false, w.dice.IntN(2) == 0)
				}
				time.Sleep(policy.Unchanged + prompt)
				w.isServed("when all managers have died,")
				time.Sleep(policy.RecheckEvery + prompt)
				for _, namespace := range w.namespaces() {
					free := true
					for slot := range worldSlots {
						free = free && !w.roots[Key{namespace, slot}]
					}
					if got := w.holders(namespace); free && slices.Contains(got[:], "fleet") {
						t.Errorf("namespace %s has no roots, and its Leases have the holders %q", namespace, got)
					}
				}
				before := w.writes
				time.Sleep(time.Hour)
				if w.writes != before {
					t.Errorf("%d writes of Leases in an hour without changes", w.writes-before)
				}
				for _, namespace := range w.namespaces() {
					w.setRoot(Key{namespace, w.dice.IntN(worldSlots)}, true)
				}
				time.Sleep(prompt)
				w.isServed("when there is another root,")
				if got := w.writes - before; got > 2*len(w.namespaces()) {
					t.Errorf("%d writes of Leases for a root in each namespace", got)
				}
			})
		})
	}
}
