package cloud

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud/breaker"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// mostAccounts is how many circuit breakers of accounts one namespace has in this process. A
// namespace with more accounts that fail has none for the others: their machines have their own
// back-offs only.
const mostAccounts = 64

// mostReason is how many bytes of the cloud's message machines show whose calls are held.
const mostReason = 256

// accountKey is an account as the classes of one namespace use it, and a kind of call. Namespaces
// may share a Secret, and one of them could have its own calls refused on purpose; clouds refuse
// reads, creates and deletes separately.
type accountKey struct {
	namespace, credentials string
	op                     driver.Op
}

// account is an account whose calls have failed.
type account struct {
	breaker  breaker.Breaker
	provider string
	secrets  string                            // the versions of the Secrets that have failed
	reason   string                            // of the last failure
	held     map[types.NamespacedName]struct{} // machines whose calls wait
	reported map[types.UID]struct{}            // roots that have the Event since it has opened
}

// accounts has the circuit breakers of accounts. Create it with newAccounts; it is safe for
// concurrent use.
type accounts struct {
	clock clock.PassiveClock
	wake  func(types.NamespacedName)
	holds *prometheus.CounterVec

	mu  sync.Mutex
	all map[accountKey]*account
}

func newAccounts(c clock.PassiveClock, wake func(types.NamespacedName)) *accounts {
	return &accounts{
		clock: c, wake: wake, all: map[accountKey]*account{},
		holds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mcf_driver_calls_held_total", Help: "Calls of drivers that were not sent because the circuit breaker of the account is open.",
		}, []string{"provider", "operation"}),
	}
}

// accountCall is a call of a driver that is in flight.
type accountCall struct {
	key      accountKey
	provider string
	secrets  string
	by       breaker.Caller
	machine  types.NamespacedName
	probe    int
}

// hold is a call that must not be sent.
type hold struct {
	code   driver.Code
	until  time.Time
	reason string
}

func accountCallOf(call Call) accountCall {
	m, class := call.Target.Machine, call.Target.Class
	return accountCall{
		key:      accountKey{m.Namespace, credentialsOf(class), call.Op},
		provider: class.Provider, secrets: call.SecretVersions, machine: objectcache.Key(m),
		by: breaker.Caller{Machine: string(m.UID), Class: fmt.Sprintf("%s/%d", class.UID, class.Generation)},
	}
}

// begin reports whether a call may be sent. If so, the caller calls end when it has ended; if not,
// the machine is woken when the account works again.
func (a *accounts) begin(call *accountCall) (hold, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.all[call.key]
	if of == nil || of.secrets != call.secrets {
		return hold{}, true
	}
	answer := of.breaker.Ask(call.by, a.clock.Now())
	if answer.Allowed {
		call.probe = answer.Probe
		return hold{}, true
	}
	of.held[call.machine] = struct{}{}
	a.holds.WithLabelValues(call.provider, string(call.key.op)).Inc()
	return hold{of.breaker.Code(), answer.Again, of.reason}, false
}

// end records how a call has ended, with the message of its failure, and returns what that has
// changed.
func (a *accounts) end(call accountCall, o breaker.Outcome, message string) breaker.Change {
	change, woken := a.record(call, o, message)
	for machine := range woken {
		a.wake(machine)
	}
	return change
}

func (a *accounts) record(
	call accountCall, o breaker.Outcome, message string,
) (change breaker.Change, woken map[types.NamespacedName]struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of, now := a.all[call.key], a.clock.Now()
	if of != nil && of.secrets != call.secrets { // what has failed with other credentials shows nothing about these
		if !o.IsEvidence() {
			return breaker.Unchanged, nil
		}
		delete(a.all, call.key)
		of, woken = nil, of.held
	}
	if of == nil && o.CountsAgainst() {
		of = a.add(call, now)
	}
	if of == nil {
		return breaker.Unchanged, woken
	}
	change = of.breaker.End(call.by, call.probe, o, now)
	switch {
	case o.CountsAgainst():
		of.reason = bounded.Text(message, mostReason)
	case of.breaker.IsOver(now):
		delete(a.all, call.key)
		woken = of.held
	}
	return change, woken
}

// add returns a new account; nil if its namespace has too many. It drops those that are of no use
// any more.
func (a *accounts) add(call accountCall, now time.Time) *account {
	count := 0
	for key, of := range a.all {
		if of.breaker.IsOver(now) {
			delete(a.all, key)
		} else if key.namespace == call.key.namespace {
			count++
		}
	}
	if count >= mostAccounts {
		return nil
	}
	of := &account{
		provider: call.provider, secrets: call.secrets,
		held: map[types.NamespacedName]struct{}{}, reported: map[types.UID]struct{}{},
	}
	a.all[call.key] = of
	return of
}

// isNews reports whether a root has no Event yet of the circuit breaker that is open, and records
// that it has one.
func (a *accounts) isNews(key accountKey, root types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.all[key]
	if of == nil {
		return false
	}
	_, reported := of.reported[root]
	of.reported[root] = struct{}{}
	return !reported
}

// forget drops a machine that is gone.
func (a *accounts) forget(machine types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range a.all {
		delete(of.held, machine)
	}
}

// openOf returns how many circuit breakers of accounts of a provider are open.
func (a *accounts) openOf(provider string) (open float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	for _, of := range a.all {
		if of.provider == provider && of.breaker.IsOpen() && !of.breaker.IsOver(now) {
			open++
		}
	}
	return open
}

// collectors return the metrics, with a series for each provider that has a driver.
func (a *accounts) collectors(providers []string) []prometheus.Collector {
	all := []prometheus.Collector{a.holds}
	for _, provider := range providers {
		for _, op := range []driver.Op{driver.OpStatus, driver.OpCreate, driver.OpInitialize, driver.OpDelete} {
			a.holds.WithLabelValues(provider, string(op))
		}
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "mcf_open_account_circuit_breakers", ConstLabels: prometheus.Labels{"provider": provider},
			Help: "Accounts for which this replica sends no calls of one operation but one at a time, because those of many machines have failed.",
		}, func() float64 { return a.openOf(provider) }))
	}
	return all
}

// hold returns the failure of a call that is held, and emits the Event of that on the machine's
// root, once for each opening. The Event has no time: each probe that fails moves the next one.
func (c *Client) hold(ctx context.Context, m *v1alpha1.Machine, call accountCall, of hold) *Failure {
	why := fmt.Sprintf("%s has failed for %d machines in a row", call.key.op, breaker.Failures)
	last := fmt.Sprintf("the last one failed with %s: %s", of.code, of.reason)
	text := fmt.Sprintf("the account's circuit breaker is open until %s, because %s; no call was sent, and %s",
		of.until.UTC().Format(time.RFC3339), why, last)
	failure := &Failure{Code: of.code, Message: text, Held: true, RetryAfter: max(of.until.Sub(c.cfg.Clock.Now()), time.Millisecond)}
	root, known := ownerref.RootOf(c.cfg.View, m)
	if !known || !c.accounts.isNews(call.key, root.GetUID()) {
		return failure
	}
	if about, ok := root.(runtime.Object); ok {
		telemetry.Emit(ctx, c.cfg.Events, about, v1alpha1.EventAccountCircuitBreakerOpen, fmt.Sprintf(
			"The account's circuit breaker is open, because %s: calls are sent for one machine at a time until the cloud answers; %s", why, last))
	}
	return failure
}

// end records how a call has ended.
func (c *Client) end(ctx context.Context, call accountCall, o breaker.Outcome, message string) {
	logger := klog.FromContext(ctx)
	switch c.accounts.end(call, o, message) {
	case breaker.Opened:
		logger.Info("Opened circuit breaker of account", "provider", call.provider, telemetry.KeyNamespace, call.key.namespace,
			"operation", call.key.op, "code", o.Code)
	case breaker.Closed:
		logger.Info("Closed circuit breaker of account", "provider", call.provider, telemetry.KeyNamespace, call.key.namespace,
			"operation", call.key.op)
	case breaker.Unchanged:
	}
}
