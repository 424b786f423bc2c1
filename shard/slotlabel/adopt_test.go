package slotlabel

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// An orphan that was changed or deleted since it was read may be no orphan any more: it is read
// again.
func TestAdopt(t *testing.T) {
	machines, away := schema.GroupResource{Resource: "machines"}, errors.New("away")
	for name, test := range map[string]struct {
		at     string // the request that gets the answer
		answer error
		before string // a change of the orphan after it was read
		fails  bool
		owner  string
	}{
		"succeeds":                        {owner: "1-set"},
		"after the orphan was deleted":    {at: "get machines", answer: apierrors.NewNotFound(machines, "2")},
		"while the orphan is deleted":     {at: "patch machines", answer: apierrors.NewNotFound(machines, "2")},
		"after the orphan has changed":    {before: `{"metadata":{"labels":{"pool":"b"}}}`},
		"without an answer to the read":   {at: "get machines", answer: away, fails: true},
		"without an answer to the change": {at: "patch machines", answer: away, fails: true},
	} {
		b := idleBench(t, []int{1})
		orphan := policy.Of(policy.Machine, apiserver.Add(b.control, meta(policy.Machine, "2", "", "")))
		if test.before != "" {
			b.control.Merge("machines", "n", "2", test.before)
		}
		if test.at != "" {
			b.control.Refuse(test.at, test.answer)
		}
		adopted, err := b.labeler.adoptAll(context.Background(), []policy.Adoption{
			{Orphan: orphan, Adopter: policy.Adopter{Name: "1-set", UID: "1-set"}},
		})
		if (err != nil) != test.fails || adopted == test.fails {
			t.Errorf("%s: adopted %t, %v", name, adopted, err)
		}
		owner := ""
		if ref := metav1.GetControllerOf(b.read(policy.Machine, "2")); ref != nil {
			owner = ref.Name
		}
		if owner != test.owner {
			t.Errorf("%s: the owner is %q, want %q", name, owner, test.owner)
		}
	}
}
