package decode

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/client-go/rest"
)

// TestEventsOfAWatch: an event is read from one line, as API servers write it, and from others.
func TestEventsOfAWatch(t *testing.T) {
	long := `{"metadata":{"name":"` + strings.Repeat("x", 200_000) + `"}}`
	one, other := `{"type":"ADDED","object":{"kind":"a \"}"}}`, `{"type":"DELETED","object":`+long+`}`
	const added = `ADDED {"kind":"a \"}"}`
	for name, tc := range map[string]struct {
		stream string
		want   []string // type and object of each event
		end    error
	}{
		"lines":                {one + "\n" + other + "\n" + one + "\n", []string{added, "DELETED " + long, added}, io.EOF},
		"empty lines":          {"\n \n" + one + "\n\n", []string{added}, io.EOF},
		"nothing":              {"", nil, io.EOF},
		"the last has no end":  {one, []string{added}, io.EOF},
		"several lines":        {"{\n  \"type\": \"ADDED\",\n  \"object\": {\n  }\n}\n" + one, []string{"ADDED {\n  }", added}, io.EOF},
		"fields in any order":  {`{"object":{"a":1},"type":"MODIFIED"}` + "\n", []string{`MODIFIED {"a":1}`}, io.EOF},
		"cut":                  {one + "\n" + other[:1000], []string{added}, io.ErrUnexpectedEOF},
		"cut between brackets": {`{"type":"ADDED","object":{}`, nil, io.ErrUnexpectedEOF},
	} {
		for kind, reader := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader,
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				config := Config(&rest.Config{})
				_, serializer, framer, err := runtime.NewClientNegotiator(config.NegotiatedSerializer, *config.GroupVersion).
					StreamDecoder(runtime.ContentTypeJSON, nil)
				if err != nil {
					t.Fatal(err)
				}
				decoder := streaming.NewDecoder(framer.NewFrameReader(io.NopCloser(reader(strings.NewReader(tc.stream)))), serializer)
				var got []string
				for {
					var event metav1.WatchEvent
					if _, _, err = decoder.Decode(nil, &event); err != nil {
						break
					}
					got = append(got, event.Type+" "+string(event.Object.Raw))
				}
				if diff := cmp.Diff(tc.want, got); diff != "" || err != tc.end { //nolint:errorlint // as the watch of client-go compares it
					t.Errorf("ends with %v, want %v; events (-want +got):\n%.400s", err, tc.end, diff)
				}
			})
		}
	}
}
