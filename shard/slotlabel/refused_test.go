package slotlabel

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// eventLog has the Events of a Labeler, without the answer of the API server.
type eventLog struct {
	mu  sync.Mutex
	all []string
}

func (e *eventLog) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text, _, _ := strings.Cut(fmt.Sprintf(note, args...), ":")
	on, _ := about.(*corev1.ObjectReference)
	e.all = append(e.all, fmt.Sprintf("%s %s %s: %s", on.Kind, on.UID, reason, text))
}

// A webhook refuses to change one object of a tree: the root says so, once, and nothing of the tree
// is reconciled. A Node keeps no other object from its label.
func TestLabelThatIsRefusedIsReportedOnTheRoot(t *testing.T) {
	for refused, c := range map[string]struct {
		labels, events []string
	}{
		"machines": {[]string{"node-m"}, []string{
			"MachineDeployment 1 NotLabeled: Machine m cannot be labeled with its slot, " +
				"and nothing of this object is reconciled until it can be written",
		}},
		"nodes": {[]string{"1", "m", "s"}, []string{
			"MachineDeployment 1 NotLabeled: Node node-m cannot be labeled with its slot, and its machine has no Node until it can be written",
		}},
	} {
		t.Run(refused, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := stillBench(t, []int{1}, meta(policy.Deployment, "1", "", ""), meta(policy.Set, "s", "", "1"), meta(policy.Machine, "m", "", "s"),
					meta(policy.Node, "node-m", "", ""))
				refusal := apierrors.NewInvalid(schema.GroupKind{Kind: "Machine"}, "any", nil)
				b.control.Refuse("patch "+refused, refusal)
				b.target.Refuse("patch "+refused, refusal)
				b.run()
				time.Sleep(time.Hour)
				synctest.Wait()
				want := map[string]string{"1": "", "s": "", "m": "", "node-m": ""}
				for _, name := range c.labels {
					want[name] = "1"
				}
				if diff := cmp.Diff(want, b.labels()); diff != "" {
					t.Errorf("labels (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(c.events, b.events.all); diff != "" {
					t.Errorf("Events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestIsRefused(t *testing.T) {
	for code, want := range map[int32]bool{
		0: false, 399: false, 400: true, 401: false, 403: true, 404: false, 408: false, 409: false, 418: true, 422: true, 429: false, 499: true,
		500: false, 503: false,
	} {
		err := fmt.Errorf("write: %w", statusOf(code))
		if got := isRefused(err); got != want {
			t.Errorf("%d: refused %t, want %t", code, got, want)
		}
	}
	if isRefused(nil) || isRefused(fmt.Errorf("no answer")) {
		t.Error("what is no answer counts as one that refuses")
	}
}

func statusOf(code int32) error {
	err := &apierrors.StatusError{}
	err.ErrStatus.Code = code
	return err
}
