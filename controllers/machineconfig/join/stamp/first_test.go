package stamp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestFirst(t *testing.T) {
	root := v1alpha1.MachineReference{Kind: KindDeployment, Namespace: "n", Name: "d"}
	daemon := func(p *v1alpha1.MachineConfigPool) { p.Spec.Rollout = v1alpha1.RolloutDaemon }
	for _, tc := range []struct {
		name    string
		change  func(p *v1alpha1.MachineConfigPool)
		machine string // the annotation of its template
		root    *v1alpha1.MachineReference
		want    string // a configuration, or a part of the problem
	}{
		{name: "its template names it", machine: config("a"), want: config("a")},
		{name: "its template names none yet", want: config("b")},
		{name: "its template names one of another pool", machine: "rendered-secret-1", want: "none of pool p"},
		{name: "daemons are assigned, and no Node has the target yet", change: daemon, want: config("b")},
		{name: "the template names what an earlier rollout has left", change: daemon, machine: config("a"), want: config("b")},
		{
			name: "all had another one, and no Node has the target yet", want: config("a"),
			change: func(p *v1alpha1.MachineConfigPool) { daemon(p); p.Status.CompletedMachineConfig = config("a") },
		},
		{
			name: "a Node has shown that the target works", want: config("b"),
			change: func(p *v1alpha1.MachineConfigPool) {
				daemon(p)
				p.Status.CompletedMachineConfig, p.Status.UpdatedMachineCount = config("a"), 1
			},
		},
		{
			name: "nothing was rendered", change: func(p *v1alpha1.MachineConfigPool) { daemon(p); p.Status.CurrentMachineConfig = "" },
			want: "nothing was rendered for MachineConfigPool p",
		},
		{
			name: "no pool", root: &v1alpha1.MachineReference{Kind: KindDeployment, Namespace: "n", Name: "e"},
			want: "no MachineConfigPool refers to MachineDeployment n/e",
		},
		{
			name: "a set of that name", root: &v1alpha1.MachineReference{Kind: KindSet, Namespace: "n", Name: "d"},
			want: "no MachineConfigPool refers to MachineSet n/d",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pool, m := newPool(), &machinev1alpha1.Machine{}
			if tc.change != nil {
				tc.change(pool)
			}
			if tc.machine != "" {
				m.Annotations = map[string]string{v1alpha1.AnnotationMachineConfig: tc.machine}
			}
			at := root
			if tc.root != nil {
				at = *tc.root
			}
			config, problem := First(m, at, []*v1alpha1.MachineConfigPool{pool})
			isConfig := strings.HasPrefix(tc.want, "rendered-")
			if isConfig && (config != tc.want || problem != "") || !isConfig && (config != "" || !strings.Contains(problem, tc.want)) {
				t.Errorf("config %q, problem %q; want %q", config, problem, tc.want)
			}
		})
	}
}

func TestTheOldestReferringPoolHasTheMachines(t *testing.T) {
	at := func(name string, age time.Duration) *v1alpha1.MachineConfigPool {
		return newPool(func(p *v1alpha1.MachineConfigPool) {
			p.Name, p.UID, p.CreationTimestamp = name, types.UID(name), metav1.NewTime(now.Add(-age))
		})
	}
	all := []*v1alpha1.MachineConfigPool{
		at("young", 0), at("z-old", time.Hour), at("a-old", time.Hour),
		newPool(func(p *v1alpha1.MachineConfigPool) { p.Name, p.Spec.MachineRef = "selecting", nil }),
		newPool(func(p *v1alpha1.MachineConfigPool) { p.Name, p.Spec.MachineRef.Namespace = "elsewhere", "m" }),
	}
	var names []string
	for _, pool := range Referring(all, v1alpha1.MachineReference{Kind: KindDeployment, Namespace: "n", Name: "d"}) {
		names = append(names, pool.Name)
	}
	if fmt.Sprint(names) != "[a-old z-old young]" || !HasMachines(all, all[2]) || HasMachines(all, all[0]) {
		t.Error(names)
	}
}
