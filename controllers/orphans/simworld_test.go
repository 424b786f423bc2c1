package orphans

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

const stepTime = 5 * time.Minute

func namespacesOfWorld() []string { return []string{"a", "b"} }

// event is an Event of a process.
type event struct{ about, reason, text string }

// world is a fleet with machines, clouds and users, under faults.
type world struct {
	seed               uint64
	random             *rand.Rand
	period, quarantine time.Duration
	returned           map[types.UID]time.Time // when a restore has brought back a machine while there were newer suspicions
	limit              int
	dryRun             bool
	broken             promises
	control, target    *apiserver.Server
	cloud              *fakecloud.Cloud
	stale              *apiserver.Server // what cached reads return; only if they are allowed
	staleAge           int
	saved              *apiserver.Snapshot
	processes          []*process
	leader             *process
	starts             int
	story              *lockedBuffer

	mu        sync.Mutex
	wrong     string
	count     int
	faults    int                     // percent of requests that fail
	surplus   map[string]bool         // VMs of a machine that has named another one since before they were created, by ID
	ended     map[types.UID]time.Time // when machines that are gone ended
	off       map[string]bool
	approved  map[string]bool // IDs of resources
	deletions map[string][]time.Time
	passes    map[*process][]context.CancelFunc
	lists     map[string]int // of whole scopes, by namespace and account
	usual     map[string]int // of these, those that are as far apart as usual sweeps
	counted   map[string]time.Time
	events    []event
	late      []func() // creates that are still on their way
	returning *returning
}

// returning is a machine that is removed by hand, restored, and removed again.
type returning struct {
	machine machine
	backup  apiserver.Snapshot
	at      time.Time // when it was removed
	back    bool
	lists   int // of its scope when it was back
}

// machine is a Machine as it is stored.
type machine struct {
	namespace, name, class, providerID string
	uid                                types.UID
}

func keyOf(about runtime.Object) string {
	o, _ := meta.Accessor(about) // it is a MachineClass
	return o.GetNamespace() + "/" + o.GetName()
}

func newWorld(seed uint64, broken promises, story *lockedBuffer) *world {
	w := &world{
		seed: seed, random: rand.New(rand.NewPCG(seed, 7)), period: 15 * time.Minute, quarantine: 10 * time.Minute, limit: 3, broken: broken,
		story: story, ended: map[types.UID]time.Time{}, returned: map[types.UID]time.Time{}, off: map[string]bool{}, approved: map[string]bool{},
		deletions: map[string][]time.Time{}, passes: map[*process][]context.CancelFunc{}, lists: map[string]int{}, usual: map[string]int{},
		counted: map[string]time.Time{}, surplus: map[string]bool{},
	}
	w.cloud = &fakecloud.Cloud{Clock: time.Now, Page: fewAPage, Ends: w.judge}
	if w.random.IntN(3) > 0 {
		w.limit = 12
	}
	if w.random.IntN(3) == 0 {
		w.quarantine = 40 * time.Minute
	}
	w.control, w.target = apiserver.New("c", time.Now), apiserver.New("t", time.Now)
	for _, namespace := range namespacesOfWorld() {
		for account := range map[string]bool{"1": true, "2": true} {
			w.put("secrets", map[string]any{
				"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": namespace, "name": "secret-" + account},
				"data": map[string]any{"account": map[string]string{"1": "MQ==", "2": "Mg=="}[account]},
			})
		}
		for _, name := range []string{"class-1a", "class-1b", "class-2"} {
			w.putClass(namespace, name)
		}
	}
	return w
}

func (w *world) put(resource string, document map[string]any) *apiserver.Object {
	o, err := w.control.Put(resource, document)
	if err != nil {
		panic(err)
	}
	return o
}

func accountOf(class string) string { return class[len("class-"):][:1] }

func (w *world) putClass(namespace, name string) {
	w.put("machineclasses", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": map[string]any{"namespace": namespace, "name": name},
		"provider": "simulated", "providerSpec": map[string]any{}, "secretRef": map[string]any{"name": "secret-" + accountOf(name)},
	})
}

// machines returns the Machines as they are stored.
func (w *world) machines() (all []machine) {
	for _, o := range w.control.List("machines") {
		class, _, _ := unstructured.NestedString(o.Object, "spec", "class", "name")
		id, _, _ := unstructured.NestedString(o.Object, "spec", "providerID")
		all = append(all, machine{o.GetNamespace(), o.GetName(), class, id, o.GetUID()})
	}
	return all
}

// report records a violation.
func (w *world) report(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(format, args...)
}

// fail records the first violation. w.mu is held.
func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
		w.tell("WRONG: %s", w.wrong)
	}
}

func (w *world) tell(format string, args ...any) {
	if w.story != nil {
		w.story.printf("%s "+format, append([]any{time.Now().Format("02 15:04:05")}, args...)...)
	}
}

func (w *world) isNodeReady(name string) bool {
	o := w.target.Get("nodes", "", name)
	return o != nil && o.GetLabels()["ready"] == "true"
}

func (w *world) putNode(vm *fakecloud.Resource, ready bool) {
	state := map[bool]string{true: "True", false: "False"}[ready]
	_, err := w.target.Put("nodes", map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": vm.NodeName, "labels": map[string]any{"ready": fmt.Sprint(ready)}},
		"spec":   map[string]any{"providerID": vm.ID},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": state}}},
	})
	if err != nil {
		panic(err)
	}
}

// removed records that a Machine is gone. One that a restore has brought back while there were
// newer suspicions, and that ends again before a sweep has seen it, has been gone all the time: no
// etcd has such a state.
func (w *world) removed(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if back, returned := w.returned[uid]; !returned || time.Since(back) > 2*w.period {
		w.ended[uid] = time.Now()
	}
}

// isIdle reports whether no process sweeps.
func (w *world) isIdle() bool {
	for _, p := range w.processes {
		if p.inWork.Load() > 0 {
			return false
		}
	}
	return true
}

// step lets time pass, and has users and faults do something.
func (w *world) step(t *testing.T, quiet bool) {
	t.Helper()
	time.Sleep(stepTime - time.Duration(w.draw(60))*time.Second)
	synctest.Wait()
	if w.broken.cachedReads {
		if w.staleAge++; w.staleAge >= 30 {
			w.stale, w.staleAge = copyOf(w.control), 0
		}
	}
	w.deliverLate(quiet)
	w.approve(quiet)
	if w.returning != nil && !quiet {
		w.comeBack()
	}
	if quiet {
		return
	}
	for range 1 + w.draw(3) {
		w.live(t)
	}
}

func (w *world) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func pick[T any](w *world, of []T) (picked T) {
	if len(of) > 0 {
		picked = of[w.draw(len(of))]
	}
	return picked
}

// live is one act of users, machines or faults.
func (w *world) live(t *testing.T) {
	t.Helper()
	namespace := pick(w, namespacesOfWorld())
	switch w.draw(40) {
	case 0, 1, 2, 3, 4, 5:
		w.createMachine(namespace)
	case 6, 7, 8:
		w.deleteMachine(pick(w, w.machines()))
	case 9:
		w.removeByHand(pick(w, w.machines()))
	case 10:
		w.createLate(namespace)
	case 11:
		w.leaveSomething(namespace)
	case 12:
		w.doubleVM(pick(w, w.machines()))
	case 13:
		w.mu.Lock()
		w.faults = []int{0, 2, 30}[w.random.IntN(3)]
		w.mu.Unlock()
	case 14:
		w.switchOff(namespace)
	case 15:
		w.changeClass(namespace)
	case 16:
		w.editAnnotations(namespace)
	case 17:
		saved := w.control.Save()
		w.saved = &saved
	case 18:
		w.restore()
	case 19, 20:
		w.changeLeader(t)
	case 21, 22:
		if w.leader != nil {
			w.leader.killAt.Store(int64(1 + w.draw(60)))
		}
	case 23:
		w.foreign(namespace)
	case 24:
		w.adopt()
	case 25:
		w.removeForNow(pick(w, w.machines()))
	case 26:
		w.requestSweep(namespace, pick(w, []string{"class-1a", "class-1b", "class-2"}))
	default:
		if w.leader == nil || w.leader.dead.Load() {
			w.changeLeader(t)
		}
	}
}

// createMachine creates a Machine, of a name that may have been used before, and its VM.
func (w *world) createMachine(namespace string) {
	name := fmt.Sprint("m", w.draw(6))
	class := pick(w, []string{"class-1a", "class-1b", "class-2"})
	if w.control.Get("machines", namespace, name) != nil || w.control.Get("machineclasses", namespace, class) == nil {
		return
	}
	o := w.put("machines", machineDocument(namespace, name, class))
	vm := w.create(driver.ResourceVM, namespace, accountOf(class), name, o.GetUID())
	w.tell("machine %s/%s %s with VM %s", namespace, name, o.GetUID(), vm.ID)
	if w.draw(4) > 0 {
		w.control.Edit("machines", namespace, name, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, vm.ID, "spec", "providerID")
		})
		w.putNode(vm, w.draw(3) > 0)
	}
	if w.draw(3) == 0 { // a disk that no VM uses, of a machine that exists
		w.create(driver.ResourceDisk, namespace, accountOf(class), name, o.GetUID())
	}
}

func machineDocument(namespace, name, class string) map[string]any {
	return map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{"class": map[string]any{"kind": "MachineClass", "name": class}},
	}
}

// deleteMachine deletes a Machine as the fleet does: first all that it has at the cloud.
func (w *world) deleteMachine(m machine) {
	if m.name == "" {
		return
	}
	w.cloud.Change(func(all []*fakecloud.Resource) {
		for _, i := range all {
			if i.MachineUID == m.uid {
				i.Ends = time.Now()
				w.target.Remove("nodes", "", i.NodeName)
			}
		}
	})
	w.control.Remove("machines", m.namespace, m.name)
	w.removed(m.uid)
	w.tell("machine %s/%s %s is deleted", m.namespace, m.name, m.uid)
}

// removeByHand removes a Machine, and nothing of its VM.
func (w *world) removeByHand(m machine) {
	if m.name == "" {
		return
	}
	w.control.Remove("machines", m.namespace, m.name)
	w.removed(m.uid)
	w.tell("machine %s/%s %s is removed by hand", m.namespace, m.name, m.uid)
}

// createLate has a create arrive after its Machine is gone.
func (w *world) createLate(namespace string) {
	name, account := fmt.Sprint("m", w.draw(6)), pick(w, []string{"1", "2"})
	if w.control.Get("machines", namespace, name) != nil {
		return
	}
	o := w.put("machines", machineDocument(namespace, name, "class-"+account+strings.Repeat("a", 2-int(account[0]-'0'))))
	w.control.Remove("machines", namespace, name)
	uid := o.GetUID()
	w.removed(uid)
	w.late = append(w.late, func() {
		vm := w.create(driver.ResourceVM, namespace, account, name, uid)
		w.tell("late VM %s of %s", vm.ID, uid)
	})
}

func (w *world) deliverLate(all bool) {
	for len(w.late) > 0 && (all || w.draw(3) == 0) {
		w.late[0]()
		w.late = w.late[1:]
	}
}

// leaveSomething leaves what a failed create leaves.
func (w *world) leaveSomething(namespace string) {
	uid := types.UID(fmt.Sprint("never-", w.draw(1<<30)))
	w.create(pick(w, []driver.ResourceKind{driver.ResourceDisk, driver.ResourceNetworkInterface}), namespace, "1", "m1", uid)
}

// doubleVM creates another VM for a Machine, and has its owner request a sweep.
func (w *world) doubleVM(m machine) (vm *fakecloud.Resource) {
	if m.name == "" {
		return nil
	}
	vm = w.create(driver.ResourceVM, m.namespace, accountOf(m.class), m.name, m.uid)
	w.mu.Lock()
	w.surplus[vm.ID] = m.providerID != ""
	w.mu.Unlock()
	w.tell("second VM %s of %s", vm.ID, m.uid)
	w.requestSweep(m.namespace, m.class)
	return vm
}

// foreign creates a VM of another fleet.
func (w *world) foreign(namespace string) {
	vm := w.create(driver.ResourceVM, namespace, "1", "m1", types.UID(fmt.Sprint("foreign-", w.draw(1000))))
	w.cloud.Change(func([]*fakecloud.Resource) { vm.ControlCluster = "theirs" })
}
