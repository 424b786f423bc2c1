package apitest

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// SetUndecodable makes an object undecodable from now on, or decodable again. It gets another version. Requests for an
// undecodable object take effect, and are answered with a decode.Failure.
func (s *Server) SetUndecodable(resource, namespace, name string, undecodable bool) {
	k := key{resource, types.NamespacedName{Namespace: namespace, Name: name}}
	s.undecodable.Store(k, undecodable)
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := copied(s.objects[resource][k.NamespacedName])
	annotations := maps.Clone(changed.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["edited"] = "by hand"
	changed.SetAnnotations(annotations)
	s.store(k, changed)
}

// failure returns an object that cannot be decoded as clients get it; failed is false for one that can be decoded.
func (s *Server) failure(k key, o metav1.Object) (f *decode.Failure, failed bool) {
	if undecodable, _ := s.undecodable.Load(k); undecodable != true {
		return nil, false
	}
	kinds := map[string]string{
		"machinedeployments": "MachineDeployment", "machinesets": "MachineSet", "machines": "Machine", "machineclasses": "MachineClass",
	}
	f = &decode.Failure{Cause: "spec: not as it should be", PartialObjectMetadata: metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kinds[k.resource]},
	}}
	f.Namespace, f.Name, f.UID, f.ResourceVersion = o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion()
	f.Labels, f.Annotations, f.Finalizers = maps.Clone(o.GetLabels()), maps.Clone(o.GetAnnotations()), o.GetFinalizers()
	f.OwnerReferences, f.CreationTimestamp, f.DeletionTimestamp = o.GetOwnerReferences(), o.GetCreationTimestamp(), o.GetDeletionTimestamp()
	return f, true
}

// Undecodable returns what a client gets for an object of the API, as JSON, that cannot be decoded.
func Undecodable(tb testing.TB, object string) *decode.Failure {
	tb.Helper()
	config := decode.Config(&rest.Config{})
	decoder, err := runtime.NewClientNegotiator(config.NegotiatedSerializer, *config.GroupVersion).Decoder(runtime.ContentTypeJSON, nil)
	if err != nil {
		tb.Fatal(err)
	}
	obj, _, err := decoder.Decode([]byte(object), nil, nil)
	f, ok := obj.(*decode.Failure)
	if err != nil || !ok {
		tb.Fatalf("%s can be decoded, as %v (%v)", object, obj, err)
	}
	return f
}
