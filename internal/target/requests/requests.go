package requests

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/requests/budget"
)

// Timeout is how long an answer may take, to its end. A webhook of the cluster that admits a write
// may take 30 s.
const Timeout = 40 * time.Second

// Config configures Budgets. All fields are required.
type Config struct {
	// Total is how many requests may be in flight to all target clusters, unless these are so many
	// that each has budget.LeastInFlight.
	Total int
	Clock clock.WithTickerAndDelayedExecution
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error { return required.Fields(c) }

// Budgets are those of all target clusters. Create them with New; they are safe for concurrent use.
type Budgets struct {
	cfg     Config
	refused *prometheus.CounterVec

	mu   sync.Mutex
	all  map[string]*shared // by cluster
	busy int                // clusters with requests in flight
}

// shared is the budget of one cluster. It is guarded by Budgets.mu.
type shared struct {
	budget.Budget

	users int // namespaces
}

// New returns Budgets of no cluster. Errors: those of Config.Validate.
func New(cfg Config) (*Budgets, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mcf_target_requests_refused_total",
		Help: "Requests to target clusters that this replica has not sent, because too many were in flight or sent, " +
			"or because those before have failed.",
	}, []string{"reason"})
	for _, reason := range budget.Refusals() {
		refused.WithLabelValues(reason.String())
	}
	return &Budgets{cfg: cfg, refused: refused, all: map[string]*shared{}}, nil
}

// Collectors return the metrics.
func (b *Budgets) Collectors() []prometheus.Collector {
	return []prometheus.Collector{b.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mcf_target_requests_in_flight",
		Help: "Requests to target clusters that this replica has sent and whose answer is not complete; of watches, has not begun.",
	}, func() (n float64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, of := range b.all {
			n += float64(of.InFlight())
		}
		return n
	})}
}

// Budget is that of a cluster for one of the namespaces that share it. Each has its own failures: a
// namespace whose credentials do not work, even before anything is sent, does not stop the others.
type Budget struct {
	all     *Budgets
	cluster string
	shared  *shared
	breaker budget.Breaker // guarded by Budgets.mu
	changed func()
}

// Open returns the budget of a cluster. changed is called when Problem changes whether there is
// one; it must return soon. Close has to be called when the cluster is not used any more.
func (b *Budgets) Open(cluster string, changed func()) *Budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.all[cluster]
	if of == nil {
		of = &shared{}
		b.all[cluster] = of
	}
	of.users++
	return &Budget{all: b, cluster: cluster, shared: of, changed: changed}
}

// Close ends the use of the budget. Requests in flight still count.
func (b *Budget) Close() {
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	b.shared.users--
	if b.shared.users == 0 && b.all.all[b.cluster] == b.shared {
		delete(b.all.all, b.cluster)
	}
}

// Problem returns why requests are not sent to the cluster at present, and after which time one is;
// "" if they are sent.
func (b *Budget) Problem() (why string, wait time.Duration) {
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	return b.breaker.Problem(b.all.cfg.Clock.Now())
}

// Reset forgets the failures, which other credentials may have ended.
func (b *Budget) Reset() {
	b.all.mu.Lock()
	wasOpen := b.breaker.IsOpen()
	b.breaker = budget.Breaker{}
	b.all.mu.Unlock()
	if wasOpen {
		b.changed()
	}
}

// begin returns whether a request may be sent. If so, end is called when it has ended.
func (b *Budget) begin(kind budget.Kind) (probe bool, err error) {
	all := b.all
	all.mu.Lock()
	defer all.mu.Unlock()
	busy := all.busy
	if b.shared.InFlight() == 0 {
		busy++
	}
	now := all.cfg.Clock.Now()
	answer := b.shared.Ask(&b.breaker, kind, budget.Share(all.cfg.Total, busy), now)
	switch answer.Refusal {
	case budget.None:
		all.busy = busy
		return answer.Probe, nil
	case budget.Open:
		err = errors.New("requests are not sent at present, since those before have failed")
		if why, _ := b.breaker.Problem(now); why != "" {
			err = fmt.Errorf("requests are not sent at present: %s", why)
		}
	case budget.Crowded:
		err = fmt.Errorf("%d requests are in flight already", b.shared.InFlight())
	case budget.Fast:
		err = fmt.Errorf("%d requests a second were sent already", budget.Rate)
	}
	all.refused.WithLabelValues(answer.Refusal.String()).Inc()
	return false, &RefusedError{wait: answer.Wait, why: err}
}

// end records how a request has ended.
func (b *Budget) end(kind budget.Kind, probe bool, o budget.Outcome) {
	b.all.mu.Lock()
	change := b.shared.End(&b.breaker, kind, probe, o, b.all.cfg.Clock.Now())
	if b.shared.InFlight() == 0 {
		b.all.busy--
	}
	b.all.mu.Unlock()
	if change != budget.Unchanged {
		b.changed()
	}
}

// RefusedError means that a request was not sent to a target cluster.
type RefusedError struct {
	wait time.Duration
	why  error
}

// Wait returns the time after which to try again.
func (e *RefusedError) Wait() time.Duration { return e.wait }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the request was not sent to the target cluster: %v", e.why)
}
