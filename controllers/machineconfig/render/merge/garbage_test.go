package merge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

// rendered returns an object of a pool, created so long ago.
func rendered(pool, name string, age time.Duration) *v1alpha1.RenderedMachineConfig {
	return &v1alpha1.RenderedMachineConfig{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{v1alpha1.LabelPool: pool}, Finalizers: []string{v1alpha1.FinalizerInUse},
		CreationTimestamp: metav1.NewTime(start.Add(-age)),
	}}
}

func TestGarbage(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name   string
		change func(all []*v1alpha1.RenderedMachineConfig, uses *Uses)
		want   string
	}{
		// Of seven, a1 is the newest and the target. a1 to a5 are the newest five.
		{"old ones", func([]*v1alpha1.RenderedMachineConfig, *Uses) {}, "delete a6 a7"},
		{"a Node names one", func(_ []*v1alpha1.RenderedMachineConfig, u *Uses) { u.Names = []string{"a6"} }, "delete a7"},
		{"a pool completed one", func(_ []*v1alpha1.RenderedMachineConfig, u *Uses) {
			u.Pools = append(u.Pools, status("b", "a7", "a7"))
		}, "delete a6"},
		{"while it is updating", func(_ []*v1alpha1.RenderedMachineConfig, u *Uses) { u.Pools[0] = status("a", "a1", "a2") }, ""},
		{"before the first update", func(_ []*v1alpha1.RenderedMachineConfig, u *Uses) { u.Pools[0] = status("a", "a1", "") }, ""},
		{"while another is updating", func(_ []*v1alpha1.RenderedMachineConfig, u *Uses) {
			u.Pools = append(u.Pools, status("b", "b1", "b2"))
		}, "delete a6 a7"},
		{
			"a pool that is gone", func(_ []*v1alpha1.RenderedMachineConfig, u *Uses) { u.Pools = nil; u.Names = []string{"a1"} },
			"delete a2 a3 a4 a5 a6 a7",
		},
		{"almost a day old", func(all []*v1alpha1.RenderedMachineConfig, _ *Uses) {
			for i, r := range all {
				r.CreationTimestamp = metav1.NewTime(start.Add(-day + time.Second - time.Duration(i)*time.Second))
			}
		}, "delete a6 a7"},
		{"less than a day old", func(all []*v1alpha1.RenderedMachineConfig, _ *Uses) {
			for _, r := range all {
				r.CreationTimestamp = metav1.NewTime(start.Add(-day + time.Second))
			}
		}, ""},
		{"a user deletes an old one", func(all []*v1alpha1.RenderedMachineConfig, _ *Uses) { deleting(all[6]) }, "delete a6 release a7"},
		{"a user deletes the target", func(all []*v1alpha1.RenderedMachineConfig, _ *Uses) { deleting(all[0]) }, "delete a7"},
		{
			"a user deletes what a Node names", func(all []*v1alpha1.RenderedMachineConfig, u *Uses) { deleting(all[2]); u.Names = []string{"a3"} },
			"delete a7",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var all []*v1alpha1.RenderedMachineConfig
			for i := 1; i <= 7; i++ {
				all = append(all, rendered("a", fmt.Sprint("a", i), time.Duration(i)*2*day))
			}
			uses := Uses{Pools: []*v1alpha1.MachineConfigPool{status("a", "a1", "a1")}}
			tc.change(all, &uses)
			d := Garbage(start, all, uses)
			got := ""
			if len(d.Delete) > 0 {
				got += " delete " + strings.Join(d.Delete, " ")
			}
			if len(d.Release) > 0 {
				got += " release " + strings.Join(d.Release, " ")
			}
			if diff := cmp.Diff(tc.want, strings.TrimSpace(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func status(name, target, completed string) *v1alpha1.MachineConfigPool {
	p := pool(name)
	p.Status.CurrentMachineConfig, p.Status.CompletedMachineConfig = target, completed
	return p
}

func deleting(r *v1alpha1.RenderedMachineConfig) {
	now := metav1.NewTime(start)
	r.DeletionTimestamp = &now
}

func TestMayRelease(t *testing.T) {
	all := []*v1alpha1.RenderedMachineConfig{rendered("a", "a1", 0), rendered("b", "b1", 0)}
	if MayRelease("a", all, []string{"b1", "a1"}) {
		t.Error("a Node names a1: want the pool kept")
	}
	if !MayRelease("a", all, []string{"b1", "other"}) {
		t.Error("no Node names its own: want the pool released")
	}
}
