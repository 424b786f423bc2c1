package main

import (
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// decoded returns the objects of a manifest, which must not have fields that their kinds do not
// have.
func decoded(t *testing.T, file string) (objects []runtime.Object) {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for doc := range strings.SplitSeq(read(t, file), "\n---\n") {
		object, _, err := decoder.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, object)
	}
	return objects
}

// TestTheManifestsOfTheDocs: the Deployment has the one name that the cluster-autoscaler looks for,
// and its pod is never scheduled.
func TestTheManifestsOfTheDocs(t *testing.T) {
	const folder = "../../docs/examples/autoscaler/"
	d, ok := decoded(t, folder+"deployment.yaml")[0].(*appsv1.Deployment)
	if !ok || d.Name != "machine-controller-manager" || *d.Spec.Replicas != 1 || len(d.Spec.Template.Spec.SchedulingGates) != 1 {
		t.Errorf("the Deployment is %+v", d)
	}
	if n := len(decoded(t, folder+"access-control.yaml")) + len(decoded(t, folder+"access-target.yaml")); n != 3 {
		t.Errorf("%d objects grant the access, want 3", n)
	}
	if n := len(decoded(t, folder+"upstream-control.yaml")); n != 2 {
		t.Errorf("%d objects let upstream's autoscaler scale, want 2", n)
	}
	all := decoded(t, folder+"upstream.yaml")
	if d, ok = all[len(all)-1].(*appsv1.Deployment); !ok || !strings.Contains(d.Spec.Template.Spec.Containers[0].Args[0], "externalgrpc") {
		t.Errorf("upstream's autoscaler is %+v", d)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
