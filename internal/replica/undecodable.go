package replica

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// undecodable reports the objects that this replica sees and that cannot be decoded: those of its
// slots, and MachineClasses of namespaces in which it has objects, which each such replica reports.
type undecodable struct {
	view   *objectcache.View
	events events.EventRecorder
}

// byKind returns them by kind.
func (u *undecodable) byKind() map[string]*objectcache.Objects[*decode.Failure] {
	return map[string]*objectcache.Objects[*decode.Failure]{
		policy.Deployment.String(): u.view.Deployments.Undecodable, policy.Set.String(): u.view.Sets.Undecodable,
		policy.Machine.String(): u.view.Machines.Undecodable, "MachineClass": u.view.Classes.Undecodable,
	}
}

// watch reports each version once, on the object and in the log. It is called before the first
// object is applied.
func (u *undecodable) watch() {
	for _, all := range u.byKind() {
		all.OnChange(func(before, after *decode.Failure) {
			if after != nil && (before == nil || before.ResourceVersion != after.ResourceVersion) {
				u.report(after)
			}
		})
	}
}

func (u *undecodable) report(f *decode.Failure) {
	klog.Background().Error(nil, "Object cannot be decoded and is not reconciled",
		"kind", f.Kind, "namespace", f.Namespace, "name", f.Name, "resourceVersion", f.ResourceVersion, "cause", f.Cause)
	ref := &corev1.ObjectReference{APIVersion: f.APIVersion, Kind: f.Kind, Namespace: f.Namespace, Name: f.Name, UID: f.UID}
	telemetry.EmitUnlogged(u.events, ref, v1alpha1.EventUndecodable, "The "+f.Kind+" cannot be decoded and is not reconciled: "+f.Cause+
		". Correct the field, for example with kubectl edit; reconciliation goes on by itself")
}

const undecodableHelp = "Objects in slots held here that cannot be decoded and are not reconciled, by kind; " +
	"MachineClasses count on each replica that has objects in their namespace."

// count registers a metric of them.
func (u *undecodable) count(registerer prometheus.Registerer) {
	for kind, all := range u.byKind() {
		registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "mcf_undecodable_objects", Help: undecodableHelp, ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 { return float64(all.Len()) }))
	}
}

// showLabeler passes the undecodable objects of this replica's slots to the labeler, which uses
// their metadata.
func (u *undecodable) showLabeler(labeler *slotlabel.Labeler) {
	reportLabeler(labeler, policy.Deployment, u.view.Deployments.Undecodable)
	reportLabeler(labeler, policy.Set, u.view.Sets.Undecodable)
	reportLabeler(labeler, policy.Machine, u.view.Machines.Undecodable)
}

// find returns the metadata of an object that cannot be decoded.
func (u *undecodable) find(kind policy.Kind, key types.NamespacedName) (metav1.Object, bool) {
	all, watched := u.byKind()[kind.String()]
	if !watched {
		return nil, false
	}
	return all.Get(key)
}
