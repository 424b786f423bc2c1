package machine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// moment is when a process dies of a call.
type moment string

const (
	never  moment = ""
	before moment = "before it arrives"
	after  moment = "after it took effect, with its answer lost"
)

// absence is the time without a process after a death.
const absence = 2 * time.Second

// errDead is the error that a dead process gets.
var errDead = apierrors.NewResourceExpired("the process is dead")

// killer ends processes at their writes and at their calls of the cloud. No request of a dead
// process arrives, and it learns nothing more.
type killer struct {
	*bench

	dies func(call int) moment // of the call with that number, counted from 0 over all processes
	died chan struct{}

	mu     sync.Mutex
	calls  []string
	deaths []string
}

// newKiller has it see all processes of the bench from the next one on, and starts that one.
func newKiller(b *bench, dies func(call int) moment) *killer {
	k := &killer{bench: b, dies: dies, died: make(chan struct{}, 1)}
	b.rewire = func(w *wires) {
		p := &process{killer: k}
		evict := w.evict
		control, target := b.server.Via(p.request), b.target.Via(p.request)
		w.machines, w.secrets, w.target = control.Machines, control.Core, target.Core
		w.evict = func(ctx context.Context, e *policyv1.Eviction) error {
			return p.call("create pods/eviction", true, func() error { return evict(ctx, e) })
		}
		w.cloud = b.cloud.Via(p.cloud)
	}
	b.takeOver(0)
	return k
}

// call counts a call and returns how its process dies of it, if it does.
func (k *killer) call(what string) moment {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.dies(len(k.calls))
	k.calls = append(k.calls, what)
	if m != never {
		k.deaths = append(k.deaths, fmt.Sprintf("at %s, call %d, %s", what, len(k.calls)-1, m))
	}
	return m
}

// pass advances the time, in which another process starts after each death.
func (k *killer) pass(d time.Duration) {
	k.Helper()
	end := time.NewTimer(d)
	defer end.Stop()
	for {
		select {
		case <-k.died:
			k.takeOver(absence)
		case <-end.C:
			k.bench.pass(0)
			select {
			case <-k.died:
				k.takeOver(absence)
				end.Reset(time.Minute)
			default:
				return
			}
		}
	}
}

// process is one process, for which all its requests go through call.
type process struct {
	killer *killer

	mu   sync.Mutex
	dead bool
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *process) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dead {
		p.dead = true
		p.killer.died <- struct{}{}
	}
}

// call sends one call, unless the process is dead, or dies of it.
func (p *process) call(what string, counts bool, do func() error) error {
	if p.isDead() {
		return errDead
	}
	m := never
	if counts {
		m = p.killer.call(what)
	}
	if m == before {
		p.die()
		return errDead
	}
	err := do()
	if m == after {
		p.die()
	}
	if p.isDead() {
		return errDead
	}
	return err
}

func isWrite(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) }

// request is the way of a request of the process to an API server.
func (p *process) request(r apiserver.Request, send func() error) error {
	return p.call(r.What(), isWrite(r.Verb), send)
}

// cloud is the way of a call of the process to the cloud. Each counts.
func (p *process) cloud(_ context.Context, call fakecloud.Call, send func() error) error {
	var answer error
	err := p.call(string(call.Op), true, func() error {
		answer = send()
		return nil
	})
	if err != nil {
		return &driver.Error{Code: driver.Unavailable, Op: call.Op, Err: err}
	}
	return answer
}
