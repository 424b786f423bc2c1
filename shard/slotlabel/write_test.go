package slotlabel

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

func TestWrite(t *testing.T) {
	refusal := apierrors.NewInvalid(schema.GroupKind{Kind: "Machine"}, "any", nil)
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, "any", nil)
	away := apierrors.NewInternalError(context.Canceled)
	for name, test := range map[string]struct {
		kind     policy.Kind
		answers  map[string]error // to the writes of a and b
		lost     bool             // the slot
		ended    bool             // the pass
		replaced bool             // are both since they were read
		done     []string
		requests int
		err      string
	}{
		"all": {kind: policy.Machine, done: []string{"a", "b"}, requests: 2},
		"one fails": {
			kind: policy.Machine, answers: map[string]error{"a": away}, done: []string{"b"}, requests: 2,
			err: "label Machine n/a: Internal error occurred: context canceled",
		},
		"both fail": {
			kind: policy.Set, answers: map[string]error{"a": away, "b": away}, requests: 2,
			err: "label MachineSet n/a: Internal error occurred: context canceled (and 1 more like it)",
		},
		"one has changed": {kind: policy.Machine, answers: map[string]error{"a": conflict}, done: []string{"b"}, requests: 2},
		"one is refused": {
			kind: policy.Machine, answers: map[string]error{"a": refusal}, done: []string{"b"}, requests: 2,
			err: `label Machine n/a: Machine "any" is invalid`,
		},
		"a Node is refused": {
			kind: policy.Node, answers: map[string]error{"a": refusal}, done: []string{"a", "b"}, requests: 2,
			err: `label Node /a: Machine "any" is invalid`,
		},
		"a Node fails": {
			kind: policy.Node, answers: map[string]error{"a": away}, done: []string{"b"}, requests: 2,
			err: "label Node /a: Internal error occurred: context canceled",
		},
		"the slot is lost":    {kind: policy.Machine, lost: true},
		"the pass has ended":  {kind: policy.Machine, ended: true},
		"Nodes were replaced": {kind: policy.Node, replaced: true, requests: 2},
		"both were deleted":   {kind: policy.Deployment, done: []string{"a", "b"}, requests: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := idleBench(t, []int{1})
				objects := make([]policy.Object, 0, 2)
				server := b.serverOf(test.kind)
				for _, name := range []string{"a", "b"} {
					o := meta(test.kind, name, "", "")
					if test.kind != policy.Deployment {
						o = apiserver.Add(server, o)
					}
					read := policy.Of(test.kind, o)
					if test.replaced {
						read.UID = "before"
					}
					objects = append(objects, read)
				}
				server.Fault(func(r apiserver.Request) error {
					if r.Name == "b" {
						synctest.Wait() // the first one is reported first
					}
					return test.answers[r.Name]
				})
				b.setHeld(1, !test.lost)
				ctx, end := context.WithCancel(t.Context())
				defer end()
				if test.ended {
					end()
				}
				got, err := b.labeler.write(ctx, 1, objects, policy.Tree{Slot: 1})
				var done []string
				for _, o := range got {
					done = append(done, o.Name)
				}
				slices.Sort(done)
				if !slices.Equal(done, test.done) || server.Count("patch *") != test.requests {
					t.Errorf("done: %v with %d requests, want %v with %d", done, server.Count("patch *"), test.done, test.requests)
				}
				if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
					t.Errorf("error %v, want %s", err, test.err)
				}
			})
		})
	}
}
