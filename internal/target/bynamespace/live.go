package bynamespace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/connection"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/requests"
)

// Pauses between attempts to identify a cluster: the first, doubled with each failure, up to the
// longest.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
	jitter       = 0.5
)

// live is a connected cluster.
type live struct {
	*Link

	one        *one
	connection *connection.Connection
	access     access.Access // used by one.run only
	budget     *requests.Budget
	health     *objectcache.Health
	bytes      atomic.Int64 // of the cached Nodes, by sizeOf

	running sync.WaitGroup
	end     context.CancelFunc
}

func newLive(o *one, link *Link, conn *connection.Connection, a access.Access, budget *requests.Budget) *live {
	l := &live{
		Link: link, one: o, connection: conn, access: a, budget: budget, health: objectcache.NewHealth(o.cfg.Clock),
	}
	l.health.OnRecovered(func(after time.Duration) {
		if after >= l.health.Tolerance(o.cfg.BlindAfter) {
			o.changed()
		}
	})
	l.Cluster.Name = o.namespace
	l.Cluster.Nodes.OnChange(func(before, after *corev1.Node) {
		l.bytes.Add(sizeOf(after) - sizeOf(before))
		for _, f := range o.onNode {
			f(l.Cluster, before, after)
		}
	})
	link.OnServerChange(func() {
		for _, f := range o.onServer {
			f(l.Cluster)
		}
	})
	return l
}

// start begins to use the cluster, until stop or the end of ctx.
func (l *live) start(ctx context.Context) {
	ctx, l.end = context.WithCancel(ctx)
	l.running.Go(func() { l.Run(ctx) })
	l.running.Go(func() {
		if !l.identify(ctx) {
			return
		}
		if l.Begin != nil {
			run := l.Begin()
			l.running.Go(func() { run(ctx) })
		}
		l.watch(ctx)
	})
}

// use has the next requests use other credentials, which what has failed does not concern. Errors:
// certificates that cannot be used.
func (l *live) use(a access.Access) error {
	if a == l.access {
		return nil
	}
	if err := l.connection.Use(a); err != nil {
		return err
	}
	l.access = a
	l.budget.Reset()
	return nil
}

// stop ends the use of the cluster, and removes its Nodes.
func (l *live) stop() {
	l.end()
	l.running.Wait()
	l.empty()
	l.connection.Close()
	l.budget.Close()
}

// identify returns when the cluster is identified; false means that ctx has ended.
func (l *live) identify(ctx context.Context) bool {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := l.one.identify(ctx, l.one.namespace, l.Cluster)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		is := ofServer
		if errors.As(err, new(*otherClusterError)) {
			is = ofCluster
		}
		l.one.set(l, is, err.Error())
		timer := l.one.cfg.Clock.NewTimer(wait.Jitter(pause, jitter))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C():
		}
	}
}

// works reports whether nothing is known to fail at present, also not for a moment.
func (l *live) works() bool {
	_, is, _, _ := l.one.state()
	_, err, _ := l.health.Broken()
	return is == none && err == nil
}

// broken returns why the Nodes have not been delivered for too long; "" if they are.
func (l *live) broken(after time.Duration) string {
	since, err, broken := l.health.Broken()
	if !broken || l.one.cfg.Clock.Since(since) < l.health.Tolerance(after) {
		return ""
	}
	if err == nil {
		return "its API server has not answered since its Nodes were requested"
	}
	return fmt.Sprintf("its Nodes are not delivered: %v", err)
}
