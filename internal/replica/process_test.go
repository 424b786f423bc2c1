package replica

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// process is one process of a replica, wired as the binary wires it.
type process struct {
	*trial
	*pauseState

	replica, session string
	fleet            *Replica
	registry         *prometheus.Registry
	leave            chan struct{}
	leaving          bool // leave is closed

	dead chan struct{} // closed at its death: nothing is sent and nothing arrives any more
	kill func()
	done chan struct{} // closed when nothing of it runs any more

	gathered map[string]*dto.MetricFamily // by name
	at       time.Time                    // of what was gathered

	err    error // of run, once done is closed
	killed bool  // by the trial
	judged bool

	mu     sync.Mutex
	diedOf string // why it has ended itself at once
}

// replicaOptions returns the options of all replicas of a trial, without their names.
func replicaOptions(edits ...func(o *Options)) Options {
	o := DefaultOptions()
	o.Fleet.Slots, o.Fleet.Namespace, o.ConcurrentSyncs = slotsOfTrial, fleetNamespace, 4
	for _, edit := range edits {
		edit(&o)
	}
	return o
}

// start runs a process of a replica.
func (t *trial) start(replica string) *process {
	t.starts++
	p := &process{
		trial: t, replica: replica, leave: make(chan struct{}), dead: make(chan struct{}), done: make(chan struct{}),
		registry: prometheus.NewRegistry(),
	}
	p.pauseState = &pauseState{dead: p.dead}
	o := t.options
	o.Name = replica
	reach := func(place string, server *apiserver.Server) *rest.Config {
		return &rest.Config{Host: "http://" + place, BearerToken: t.bearer, Transport: &link{process: p, place: place, server: server}, QPS: -1}
	}
	var err error
	around := Environment{
		Control: reach(atControl, t.control), Tracer: t.tracer.Tracer(""), Registry: p.registry,
		Drivers: func(func() float64, func() time.Time) (map[string]driver.Driver, error) {
			return map[string]driver.Driver{fakecloud.Provider: t.wrapDriver(t.cloud.Via(p.toCloud))}, nil
		},
		Die: p.die, Clock: skewedClock{by: t.skews[replica]},
	}
	switch {
	case o.Targets.ByNamespace:
		around.TargetTransport = func(url string) http.RoundTripper {
			namespace := strings.TrimSuffix(strings.TrimPrefix(url, "https://"), ".example")
			if own := t.ownTargets[namespace]; own != nil {
				return reach(namespace+"."+atTarget, own).Transport
			}
			return reach(atTarget, t.target).Transport
		}
	case !t.noTarget:
		around.Target = reach(atTarget, t.target)
	}
	if p.fleet, err = New(o, around); err != nil {
		t.Fatal(err)
	}
	p.fleet.time.WithTicker = pausableClock{skewedClock: skewedClock{by: t.skews[replica]}, pauseState: p.pauseState}
	p.session = p.fleet.settings.Session
	ctx, end := context.WithCancel(klog.NewContext(t.Context(), t.logger.WithName(p.session)))
	p.kill = sync.OnceFunc(func() {
		close(p.dead)
		end()
	})
	t.logf("%s starts", p.session)
	t.processes = append(t.processes, p)
	go pprof.Do(ctx, pprof.Labels("of", replica), func(ctx context.Context) {
		p.err = p.fleet.Run(ctx, p.leave)
		p.kill()
		p.fleet.Close()
		close(p.done)
	})
	return p
}

// die is called by the process to end at once.
func (p *process) die(reason string) {
	p.mu.Lock()
	p.diedOf = reason
	p.mu.Unlock()
	p.kill()
}

func (p *process) isAlive() bool {
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

// crash is SIGKILL. Requests in flight arrive.
func (p *process) crash() {
	p.logf("%s is killed", p.session)
	p.killed = true
	p.kill()
}

// quit is SIGTERM.
func (p *process) quit() {
	if !p.leaving {
		p.logf("%s is asked to leave", p.session)
		p.leaving = true
		close(p.leave)
	}
}

// metrics returns the metrics. To gather them takes milliseconds, so it is done once for each
// moment; nothing changes before the next one.
func (p *process) metrics() map[string]*dto.MetricFamily {
	if now := time.Now(); !p.at.Equal(now) {
		families, err := p.registry.Gather()
		if err != nil {
			p.fail("the metrics of %s: %v", p.replica, err)
		}
		p.gathered, p.at = map[string]*dto.MetricFamily{}, now
		for _, family := range families {
			p.gathered[family.GetName()] = family
		}
	}
	return p.gathered
}

// metric returns the value of a gauge, and whether there is one.
func (p *process) metric(name string) (value float64, found bool) {
	family, found := p.metrics()[name]
	for _, m := range family.GetMetric() {
		value += m.GetGauge().GetValue()
	}
	return value, found
}

// ready returns the checks of /readyz that have failed.
func (p *process) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var failed []error
	for _, check := range p.fleet.Ready(ctx).Checks {
		if check.Err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", check.Name, check.Err))
		}
	}
	return errors.Join(failed...)
}

// unfit returns the aspects of the metric mcf_fit that are 0.
func (p *process) unfit() (aspects []string) {
	for _, m := range p.metrics()["mcf_fit"].GetMetric() {
		if m.GetGauge().GetValue() == 0 {
			aspects = append(aspects, m.GetLabel()[0].GetValue())
		}
	}
	return aspects
}
