package decode

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
)

// BenchmarkPage decodes a page of 500 machines: as client-go does, and by this package with none
// and with one that does not decode.
func BenchmarkPage(b *testing.B) {
	page := func(undecodable int) []byte {
		var items []string
		for i := range 500 {
			spec := good
			if i < undecodable {
				spec = bad
			}
			items = append(items, machine(fmt.Sprintf("machine-%03d", i), spec))
		}
		return []byte(machines(items...))
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	plain := scheme.Codecs.WithoutConversion().DecoderToVersion(info.Serializer, nil)
	for _, bc := range []struct {
		name    string
		decoder runtime.Decoder
		page    []byte
	}{{"client-go", plain, page(0)}, {"none", whole(b), page(0)}, {"one", whole(b), page(1)}} {
		b.Run(strings.ReplaceAll(bc.name, " ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := bc.decoder.Decode(bc.page, nil, &v1alpha1.MachineList{}); err != nil {
					if _, other := Missing(err); other != nil {
						b.Fatal(other)
					}
				}
			}
		})
	}
}

// BenchmarkObject decodes one machine that runs, as the answer to each write and each event of a
// watch are: as client-go does, and by this package.
func BenchmarkObject(b *testing.B) {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	for _, bc := range []struct {
		name    string
		decoder runtime.Decoder
	}{{"client-go", scheme.Codecs.WithoutConversion().DecoderToVersion(info.Serializer, nil)}, {"here", whole(b)}} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(running)))
			for b.Loop() {
				if _, _, err := bc.decoder.Decode([]byte(running), nil, &v1alpha1.Machine{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// running is a machine as an API server sends it.
const running = `{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"Machine","metadata":{"annotations":` +
	`{"fleet.machine.sapcloud.io/created-by":"fleet-0","node.machine.sapcloud.io/last-applied-anno-labels-taints":` +
	`"{\"metadata\":{\"labels\":{\"worker\":\"a\"}},\"spec\":{}}"},"creationTimestamp":"2026-11-28T10:00:00Z",` +
	`"finalizers":["machine.sapcloud.io/machine-controller-manager"],"generation":2,"labels":{"fleet.machine.sapcloud.io/slot":"17",` +
	`"machine-template-hash":"1234567890","node":"ip-10-0-0-17.internal","pool":"a"},"managedFields":[{"apiVersion":` +
	`"machine.sapcloud.io/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},` +
	`"f:fleet.machine.sapcloud.io/created-by":{},"f:node.machine.sapcloud.io/last-applied-anno-labels-taints":{}},"f:finalizers":{".":{},` +
	`"v:\"machine.sapcloud.io/machine-controller-manager\"":{}},"f:labels":{".":{},"f:fleet.machine.sapcloud.io/slot":{},` +
	`"f:machine-template-hash":{},"f:node":{},"f:pool":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"0a1b2c3d-0000-4000-8000-000000000001` +
	`\"}":{}}},"f:spec":{".":{},"f:class":{".":{},"f:apiGroup":{},"f:kind":{},"f:name":{}},"f:nodeTemplate":{".":{},"f:metadata":{},` +
	`"f:spec":{}},"f:providerID":{}}},"manager":"machine-controller-fleet","operation":"Update","time":"2026-11-28T10:00:03Z"},{"apiVersion":` +
	`"machine.sapcloud.io/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:status":{".":{},"f:conditions":{},"f:currentStatus":{".":{},` +
	`"f:lastUpdateTime":{},"f:phase":{}},"f:lastOperation":{".":{},"f:description":{},"f:lastUpdateTime":{},"f:state":{},"f:type":{}}}},` +
	`"manager":"machine-controller-fleet","operation":"Update","subresource":"status","time":"2026-11-28T10:01:00Z"}],` +
	`"name":"shoot-worker-a-12345-abcde","namespace":"shoot","ownerReferences":[{"apiVersion":"machine.sapcloud.io/v1alpha1",` +
	`"blockOwnerDeletion":true,"controller":true,"kind":"MachineSet","name":"shoot-worker-a-12345","uid":"0a1b2c3d-0000-4000-8000-000000000001"}],` +
	`"resourceVersion":"123456","uid":"0a1b2c3d-0000-4000-8000-000000000002"},"spec":{"class":{"apiGroup":"machine.sapcloud.io",` +
	`"kind":"MachineClass","name":"shoot-worker-a"},"nodeTemplate":{"metadata":{"labels":{"worker":"a"}},"spec":{"taints":[{"effect":"NoSchedule",` +
	`"key":"a","value":"b"}]}},"providerID":"simulated:///zone-a/i-0123456789abcdef0"},"status":{"conditions":[` +
	`{"lastHeartbeatTime":"2026-11-28T10:05:00Z","lastTransitionTime":"2026-11-28T10:01:00Z","message":"kubelet has sufficient memory available",` +
	`"reason":"KubeletHasSufficientMemory","status":"False","type":"MemoryPressure"},{"lastHeartbeatTime":"2026-11-28T10:05:00Z",` +
	`"lastTransitionTime":"2026-11-28T10:01:00Z","message":"kubelet is posting ready status","reason":"KubeletReady","status":"True",` +
	`"type":"Ready"}],"currentStatus":{"lastUpdateTime":"2026-11-28T10:01:00Z","phase":"Running"},"lastOperation":{"description":` +
	`"Machine shoot-worker-a-12345-abcde successfully joined the cluster","lastUpdateTime":"2026-11-28T10:01:00Z","state":"Successful","type":"Create"}}}`
