package machineset

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// checksOfNamespace is the maximum number of concurrent checks in one namespace, and checksAtOnce
// that of all. Secrets are read one after the other: a replica that takes over thousands of sets
// without machines must not delay the creation of others' VMs. No set waits for one of these
// checks, because all may be of a driver that hangs; those of other namespaces go on then.
const (
	checksOfNamespace = 4
	checksAtOnce      = runner.TenantsAtOnce * checksOfNamespace
)

// sharedCheck is for how long the result of a check is used for other sets of the class: longer
// than a check is put off.
const sharedCheck = 2 * putOffClassCheck

// errCheckEndless is the error of a check that has not returned.
var errCheckEndless = errors.New("expected the check to return, and it has not")

// classResult is how a check of a class has ended.
type classResult struct {
	problem string
	err     error     // nothing is known of the class
	at      time.Time // zero while the class is being checked
	// outdated reports whether the class has changed since the check began.
	outdated bool
}

// next returns when to check the class again. isBroken reports whether machines cannot get VMs, and
// none waits for what is missing.
func (r classResult) next(isBroken bool) time.Time {
	switch {
	case r.outdated:
		return r.at
	case isBroken:
		return r.at.Add(brokenClassCheck)
	}
	return r.at.Add(classCheck)
}

// classChecks checks a class once for all of its sets. Create it with newClassChecks; it is safe
// for concurrent use.
type classChecks struct {
	clock clock.PassiveClock
	check func(ctx context.Context, class types.NamespacedName) (problem string, err error)

	mu      sync.Mutex
	results map[types.NamespacedName]*classResult
	running map[string]int // by namespace
	total   int            // of running
}

func newClassChecks(c clock.PassiveClock, check func(context.Context, types.NamespacedName) (string, error)) *classChecks {
	return &classChecks{clock: c, check: check, results: map[types.NamespacedName]*classResult{}, running: map[string]int{}}
}

// of returns the result of a check that has ended within sharedCheck, or of a new one. known is
// false if that would have to wait for others, of the same class or of too many.
func (c *classChecks) of(ctx context.Context, class types.NamespacedName) (result classResult, known bool) {
	result, begun := c.begin(class)
	if begun == nil {
		return result, !result.at.IsZero()
	}
	problem, err := "", errCheckEndless
	defer func() { result = c.end(ctx, class, begun, problem, err) }()
	problem, err = c.check(ctx, class)
	return result, true
}

// begin returns what is known of a class, or a result for a check that the caller carries out.
func (c *classChecks) begin(class types.NamespacedName) (known classResult, begun *classResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	maps.DeleteFunc(c.results, func(_ types.NamespacedName, is *classResult) bool {
		return !is.at.IsZero() && now.Sub(is.at) > sharedCheck
	})
	if is := c.results[class]; is != nil {
		return *is, nil
	}
	if c.running[class.Namespace] >= checksOfNamespace || c.total >= checksAtOnce {
		return classResult{}, nil
	}
	begun = &classResult{}
	c.results[class] = begun
	c.running[class.Namespace]++
	c.total++
	return classResult{}, begun
}

// end records how a check has ended. That this process may not go on is no result for others.
func (c *classChecks) end(ctx context.Context, class types.NamespacedName, begun *classResult, problem string, err error) classResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[class.Namespace]--; c.running[class.Namespace] == 0 {
		delete(c.running, class.Namespace)
	}
	c.total--
	*begun = classResult{problem: problem, err: err, at: c.clock.Now(), outdated: c.results[class] != begun}
	if err != nil && (ctx.Err() != nil || runner.NotOurs(err)) && !begun.outdated {
		delete(c.results, class)
	}
	return *begun
}

// forget drops the result of a class that has changed.
func (c *classChecks) forget(class types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.results, class)
}
