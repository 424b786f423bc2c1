package session

import (
	"fmt"
	"os"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// TestBytesBetweenReplicas measures, in bytes on the wire, what each replica receives for each
// renewal and each report of each replica, with the record of writers that an API server keeps.
// Renewals have to stay below mostRenewal however many machines there are. With -cost it prints the
// table of docs/operations/sizing.md, and what they were when renewals carried the report, as JSON.
func TestBytesBetweenReplicas(t *testing.T) {
	const mostRenewal = 900
	type size struct{ replicas, slots, targets int }
	sizes, deployments := []size{{3, 64, 1}}, 500
	if *costs {
		deployments, sizes = 10_000, nil
		for _, targets := range []int{1, 1000} {
			for _, slots := range []int{256, 1024} {
				for _, replicas := range []int{1, 3, 32} {
					sizes = append(sizes, size{replicas, slots, targets})
				}
			}
		}
		fmt.Fprintln(os.Stdout, "| target clusters | slots | replicas | renewal | report | received a second at rest | while all reports change "+
			"| renewal before | received a second before |")
		fmt.Fprintln(os.Stdout, "|---|---|---|---|---|---|---|---|---|")
	}
	for _, s := range sizes {
		f := newCosts(t, s.slots, s.replicas)
		f.weigh, f.tracked = landscape{deployments: deployments, targets: s.targets}.reports, tracked(t)
		f.install()
		f.run(30 * time.Second)
		renewal, report, before := 0, 0, 0
		for _, r := range f.replicas {
			session := f.leases[member.SessionLeaseName("fleet", r.settings.Replica)]
			written := f.leases[member.ReportLeaseName("fleet", r.settings.Replica)]
			if session == nil || written == nil {
				t.Fatalf("%+v: want a session Lease and a report of each replica, got %v and %v", s, session, written)
			}
			renewal += len(eventOf(t, runtime.ContentTypeProtobuf, session))
			report += len(eventOf(t, runtime.ContentTypeProtobuf, written))
			before += len(eventOf(t, runtime.ContentTypeJSON, withReport(t, session, written)))
		}
		leader := len(eventOf(t, runtime.ContentTypeProtobuf, f.leases["fleet-leader"]))
		settings := f.replicas[0].settings.Config
		atRest, changing := float64(renewal)/settings.RenewEvery.Seconds(), float64(report)/settings.WeighEvery.Seconds()
		if renewal /= s.replicas; renewal > mostRenewal {
			t.Errorf("%+v: a renewal has %d bytes, want at most %d", s, renewal, mostRenewal)
		}
		if *costs {
			fmt.Fprintf(os.Stdout, "| %d | %d | %d | %d B | %.1f kB | %.1f kB | %.1f kB | %.1f kB | %.1f kB |\n",
				s.targets, s.slots, s.replicas, renewal, float64(report)/float64(s.replicas)/1000, (atRest+float64(leader))/1000,
				(atRest+changing+float64(leader))/1000, float64(before)/float64(s.replicas)/1000,
				(float64(before)/settings.RenewEvery.Seconds()+float64(leader))/1000)
		}
	}
}

// withReport returns a session Lease as it was when renewals carried the report.
func withReport(tb testing.TB, session, report *coordinationv1.Lease) *coordinationv1.Lease {
	tb.Helper()
	l := session.DeepCopy()
	for _, key := range []string{v1alpha1.AnnotationWeights, v1alpha1.AnnotationCounts} {
		member.Annotate(l, key, report.Annotations[key])
	}
	return tracked(tb)(nil, l)
}

// tracked returns a function that adds to a Lease what the API server records of its writers.
func tracked(tb testing.TB) func(stored, l *coordinationv1.Lease) *coordinationv1.Lease {
	tb.Helper()
	kind := coordinationv1.SchemeGroupVersion.WithKind("Lease")
	manager := managedfieldstest.NewFakeFieldManager(applyconfigurations.NewTypeConverter(scheme.Scheme), kind)
	return func(stored, l *coordinationv1.Lease) *coordinationv1.Lease {
		if stored == nil {
			stored = &coordinationv1.Lease{}
		}
		stored, l = stored.DeepCopy(), l.DeepCopy()
		stored.SetGroupVersionKind(kind)
		l.SetGroupVersionKind(kind)
		obj, err := manager.Update(stored, l, "machine-controller-fleet")
		if err != nil {
			tb.Fatal(err)
		}
		now, ok := obj.(*coordinationv1.Lease)
		if !ok {
			tb.Fatalf("got %T", obj)
		}
		now.TypeMeta = metav1.TypeMeta{}
		return now
	}
}

// landscape has deployments of ten machines in three zones, of which one in a hundred is not Ready.
type landscape struct{ deployments, targets int }

// reports returns the weights of the slots that a replica holds, and its report about its machines.
func (l landscape) reports(r *costReplica) (weights map[int]int64, counts string) {
	spread, err := assignment.NewSpread(r.f.slots, assignment.ByDeployment)
	if err != nil {
		r.f.Fatal(err)
	}
	weights, own := map[int]int64{}, disruption.Own{}
	for slot := range r.f.slots {
		if _, holds := r.machine.Entitled(slot); holds {
			weights[slot], own[slot] = 0, disruption.Counts{}
		}
	}
	const machines, zones = 10, 3
	for n := range l.deployments {
		namespace, target := fmt.Sprintf("shoot--project--%d", n%max(l.targets, 20)), ""
		if l.targets > 1 {
			target = namespace
		}
		slot := spread.Of(namespace, fmt.Sprintf("pool-%d", n))
		counts, holds := own[slot]
		if !holds {
			continue
		}
		for m := range machines {
			weights[slot]++
			count := disruption.Count{Ready: 1}
			if (n*machines+m)%100 == 0 {
				count = disruption.Count{NotReady: 1}
			}
			counts.Add(disruption.Scope{Target: target, Zone: fmt.Sprintf("europe-west1-%c", 'b'+m%zones)}, namespace, count)
		}
	}
	return weights, disruption.Report(r.settings.Replica, own, disruption.Reports{}, "")
}
