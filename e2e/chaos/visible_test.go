//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// The fleet's names of metrics and Events that the tests of unfit replicas expect.
const (
	metricFit        = "mcf_fit"            // by aspect: acts, observes, serves
	metricUnopened   = "mcf_unopened_slots" // by reason
	metricUnreached  = "mcf_unreached_accounts"
	eventUnfit       = "ReplicaUnfit" // on the session Lease
	eventUnreached   = "AccountUnreached"
	eventUndecodable = "Undecodable" // on the object
)

// sign is a place that shows that a replica cannot do its work. shown returns what it shows; errors
// name what is missing.
type sign struct {
	name  string
	shown func(ctx context.Context, b *bed, replica string) (string, error)
}

func notReady() sign {
	return sign{"/readyz fails", func(ctx context.Context, b *bed, replica string) (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.lab.Endpoint(replica)+"/readyz", http.NoBody)
		if err != nil {
			return "", err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return "", errors.New("it answers 200")
		}
		return answer.Status, nil
	}}
}

// unfit: at least one aspect of the replica's fitness is 0.
func unfit() sign {
	return sign{"metric " + metricFit + " is 0", func(ctx context.Context, b *bed, replica string) (string, error) {
		values, err := b.lab.Metrics(ctx, replica, metricFit)
		if err != nil {
			return "", err
		}
		for labels, value := range values {
			if value == 0 {
				return labels, nil
			}
		}
		return "", fmt.Errorf("got %v", values)
	}}
}

// unopened: the replica counts slots that do not open.
func unopened() sign {
	return sign{"metric " + metricUnopened + " is above 0", func(ctx context.Context, b *bed, replica string) (string, error) {
		values, err := b.lab.Metrics(ctx, replica, metricUnopened)
		if err != nil {
			return "", err
		}
		for labels, value := range values {
			if value > 0 {
				return fmt.Sprintf("%s %v", labels, value), nil
			}
		}
		return "", fmt.Errorf("got %v", values)
	}}
}

// unreached: the replica counts accounts that answer others.
func unreached() sign {
	return sign{"metric " + metricUnreached + " is above 0", func(ctx context.Context, b *bed, replica string) (string, error) {
		count, err := b.lab.Metric(ctx, replica, metricUnreached)
		if err == nil && count == 0 {
			err = errors.New("got 0")
		}
		return fmt.Sprint(count), err
	}}
}

// explained: /debug/slots has the reason why the replica is unfit.
func explained() sign {
	return sign{"/debug/slots has the reason", func(ctx context.Context, b *bed, replica string) (string, error) {
		var page struct {
			Fitness member.Fitness `json:"fitness"`
		}
		if err := b.lab.DebugSlots(ctx, replica, &page); err != nil {
			return "", err
		}
		if page.Fitness.IsFit() || page.Fitness.Reason == "" {
			return "", fmt.Errorf("got %v", page.Fitness)
		}
		return page.Fitness.Reason, nil
	}}
}

// reported: an Event with a reason regards an object.
func reported(reason, namespace, name string) sign {
	return sign{fmt.Sprintf("Event %s on %s/%s", reason, namespace, name), func(ctx context.Context, b *bed, _ string) (string, error) {
		list, err := b.lab.Control.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return "", err
		}
		for _, event := range list.Items {
			if event.Regarding.Name == name {
				return event.Note, nil
			}
		}
		return "", errors.New("there is none")
	}}
}

// ofReplica are the signs of each replica that cannot do its work because of the control cluster.
func ofReplica(replica string) []sign { return append(ofTarget(replica), notReady()) }

// ofTarget are the signs of each replica that cannot serve the target cluster. It is ready: other
// work continues.
func ofTarget(replica string) []sign {
	return []sign{
		unfit(), explained(),
		reported(eventUnfit, harness.FleetNamespace, member.SessionLeaseName(harness.FleetName, replica)),
	}
}

// ofCloud are the signs of each replica that does not reach a cloud that others reach. It is fit:
// it keeps all other slots.
func ofCloud(replica string) []sign {
	return []sign{
		unreached(), reported(eventUnreached, harness.FleetNamespace, member.SessionLeaseName(harness.FleetName, replica)),
	}
}

// lookout checks signs until each was seen once.
type lookout struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu   sync.Mutex
	seen map[string]string // by sign
	last map[string]error
}

// lookOut starts to check the signs of a replica.
func (b *bed) lookOut(t *testing.T, replica string, signs []sign) *lookout {
	t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	l := &lookout{cancel: cancel, ended: make(chan struct{}), seen: map[string]string{}, last: map[string]error{}}
	go func() {
		defer close(l.ended)
		begun := time.Now()
		_ = harness.EventuallyEvery(ctx, time.Second, "all signs were seen", func(ctx context.Context) error {
			return l.look(ctx, b, replica, signs, begun)
		}) // verdict reports what is missing
	}()
	t.Cleanup(l.stop)
	return l
}

func (l *lookout) look(ctx context.Context, b *bed, replica string, signs []sign, begun time.Time) error {
	for _, s := range signs {
		l.mu.Lock()
		_, known := l.seen[s.name]
		l.mu.Unlock()
		if known {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		text, err := s.shown(bounded, b, replica)
		cancel()
		l.mu.Lock()
		if err == nil {
			l.seen[s.name] = fmt.Sprintf("after %.1f s: %s", time.Since(begun).Seconds(), text)
		} else if ctx.Err() == nil {
			l.last[s.name] = err
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.seen) < len(signs) {
		return errors.New("not all")
	}
	return nil
}

func (l *lookout) stop() {
	l.cancel()
	<-l.ended
}

// verdict fails the test for each sign that was not seen.
func (l *lookout) verdict(t *testing.T, signs []sign) {
	t.Helper()
	l.stop()
	for _, s := range signs {
		if text, known := l.seen[s.name]; known {
			t.Logf("visible: %s, %s", s.name, text)
		} else {
			t.Errorf("not visible: %s: %v", s.name, l.last[s.name])
		}
	}
}
