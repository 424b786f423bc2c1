package text_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// now is the time of testdata/snapshot.yaml.
var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// recorded returns the snapshot of a file with objects of both clusters.
func recorded(t *testing.T, file string) view.Snapshot {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	s := view.Snapshot{Now: now, FleetName: "fleet", Timeouts: view.DefaultTimeouts()}
	documents := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(content)))
	buffer := make([]byte, len(content))
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		add(t, &s, decoded(t, buffer[:n]))
	}
}

func decoded(t *testing.T, document []byte) runtime.Object {
	t.Helper()
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
	if err != nil {
		object, _, err = clientscheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
	}
	if err != nil {
		t.Fatalf("%v in:\n%s", err, document)
	}
	return object
}

func add(t *testing.T, s *view.Snapshot, object runtime.Object) {
	t.Helper()
	switch o := object.(type) {
	case *v1alpha1.MachineDeployment:
		s.Deployments = append(s.Deployments, o)
	case *v1alpha1.MachineSet:
		s.Sets = append(s.Sets, o)
	case *v1alpha1.Machine:
		s.Machines = append(s.Machines, o)
	case *v1alpha1.MachineClass:
		s.Classes = append(s.Classes, o)
	case *corev1.Namespace:
		s.Namespaces = append(s.Namespaces, o)
	case *corev1.Node:
		s.Nodes = append(s.Nodes, o)
	case *corev1.Pod:
		s.Pods = append(s.Pods, o)
	case *policyv1.PodDisruptionBudget:
		s.Budgets = append(s.Budgets, o)
	case *coordinationv1.Lease:
		s.Leases = append(s.Leases, o)
	case *eventsv1.Event:
		s.Events = append(s.Events, o)
	default:
		t.Fatalf("no place for a %T", object)
	}
}
