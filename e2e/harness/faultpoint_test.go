package harness

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// process answers as a replica with fault points does; see FaultPoint in shard/fence.
type process struct {
	mu            sync.Mutex
	session       string
	matches, held []string
}

func (p *process) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var answer any
	switch r.Method + " " + r.URL.Path {
	case "GET /debug/slots":
		answer = SlotsView{Session: p.session}
	case "POST /debug/faultpoints":
		var order struct{ Match string }
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p.matches = append(p.matches, order.Match)
	case "DELETE /debug/faultpoints":
		p.matches, p.held = nil, nil
	default:
		answer = map[string][]string{"held": p.held}
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// does sends a request, which stops if it should.
func (p *process) does(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stops := func(match string) bool { return strings.Contains(what, match) }
	if i := slices.IndexFunc(p.matches, stops); i >= 0 {
		p.matches, p.held = slices.Delete(p.matches, i, i+1), append(p.held, what)
	}
}

// labOf returns a lab that consists of some replicas and of the launcher's answers about them.
func labOf(t *testing.T, replicas map[string]*process) *Lab {
	t.Helper()
	serve := func(h http.Handler) string {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return server.URL
	}
	var list podList
	endpoints := map[string]string{}
	for name, p := range replicas {
		list.Pods = append(list.Pods, Pod{Name: name, Replica: name})
		endpoints[name] = serve(p)
	}
	lab := &Lab{Dir: t.TempDir()}
	lab.launcher = serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	text, err := json.Marshal(endpoints)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lab.Dir, "endpoints.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	lab.launcherEnded = sync.OnceValue(lab.observeLauncher)
	return lab
}

// TestFaultPointStopsWhicheverReplicaActs: the slot may have moved to any replica when the request
// is sent.
func TestFaultPointStopsWhicheverReplicaActs(t *testing.T) {
	const match = "DELETE /machines/m"
	for _, owner := range []string{"fleet-0", "fleet-1", "fleet-2"} {
		t.Run(owner, func(t *testing.T) {
			replicas := map[string]*process{}
			for _, name := range []string{"fleet-0", "fleet-1", "fleet-2"} {
				replicas[name] = &process{session: name + "_aaaaa"}
			}
			lab := labOf(t, replicas)
			p, err := lab.StopNext(t.Context(), match)
			if err != nil {
				t.Fatal(err)
			}
			replicas["fleet-1"].does("DELETE /machines/another")
			replicas[owner].does(match + " under slot=7; epoch=3")
			at, err := p.Wait(t.Context())
			want := Stopped{Replica: owner, Session: owner + "_aaaaa", What: match + " under slot=7; epoch=3"}
			if err != nil || at != want {
				t.Fatalf("stopped is %+v (%v), want %+v", at, err, want)
			}
			for name, other := range replicas {
				if name != owner && len(other.matches) > 0 {
					t.Errorf("%s would still stop at %q", name, other.matches)
				}
			}
			if err := p.Release(t.Context()); err != nil || len(replicas[owner].held) > 0 {
				t.Errorf("%s is still stopped at %q (%v)", owner, replicas[owner].held, err)
			}
		})
	}
}

// TestFaultPointNamesWhatStopsNowhere: the error of a test that has waited for too long has to show
// on which replicas it waited.
func TestFaultPointNamesWhatStopsNowhere(t *testing.T) {
	replicas := map[string]*process{"fleet-0": {}, "fleet-1": {held: []string{"GET /something"}}}
	p := &FaultPoint{lab: labOf(t, replicas), match: "DELETE", replicas: []string{"fleet-0", "fleet-1"}}
	_, err := p.find(t.Context())
	for _, part := range []string{"fleet-0 has stopped at []", `fleet-1 has stopped at ["GET /something"]`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("want %q in the error, got: %v", part, err)
		}
	}
}
