package credentials

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// TestSweep deletes the token of a machine that is gone, and of no other.
func TestSweep(t *testing.T) {
	for name, tc := range map[string]struct {
		live        types.UID // of the machine of that name; "" for none
		undecodable bool
		answer      error // to the read of it
		fails       bool
		noTarget    bool
		late        time.Duration // after the token has expired
		kept        bool
		reads       int // of the machine
	}{
		"the machine does not exist":                      {reads: 1},
		"it exists":                                       {live: "u", kept: true, reads: 1},
		"another one has its name":                        {live: "v", reads: 1},
		"it exists, and cannot be decoded":                {live: "u", undecodable: true, kept: true, reads: 1},
		"another one has its name, and cannot be decoded": {live: "v", undecodable: true, reads: 1},
		"it cannot be read": {
			answer: apierrors.NewInternalError(errors.New("not now")), fails: true, kept: true, reads: 1,
		},
		"in the second in which its token expires":          {late: 999 * time.Millisecond, reads: 1},
		"its token has expired: the cluster has removed it": {late: time.Second, kept: true},
		"there is no target cluster":                        {noTarget: true, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := apiserver.Recording()
			created(t, cluster, newTokens(now))
			machines := apiserver.Recording()
			if tc.live != "" {
				apiserver.Add(machines, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", UID: tc.live}})
			}
			if tc.undecodable {
				machines.SetUndecodable("machines", "n", "m", true)
			}
			machines.Refuse("get machines", tc.answer)
			cfg := TokensConfig{Machines: machines.Machines(), Clock: clocktesting.NewFakeClock(now.Add(life + tc.late)), Targets: target.Single{}}
			if !tc.noTarget {
				cfg.Targets = target.Single{Cluster: target.New(cluster.Core())}
			}
			gone := Gone{NamespacedName: types.NamespacedName{Namespace: "n", Name: "m"}, UID: "u", Until: now.Add(life).Unix()}
			process, err := NewTokens(cfg)
			if err != nil {
				t.Fatal(err)
			}
			result, err := process.Sweep(t.Context(), gone)
			if result.RequeueAfter != 0 || (err != nil) != tc.fails {
				t.Errorf("again after %s, error %v; want never, an error: %t", result.RequeueAfter, err, tc.fails)
			}
			if left := tokens(cluster); len(left) > 0 != tc.kept {
				t.Errorf("left: %v, want the token kept: %t", left, tc.kept)
			}
			if reads := machines.Count("get machines"); reads != tc.reads {
				t.Errorf("requests %v, want %d reads of the machine", machines.Log(), tc.reads)
			}
		})
	}
}
