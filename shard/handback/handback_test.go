package handback

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// object returns an object with labels and annotations of the fleet and of others.
func object(apiVersion, kind, namespace string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "one", Finalizers: []string{v1alpha1.FinalizerName},
			Labels:      map[string]string{"a": "b", v1alpha1.LabelSlot: "7", v1alpha1.LabelMachineTemplateHash: "1"},
			Annotations: map[string]string{"c": "d", v1alpha1.AnnotationPriority: "3", v1alpha1.AnnotationIntents: "{}"},
		},
	}
}

func lease(namespace, name, holder string, labels map[string]string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, ResourceVersion: "1"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
}

// config returns what Leave needs, and the server of its control cluster.
func config(leases ...apiserver.Typed) (Config, *apiserver.Server) {
	control := apiserver.Recording(leases...)
	for _, kind := range []string{"MachineDeployment", "MachineSet", "Machine"} {
		apiserver.Add(control, object(v1alpha1.SchemeGroupVersion.String(), kind, "n"))
	}
	return Config{
		Client: control.Core(), Clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), Metadata: control.Metadata(),
		Target: apiserver.Recording(object("v1", "Node", "")).Metadata(),
		Fleet:  "fleet", FleetNamespace: "home", Identity: "us", OnWait: func(time.Duration) {},
	}, control
}

func TestLeaveWithoutATargetCluster(t *testing.T) {
	cfg, _ := config()
	cfg.Target = nil
	report, err := Leave(t.Context(), cfg)
	if want := (Report{Objects: 3}); err != nil || report != want {
		t.Errorf("%+v, %v, want %+v", report, err, want)
	}
}

func TestAllLabelsAndAnnotationsOfTheFleetAreRemoved(t *testing.T) {
	cfg, _ := config(lease("n", v1alpha1.LeaseManager, "us", nil), lease("other", v1alpha1.LeaseManager, "them", nil),
		lease("n", "unrelated", "us", nil))
	report, err := Leave(t.Context(), cfg)
	if want := (Report{Objects: 4, Leases: 1}); err != nil || report != want {
		t.Fatalf("%+v, %v, want %+v", report, err, want)
	}
	for resource, client := range map[string]metadata.Interface{
		"machinedeployments": cfg.Metadata, "machines": cfg.Metadata, "nodes": cfg.Target,
	} {
		gvr := v1alpha1.SchemeGroupVersion.WithResource(resource)
		if resource == "nodes" {
			gvr = schema.GroupVersionResource{Version: "v1", Resource: resource}
		}
		list, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%s: %v, %v", resource, list, err)
		}
		got := list.Items[0]
		if diff := cmp.Diff(map[string]string{"a": "b", v1alpha1.LabelMachineTemplateHash: "1"}, got.Labels); diff != "" {
			t.Errorf("%s, labels (-want +got):\n%s", resource, diff)
		}
		if diff := cmp.Diff(map[string]string{"c": "d", v1alpha1.AnnotationPriority: "3"}, got.Annotations); diff != "" {
			t.Errorf("%s, annotations (-want +got):\n%s", resource, diff)
		}
		if len(got.Finalizers) != 1 {
			t.Errorf("%s: finalizers %v", resource, got.Finalizers)
		}
	}
	for key, want := range map[[2]string]string{
		{"n", v1alpha1.LeaseManager}: "", {"other", v1alpha1.LeaseManager}: "them", {"n", "unrelated"}: "us",
	} {
		got, err := cfg.Client.CoordinationV1().Leases(key[0]).Get(t.Context(), key[1], metav1.GetOptions{})
		if err != nil || *got.Spec.HolderIdentity != want {
			t.Errorf("Lease %v: %v, %v, want holder %q", key, got, err, want)
		}
	}
	if report, err := Leave(t.Context(), cfg); err != nil || report != (Report{}) {
		t.Errorf("the second time: %+v, %v", report, err)
	}
}

func TestLeaveRefusesWhileASessionLives(t *testing.T) {
	ofSession := map[string]string{v1alpha1.LabelFleet: "fleet", v1alpha1.LabelLease: v1alpha1.LeaseOfSession}
	for _, tc := range []struct {
		name   string
		renews bool
	}{{"alive", true}, {"dead", false}} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, control := config(lease("home", "fleet-session-a", "a_12345", ofSession), lease("home", "fleet-session-b", "", ofSession))
			if tc.renews {
				control.Refuse("update leases", apierrors.NewConflict(schema.GroupResource{}, "fleet-session-a", errors.New("it was renewed")))
			}
			wall, _ := cfg.Clock.(*clocktesting.FakeClock)
			report, err := leaveStepping(t, cfg, wall, 15*time.Second)
			living, ok := errors.AsType[*LivingError](err)
			if ok != tc.renews || ok && len(living.Sessions) != 1 {
				t.Errorf("%+v, %v", report, err)
			}
			if !tc.renews && err != nil || (report.Objects > 0) == tc.renews {
				t.Errorf("%s objects cleaned, %v", strconv.Itoa(report.Objects), err)
			}
		})
	}
}

// Of the target clusters of namespaces the Nodes of their machines are cleaned. One that cannot be
// connected to holds up no other, and no Lease.
func TestNodesOfTheTargetsOfNamespacesAreCleaned(t *testing.T) {
	for _, namespace := range []string{"", "n"} {
		cfg, control := config(lease("n", v1alpha1.LeaseManager, "us", nil), lease("n", v1alpha1.LeaseMachineController, "us", nil))
		apiserver.Add(control, object(v1alpha1.SchemeGroupVersion.String(), "Machine", "away"))
		node := func(name, machine string) *metav1.PartialObjectMetadata {
			o := object("v1", "Node", "")
			o.Name, o.Annotations[v1alpha1.AnnotationMachine] = name, machine
			return o
		}
		nodes := apiserver.Recording(node("ours", "n/one/u"), node("of-another", "other/one/u"), node("of-none", ""))
		released := false
		cfg.Namespace, cfg.Target = namespace, nil
		cfg.OpenTarget = func(_ context.Context, namespace string) (metadata.Interface, func(), error) {
			if namespace != "n" {
				return nil, nil, errors.New("it does not answer")
			}
			return nodes.Metadata(), func() { released = true }, nil
		}
		report, err := Leave(t.Context(), cfg)
		if (err != nil) != (namespace == "") || err != nil && !strings.Contains(err.Error(), "namespace away keep annotations of the fleet") {
			t.Errorf("namespace %q: got the error %v", namespace, err)
		}
		want := Report{Objects: 5, Leases: 2} // with the Machine of the other namespace
		if namespace != "" {
			want.Objects--
		}
		if report != want || !released {
			t.Errorf("namespace %q: %+v, released: %t, want %+v", namespace, report, released, want)
		}
		for name, cleaned := range map[string]bool{"ours": true, "of-another": false, "of-none": false} {
			is := nodes.Get("nodes", "", name)
			_, labeled := is.GetLabels()[v1alpha1.LabelSlot]
			_, bound := is.GetAnnotations()[v1alpha1.AnnotationMachine]
			if labeled == cleaned || bound == cleaned || len(is.GetFinalizers()) != 1 {
				t.Errorf("Node %s: %+v", name, is)
			}
		}
	}
}

// One namespace can be left while the fleet serves others, when it holds no Lease there.
func TestANamespaceIsLeftWhileSessionsLive(t *testing.T) {
	ofSession := map[string]string{v1alpha1.LabelFleet: "fleet", v1alpha1.LabelLease: v1alpha1.LeaseOfSession}
	for _, tc := range []struct {
		name, namespace, manager, controller string // holders of the Leases; "-" stands for no Lease
		leaves                               bool
	}{
		{name: "released", namespace: "n", manager: "", controller: "them", leaves: true},
		{name: "one is held", namespace: "n", manager: "", controller: "us"},
		{name: "one does not exist", namespace: "n", manager: "", controller: "-"},
		{name: "all namespaces", manager: "", controller: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, control := config(lease("n", v1alpha1.LeaseManager, tc.manager, nil), lease("home", "fleet-session-a", "a_12345", ofSession))
			if tc.controller != "-" {
				apiserver.Add(control, lease("n", v1alpha1.LeaseMachineController, tc.controller, nil))
			}
			control.Refuse("update leases", apierrors.NewConflict(schema.GroupResource{}, "fleet-session-a", errors.New("it was renewed")))
			cfg.Namespace = tc.namespace
			wall, _ := cfg.Clock.(*clocktesting.FakeClock)
			report, err := leaveStepping(t, cfg, wall, 15*time.Second)
			if _, lives := errors.AsType[*LivingError](err); lives == tc.leaves || tc.leaves && (err != nil || report.Objects != 3) {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}
