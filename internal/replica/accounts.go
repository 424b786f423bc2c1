package replica

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/accounts"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

const (
	// triesEvery is how often it is checked whether tries of accounts are due, and triesAtOnce how
	// many are sent at the same time.
	triesEvery, triesAtOnce = time.Second, 4
	// slotsEvery is how long the slots that need an account are used before they are determined again,
	// from all machines.
	slotsEvery = 2 * time.Second
)

// cloudAccounts finds out which accounts at clouds answer this replica: by the calls for its
// machines, and by tries.
type cloudAccounts struct {
	clock clock.WithTicker
	view  *objectcache.View
	count int // of slots

	mu      sync.Mutex
	tracker *accounts.Tracker
	slots   map[string]member.SlotSet // that need an account, by its key
	counted time.Time                 // when they were determined
}

// newCloudAccounts returns one that knows nothing.
func newCloudAccounts(d *deps) *cloudAccounts {
	return &cloudAccounts{clock: apianswers.Own[clock.WithTicker](d.wall), view: d.view, count: d.o.Fleet.Slots, tracker: accounts.New()}
}

// useOf returns the account of a class.
func useOf(class *v1alpha1.MachineClass) accounts.Use {
	return accounts.Use{Key: cloud.AccountOf(class), Provider: class.Provider, Class: class.Namespace + "/" + class.Name}
}

// called records a call of a driver for a machine.
func (a *cloudAccounts) called(class *v1alpha1.MachineClass, began time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tracker.Called(useOf(class), accounts.EvidenceOf(err), began, a.clock.Now())
}

// heard records what other replicas report.
func (a *cloudAccounts) heard(reports []member.Accounts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tracker.Heard(reports)
}

// report returns what this replica reports.
func (a *cloudAccounts) report() member.Accounts {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	report := a.tracker.Report(now)
	keys := map[string]bool{}
	for _, of := range [][]member.Account{report.Failing, report.Asked} {
		for i := range of {
			keys[of[i].Key] = true
		}
	}
	if len(keys) > 0 && now.Sub(a.counted) >= slotsEvery {
		a.slots, a.counted = a.slotsOf(keys), now
	}
	for _, of := range [][]member.Account{report.Failing, report.Asked} {
		for i := range of {
			of[i].Slots = a.slots[of[i].Key]
		}
	}
	return report
}

// slotsOf returns the slots of this replica that need accounts: those with machines of them, or
// with MachineSets that want some.
func (a *cloudAccounts) slotsOf(keys map[string]bool) map[string]member.SlotSet {
	found, known := map[string]member.SlotSet{}, map[types.NamespacedName][]string{}
	add := func(label, namespace, class string) {
		slot, labeled := policy.Read(label, a.count)
		if !labeled {
			return
		}
		name := types.NamespacedName{Namespace: namespace, Name: class}
		of, is := known[name]
		if !is {
			of = a.keysOf(name, keys)
			known[name] = of
		}
		for _, key := range of {
			found[key] = found[key].With(slot)
		}
	}
	for _, set := range a.view.Sets.All() {
		if set.Spec.Replicas > 0 {
			add(set.Labels[v1alpha1.LabelSlot], set.Namespace, set.Spec.Template.Spec.Class.Name)
		}
	}
	for _, m := range a.view.Machines.All() {
		add(m.Labels[v1alpha1.LabelSlot], m.Namespace, m.Spec.Class.Name)
	}
	return found
}

// keysOf returns those of some keys that a class needs.
func (a *cloudAccounts) keysOf(name types.NamespacedName, keys map[string]bool) (of []string) {
	class, known := a.view.Classes.Get(name)
	if !known {
		return nil
	}
	for _, key := range []string{cloud.AccountOf(class), accounts.DriverKey(class.Provider)} {
		if keys[key] {
			of = append(of, key)
		}
	}
	return of
}

// accountTries tries accounts of which it is not known whether they answer this replica.
type accountTries struct {
	*cloudAccounts

	try     func(ctx context.Context, class types.NamespacedName) (answer, err error)
	running int // tries; under mu
}

// newAccountTries returns one that tries an account by a class that uses it.
func newAccountTries(of *cloudAccounts, try func(ctx context.Context, class types.NamespacedName) (answer, err error)) *accountTries {
	return &accountTries{cloudAccounts: of, try: try}
}

// Run tries accounts until ctx ends.
func (a *accountTries) Run(ctx context.Context) {
	var tries sync.WaitGroup
	defer tries.Wait()
	ticker := a.clock.NewTicker(triesEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
		a.mu.Lock()
		due := a.tracker.Due(triesAtOnce-a.running, a.clock.Now())
		a.running += len(due)
		a.mu.Unlock()
		for _, try := range due {
			tries.Go(func() { a.tryOnce(ctx, try) })
		}
	}
}

// tryOnce tries an account once.
func (a *accountTries) tryOnce(ctx context.Context, try accounts.Try) {
	evidence := accounts.Nothing
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.running--
		a.tracker.Tried(try, evidence, a.clock.Now())
	}()
	namespace, name, _ := strings.Cut(try.Class, "/")
	call, cancel := context.WithTimeout(ctx, accounts.TryTimeout)
	defer cancel()
	answer, err := a.try(call, types.NamespacedName{Namespace: namespace, Name: name})
	logger := klog.FromContext(ctx).V(2)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		logger.Info("Account was not tried", "machineClass", klog.KRef(namespace, name), "err", err)
	default:
		evidence = accounts.EvidenceOf(answer)
		logger.Info("Tried account", "machineClass", klog.KRef(namespace, name), "works", evidence == accounts.Works, "err", answer)
	}
}
