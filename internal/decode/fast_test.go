package decode

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
)

// FuzzObjects: what client-go decodes, this package decodes to the same objects, but for their
// managed fields.
func FuzzObjects(f *testing.F) {
	of := func(kind, more string) string {
		return `{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"` + kind + `","metadata":{"name":"a","creationTimestamp":null},` + more + `}`
	}
	for _, seed := range []string{
		running, machine("a", good), machine("a", bad), machines(machine("a", good), machine("b", good)), machines(running, machine("b", bad)),
		of("MachineSet", `"spec":{"replicas":3,"selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":[]}]},`+
			`"template":{"metadata":{"annotations":{}},"spec":{"class":{"name":"c"},"drainTimeout":"1h30m","maxEvictRetries":7}}},`+
			`"status":{"conditions":null,"failedMachines":[{"name":"m","lastOperation":{"lastUpdateTime":"2026-11-28T10:00:00.5+02:00"}}]}`),
		of("MachineDeployment", `"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"10%","maxUnavailable":0}},"paused":true,`+
			`"revisionHistoryLimit":1}`),
		of("MachineClass", `"nodeTemplate":{"capacity":{"cpu":"4","memory":"16Gi"},"virtualCapacity":{"a":1}},"provider":"p","providerSpec":`+
			`{"a":[1,2.50,{"managedFields":[1]}],"A":"\u00e9"},"secretRef":{"name":"s"}`),
		of("Machine", `"spec":{"class":{"Name":"c","name":"\ud800"},"providerID":null,"unknown":{"a":[]}},"spec":{"class":{"kind":"k"}}`),
		strings.Replace(running, `"2026-11-28T10:00:00Z"`, `"yesterday"`, 1), strings.Replace(running, `"generation":2`, `"generation":2.0`, 1),
		of("Machine", `"status":{"lastOperation":{"lastUpdateTime":"2026-11-28T10:00:00\u005a"}}`),
		of("Machine", `"spec":[]`), of("Other", `"a":1`),
	} {
		f.Add(seed)
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	reference, here := scheme.Codecs.WithoutConversion().DecoderToVersion(info.Serializer, nil), whole(f)
	f.Fuzz(func(t *testing.T, data string) {
		want, _, err := reference.Decode([]byte(data), nil, nil)
		if err != nil {
			return
		}
		got, _, err := here.Decode([]byte(data), nil, nil)
		if err != nil {
			t.Fatalf("%v, and client-go decodes it: %s", err, data)
		}
		withoutManagedFields(want)
		withoutManagedFields(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-client-go +here):\n%s", data, diff)
		}
	})
}

func withoutManagedFields(obj runtime.Object) {
	if about, ok := obj.(metav1.Object); ok {
		about.SetManagedFields(nil)
	}
	if meta.IsListType(obj) {
		_ = meta.EachListItem(obj, func(item runtime.Object) error { // it is a list
			withoutManagedFields(item)
			return nil
		})
	}
}
