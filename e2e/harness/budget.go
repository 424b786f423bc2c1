package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	configv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// stage is where a Node of a pool is in its update.
type stage struct {
	desired, current, state, reason string
	ready, cordoned                 bool
	// selected reports whether it is selected for its update in place, and awaits whether its critical
	// components are not ready after one.
	selected, awaits bool
	// serves reports whether it is available to pods and done with what it was assigned.
	serves bool
	// counts reports whether it does not serve and counts against maxUnavailable: no Node does before
	// its daemon has reported.
	counts bool
}

func stageOf(n *corev1.Node) stage {
	prefix := configv1alpha1.DaemonPrefix
	s := stage{
		desired: n.Annotations[prefix.DesiredConfig()], current: n.Annotations[prefix.CurrentConfig()],
		state: n.Annotations[prefix.State()], reason: n.Annotations[prefix.Reason()], cordoned: n.Spec.Unschedulable,
		selected: machinefacts.IsInPlaceSelected(n), awaits: machinefacts.AwaitsComponents(n),
	}
	for _, c := range n.Status.Conditions {
		s.ready = s.ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	done := s.current == s.desired && configv1alpha1.ParseNodeState(s.state) == configv1alpha1.StateDone
	s.serves = s.ready && !s.cordoned && !s.selected && !s.awaits && (s.desired == "" || done)
	s.counts = !s.serves && (s.current != "" || s.state != "")
	return s
}

func (s stage) String() string {
	return fmt.Sprintf("desired %q, current %q, state %s (%s), ready: %t, cordoned: %t, selected: %t, awaits components: %t",
		s.desired, s.current, s.state, s.reason, s.ready, s.cordoned, s.selected, s.awaits)
}

// Budget watches all Nodes of a pool, each change of them, and checks that a Node which serves is
// assigned a configuration, or is selected for an update in place, only while the Nodes that count
// stay within a limit with it.
type Budget struct {
	stop  func()
	ended chan struct{}

	mu     sync.Mutex
	limit  int
	most   int
	stages map[string]stage
	err    error
}

// WatchBudget watches the Nodes of a pool until Stop.
func (l *Lab) WatchBudget(ctx context.Context, pool string, limit int) (*Budget, error) {
	ctx, cancel := context.WithCancel(ctx)
	selector := LabelPool + "=" + pool
	list, err := l.Target.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("list the Nodes of pool %s: %w", pool, err)
	}
	watcher, err := Watch(ctx, list.ResourceVersion, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.LabelSelector = selector
		return l.Target.CoreV1().Nodes().Watch(ctx, o)
	})
	if err != nil {
		cancel()
		return nil, err
	}
	b := &Budget{stop: cancel, ended: make(chan struct{}), limit: limit, stages: map[string]stage{}}
	for i := range list.Items {
		b.stages[list.Items[i].Name] = stageOf(&list.Items[i])
	}
	go func() {
		defer close(b.ended)
		for event := range watcher.ResultChan() {
			b.see(event)
		}
		if ctx.Err() == nil {
			b.fail(errors.New("the watch of Nodes has ended"))
		}
	}()
	return b, nil
}

// SetLimit changes the limit, before the pool's.
func (b *Budget) SetLimit(limit int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit, b.most = limit, 0
}

// Most returns how many Nodes at most counted when one was assigned a configuration or selected,
// since the limit was set.
func (b *Budget) Most() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most
}

// Stop ends the watch, and returns all violations.
func (b *Budget) Stop() error {
	b.stop()
	<-b.ended
	return b.err
}

func (b *Budget) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = errors.Join(b.err, err)
}

func (b *Budget) see(event watch.Event) {
	n, ok := event.Object.(*corev1.Node)
	if !ok {
		b.fail(fmt.Errorf("watch of Nodes: got %T", event.Object))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	before, known := b.stages[n.Name]
	if event.Type == watch.Deleted {
		delete(b.stages, n.Name)
		return
	}
	now := stageOf(n)
	b.stages[n.Name] = now
	if !known || !before.serves || now.desired == before.desired && !now.selected {
		return
	}
	var absent []string
	for name, at := range b.stages {
		if at.counts {
			absent = append(absent, name+": "+at.String())
		}
	}
	b.most = max(b.most, len(absent))
	if len(absent) > b.limit {
		b.err = errors.Join(b.err, fmt.Errorf("%d Nodes do not serve, and at most %d may, when Node %s begins an update, %s:\n%s",
			len(absent), b.limit, n.Name, now, strings.Join(absent, "\n")))
	}
}
