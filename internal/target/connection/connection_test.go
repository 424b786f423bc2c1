package connection

import (
	"bytes"
	"encoding/binary"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
)

// server returns a server and how it is reached.
func server(t *testing.T, handler http.HandlerFunc) access.Access {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return access.Access{Server: s.URL, CA: string(ca), Token: "one"}
}

func get(t *testing.T, c *Connection, url string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: c}).Do(r)
	if r.Header.Get("Authorization") != "" {
		t.Error("the request of the caller has the token")
	}
	return answer, err
}

// A watch is open while the token changes.
func TestOtherCredentialsInterruptNoRequest(t *testing.T) {
	goOn := make(chan struct{})
	var seen, connections atomic.Value
	a := server(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("Authorization"))
		w.Header().Set("Warning", `299 - "logged"`)
		w.Header().Set("Location", "https://other.example") // which is no redirect
		if r.URL.Query().Get("watch") == "" {
			connections.Store(r.RemoteAddr)
			return
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = io.WriteString(w, "end")
	})
	c, err := New(access.Policy{}, a, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	watch, err := get(t, c, a.Server+"?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Body.Close() }()
	a.Token = "two"
	if err := c.Use(a); err != nil {
		t.Fatal(err)
	}
	answer, err := get(t, c, a.Server)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if got := answer.Header.Get("Warning"); got != "" {
		t.Errorf("got the warning %s", got)
	}
	if got := seen.Load(); got != "Bearer two" || answer.ProtoMajor != 2 {
		t.Errorf("got %v by HTTP/%d, want the new token by HTTP/2", got, answer.ProtoMajor)
	}
	close(goOn)
	if rest, err := io.ReadAll(watch.Body); string(rest) != "end" || err != nil {
		t.Errorf("the watch ended with %q, %v", rest, err)
	}
}

func TestRefusedAnswersAndAddresses(t *testing.T) {
	loopback := access.Policy{Refused: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	failure := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(bytes.Repeat([]byte("x"), MaxError+1))
	}
	for name, tc := range map[string]struct {
		policy  access.Policy
		query   string
		handler http.HandlerFunc
		want    string
	}{
		"redirect": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://other.example", http.StatusFound)
			},
			want: "got status 302 that redirects to another address",
		},
		"too large": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				part := bytes.Repeat([]byte("x"), 1<<20)
				for range MaxBody>>20 + 1 {
					_, _ = w.Write(part)
				}
			},
			want: "expected an answer of at most 16777216 bytes",
		},
		"large failure":            {handler: failure, want: "expected an answer of at most 16384 bytes"},
		"large failure of a watch": {query: "?watch=1", handler: failure, want: "expected an answer of at most 16384 bytes"},
		"large header": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["X"] = slices.Repeat([]string{strings.Repeat("x", 1<<10)}, 2*maxHeader>>10)
			},
			want: "response header list larger than advertised limit",
		},
		"refused network": {policy: loopback, want: "127.0.0.1 is in a network that no target cluster may be in"},
	} {
		t.Run(name, func(t *testing.T) {
			a := server(t, tc.handler)
			c, err := New(tc.policy, a, clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			read := int64(0)
			answer, err := get(t, c, a.Server+tc.query)
			if err == nil {
				read, err = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || read > 0 {
				t.Errorf("got %d bytes and %v, want an error with %q", read, err, tc.want)
			}
		})
	}
}

// The search list of a Pod makes a Service of another namespace of no name of a server.
func TestNamesAreThoseOfDNS(t *testing.T) {
	for host, want := range map[string]string{
		"api.other": "api.other.", "a.example": "a.example.", "a.example.": "a.example.", "api.mine.svc": "api.mine.svc",
		"api.svc":   "api.svc.",
		"localhost": "localhost", "192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1",
	} {
		if got := rooted(host); got != want {
			t.Errorf("%s is looked up as %s, want %s", host, got, want)
		}
	}
}

// Each answer is small enough, and they are read at the same time.
func TestAnswersThatAreTooLargeTogether(t *testing.T) {
	part := bytes.Repeat([]byte("x"), MaxBody/2)
	a := server(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(part) })
	c, err := New(access.Policy{}, a, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.read.decodes = newDecodes()
	read := func() (io.ReadCloser, error) {
		answer, err := get(t, c, a.Server)
		if err != nil {
			return nil, err
		}
		_, err = io.ReadFull(answer.Body, make([]byte, 1))
		return answer.Body, err
	}
	var open []io.ReadCloser
	for range MaxBodies / (MaxBody / 2) {
		body, err := read()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, body)
	}
	body, err := read()
	if err == nil || !strings.Contains(err.Error(), "together at most 33554432 bytes") {
		t.Errorf("got %v", err)
	}
	for _, body := range append(open, body) {
		_ = body.Close()
		_ = body.Close()
		if n, err := body.Read(make([]byte, 1)); n > 0 || err != io.ErrClosedPipe { //nolint:errorlint // as it is
			t.Errorf("read %d bytes and %v of a body that is closed", n, err)
		}
	}
	if bytes := c.read.bytes.Load(); bytes != 0 {
		t.Errorf("%d bytes count as being read after all, want none", bytes)
	}
}

func TestEventsThatAreTooLarge(t *testing.T) {
	text := func(n int) string { return `{"type":"ADDED","object":{"a":"\"}` + strings.Repeat("x", n) + `"}}` }
	framed := func(n uint32, content int) string {
		return string(binary.BigEndian.AppendUint32(nil, n)) + strings.Repeat("{", content)
	}
	for _, tc := range []struct {
		name, encoding, events string
		fails                  bool
	}{
		{"many in JSON", "application/json", strings.Repeat(text(MaxEvent/3)+"\n", 9), false},
		{"many small in JSON", "application/json", strings.Repeat(`{"a":[1,2]}`, maxEventValues/2), false},
		{"a large one in JSON", "application/json", text(10) + text(MaxEvent), true},
		{"no event in JSON", "application/json", strings.Repeat("\n", MaxEvent+1), true},
		{"many in protobuf", "application/vnd.kubernetes.protobuf;stream=watch", strings.Repeat(framed(MaxEvent/3, MaxEvent/3), 9), false},
		{"many values in JSON", "application/json", `{"object":[` + strings.Repeat("{},", maxEventValues) + "{}]}", true},
		{
			"many values in protobuf", "application/vnd.kubernetes.protobuf;stream=watch",
			framed(2*maxEventValues+2, 0) + strings.Repeat("\x0a\x00", maxEventValues+1), true,
		},
		{"a large one in protobuf", "application/vnd.kubernetes.protobuf;stream=watch", framed(5, 5) + framed(MaxEvent+1, 1), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // without waiting for their rate
				body := idle().eventsOf(t.Context(), io.NopCloser(strings.NewReader(tc.events)), tc.encoding != "application/json")
				n, err := io.Copy(io.Discard, body)
				_ = body.Close()
				if (err != nil) != tc.fails || !tc.fails && n != int64(len(tc.events)) {
					t.Errorf("read %d of %d bytes, %v", n, len(tc.events), err)
				}
			})
		})
	}
}

// The values of events are counted in the encoding that the server names.
func TestEventsInEachEncoding(t *testing.T) {
	for encoding, event := range map[string]string{
		"application/json": `{"object":[` + strings.Repeat("{},", maxEventValues) + "{}]}",
		"application/vnd.kubernetes.protobuf;stream=watch": string(binary.BigEndian.AppendUint32(nil, 2*maxEventValues+2)) +
			strings.Repeat("\x0a\x00", maxEventValues+1),
	} {
		a := server(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", encoding)
			_, _ = io.WriteString(w, event)
		})
		c, err := New(access.Policy{}, a, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := get(t, c, a.Server+"?watch=true")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, answer.Body); err == nil {
			t.Errorf("%s: read %d bytes of an event with too many values", encoding, n)
		}
		_ = answer.Body.Close()
		c.Close()
	}
}
