package machine

import (
	"context"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// listsBeforeCensus is how many lists for single names may be sent within censusKept before the
// names of all Machines are listed at once. For a list of one name the API server goes through all
// Machines, too: 10,000 such lists, after a take-over from Machine Controller Manager, kept it busy
// for minutes.
const listsBeforeCensus = 20

// censusKept is for how long a census is used. Machines that it does not show can have an older
// creation only after a restore of etcd.
const censusKept = 30 * time.Second

// census contains what a list of all Machines has shown of their names.
type census struct {
	begun  time.Time
	newest metav1.Time         // creation of the youngest Machine
	shared map[uint64]struct{} // hashes of the names that several Machines have
}

// isUnique reports whether no other Machine with the name of m exists that is not younger. It is
// false while that is not known. Neither the name nor the creation of a Machine changes, and those
// that have been created since the census are not older than its youngest one.
func (c *census) isUnique(m metav1.Object, now time.Time) bool {
	if c == nil || now.Sub(c.begun) >= censusKept {
		return false
	}
	created := m.GetCreationTimestamp()
	_, isShared := c.shared[xxhash.Sum64String(m.GetName())]
	return created.Before(&c.newest) && !isShared
}

// namesakes finds Machines of the same name in all namespaces that are served, from the API server.
// Create it with newNamesakes; it is safe for concurrent use.
type namesakes struct {
	machines metadata.ResourceInterface
	clock    clock.PassiveClock
	taking   chan struct{} // has an entry while a census is taken

	mu     sync.Mutex
	latest *census
	since  time.Time // of the lists that are counted
	lists  int
}

func newNamesakes(machines metadata.ResourceInterface, clk clock.PassiveClock) *namesakes {
	return &namesakes{machines: machines, clock: clk, taking: make(chan struct{}, 1)}
}

// of returns the Machines with the name of m that may not be younger, and labels that include
// which; m may be one of them.
func (n *namesakes) of(ctx context.Context, m metav1.Object, which labels.Set) ([]*metav1.PartialObjectMetadata, error) {
	unique, err := n.isUnique(ctx, m)
	if err != nil || unique {
		return nil, err
	}
	list, err := n.machines.List(ctx, metav1.ListOptions{
		LabelSelector: which.String(), FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, m.GetName()).String(),
	})
	if err != nil {
		return nil, err
	}
	found := make([]*metav1.PartialObjectMetadata, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found, nil
}

// isUnique reports whether the census shows that m has its name alone, and takes one when that is
// due.
func (n *namesakes) isUnique(ctx context.Context, m metav1.Object) (bool, error) {
	if unique, due := n.known(m); !due {
		return unique, nil
	}
	select {
	case n.taking <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { <-n.taking }()
	if unique, due := n.known(m); !due { // another pass has taken it meanwhile
		return unique, nil
	}
	taken := &census{begun: n.clock.Now(), shared: map[uint64]struct{}{}}
	names := map[uint64]struct{}{}
	err := decode.EachObject(ctx, "Machines", metav1.ListOptions{}, n.machines.List, func(found *metav1.PartialObjectMetadata) {
		name := xxhash.Sum64String(found.Name)
		if _, known := names[name]; known {
			taken.shared[name] = struct{}{}
		}
		names[name] = struct{}{}
		if taken.newest.Before(&found.CreationTimestamp) {
			taken.newest = found.CreationTimestamp
		}
	})
	if err != nil {
		return false, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latest = taken
	return taken.isUnique(m, taken.begun), nil
}

// known reports whether the latest census shows that m has its name alone, and otherwise whether
// the next one is due. If it is not, a list for the name of m is counted.
func (n *namesakes) known(m metav1.Object) (unique, due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.Now()
	if n.latest.isUnique(m, now) {
		return true, false
	}
	if now.Sub(n.since) >= censusKept {
		n.since, n.lists = now, 0
	}
	if n.lists >= listsBeforeCensus && (n.latest == nil || now.Sub(n.latest.begun) >= censusKept) {
		return false, true
	}
	n.lists++
	return false, false
}
