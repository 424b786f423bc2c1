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

// BenchmarkObject decodes one machine, as the answer to each write and each event of a watch are.
func BenchmarkObject(b *testing.B) {
	data, decoder := []byte(machine("machine", good)), whole(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := decoder.Decode(data, nil, &v1alpha1.Machine{}); err != nil {
			b.Fatal(err)
		}
	}
}
