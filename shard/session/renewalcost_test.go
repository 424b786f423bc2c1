package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// BenchmarkRenewalOfAnotherSession measures what each replica does for each renewal of each other
// one: the client decodes an event of the watch, and the loop takes it in; and what decoding one
// was when renewals carried the report, as JSON. There are 32 replicas and 10,000
// MachineDeployments. sent-bytes/op is what the API server sends for it.
func BenchmarkRenewalOfAnotherSession(b *testing.B) {
	for _, slots := range []int{256, 1024} {
		f := newCosts(b, slots, 32)
		f.weigh = landscape{deployments: 10_000, targets: 1}.reports
		f.install()
		f.run(time.Minute)
		lease := f.leases[member.SessionLeaseName("fleet", f.replicas[1].settings.Replica)]
		report := f.leases[member.ReportLeaseName("fleet", f.replicas[1].settings.Replica)]
		for _, sent := range []struct {
			name, encoding string
			lease          *coordinationv1.Lease
		}{
			{"renewal", runtime.ContentTypeProtobuf, lease},
			{"report", runtime.ContentTypeProtobuf, report},
			{"renewal-before", runtime.ContentTypeJSON, withReport(b, lease, report)},
		} {
			b.Run(fmt.Sprintf("decode/slots=%d/%s", slots, sent.name), func(b *testing.B) {
				event := eventOf(b, sent.encoding, sent.lease)
				b.ReportAllocs()
				received := 0
				for range receive(b, sent.encoding, event, b.N) {
					received++
				}
				b.ReportMetric(float64(len(event)), "sent-bytes/op")
				if received != b.N {
					b.Fatalf("received %d Leases, want %d", received, b.N)
				}
			})
		}
		b.Run(fmt.Sprintf("step/slots=%d", slots), func(b *testing.B) {
			b.ReportAllocs()
			r, version := f.replicas[2], f.version
			for b.Loop() {
				l := *lease
				version++
				l.ResourceVersion = strconv.Itoa(version)
				renewed := metav1.NewMicroTime(lease.Spec.RenewTime.Add(time.Duration(version) * time.Second))
				l.Spec.RenewTime = &renewed
				now := f.moment(f.now)
				r.service.holders.seen(&l, now)
				r.arrival.seen(&l, now)
				r.machine.Step(now, protocol.Seen{Lease: &l})
			}
		})
	}
}

// receive returns the Leases that a client receives over a watch that shows the same event n times.
func receive(tb testing.TB, encoding string, event []byte, n int) <-chan *coordinationv1.Lease {
	tb.Helper()
	body := &repeated{event: event, left: n}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://server", Transport: answering(func(*http.Request) *http.Response {
		header := http.Header{"Content-Type": {encoding + ";stream=watch"}}
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: body}
	})})
	if err != nil {
		tb.Fatal(err)
	}
	watch, err := client.CoordinationV1().Leases("fleet-system").Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	leases := make(chan *coordinationv1.Lease)
	go func() {
		defer close(leases)
		for event := range watch.ResultChan() {
			if lease, ok := event.Object.(*coordinationv1.Lease); ok {
				leases <- lease
			}
		}
	}()
	return leases
}

type answering func(*http.Request) *http.Response

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r), nil }

// repeated is the body of a watch that shows the same event several times.
type repeated struct {
	event []byte
	rest  []byte
	left  int
}

func (r *repeated) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		r.rest, r.left = r.event, r.left-1
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (*repeated) Close() error { return nil }

// eventOf returns an event of a watch as an API server sends it.
func eventOf(tb testing.TB, encoding string, lease *coordinationv1.Lease) []byte {
	tb.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), encoding)
	if !ok {
		tb.Fatalf("no encoding %s", encoding)
	}
	object, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, coordinationv1.SchemeGroupVersion), lease)
	if err != nil {
		tb.Fatal(err)
	}
	event := &metav1.WatchEvent{Type: "MODIFIED", Object: runtime.RawExtension{Raw: object}}
	if encoding == runtime.ContentTypeJSON {
		raw, err := json.Marshal(event)
		if err != nil {
			tb.Fatal(err)
		}
		return append(raw, '\n')
	}
	var out bytes.Buffer
	if err := info.StreamSerializer.Encode(event, info.StreamSerializer.NewFrameWriter(&out)); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}
