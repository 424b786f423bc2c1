package replica

import (
	"encoding/pem"
	"net/http/httptest"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/bynamespace"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
)

// A command connects to the target cluster of a namespace by the rules of a replica.
func TestOpenTarget(t *testing.T) {
	cluster := apiserver.Recording(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "first"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
	)
	server := httptest.NewTLSServer(cluster)
	defer server.Close()
	data := targettest.SecretOf(server.URL, "t")
	data[access.KeyCA] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	record := func(uid string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: targetLease, Annotations: map[string]string{v1alpha1.AnnotationTargetCluster: uid},
		}}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "target"}, Data: data}
	of := TargetOptions{Select: bynamespace.Selection{Secret: "target"}}
	for _, tc := range []struct {
		name    string
		control []apiserver.Typed
		of      TargetOptions
		want    string // part of the error, "" for none
	}{
		{"that has no record", []apiserver.Typed{secret}, of, ""},
		{"that is recorded", []apiserver.Typed{secret, record("first")}, of, ""},
		{"another one", []apiserver.Typed{secret, record("second")}, of, "that of another cluster than before"},
		{"no Secret", nil, of, "expected a Secret target, got none"},
		{"a refused network", []apiserver.Typed{secret}, TargetOptions{Select: of.Select, Refused: access.Local()}, "is in a network"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nodes, release, err := OpenTarget(t.Context(), apiserver.Recording(tc.control...).Core(), tc.of, "a")
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got the error %v, want %s", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			list, err := nodes.Resource(corev1.SchemeGroupVersion.WithResource("nodes")).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 {
				t.Errorf("got the Nodes %v, %v", list, err)
			}
		})
	}
}
