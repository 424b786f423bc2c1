package apitest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

// SecretMetadata returns a client of the metadata of a cluster's Secrets, one at a time. Its requests are not recorded among those
// of the cluster's own client.
func SecretMetadata(cluster *fake.Clientset) *metadatafake.FakeMetadataClient {
	client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	client.PrependReactor("get", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		found, err := cluster.Tracker().Get(action.GetResource(), action.GetNamespace(), nameIn(action))
		if err != nil {
			return true, nil, err
		}
		about := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
		if o, ok := found.(object); ok {
			about.Namespace, about.Name, about.UID, about.ResourceVersion = o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion()
			about.Annotations, about.Finalizers, about.DeletionTimestamp = o.GetAnnotations(), o.GetFinalizers(), o.GetDeletionTimestamp()
		}
		return true, about, nil
	})
	return client
}
