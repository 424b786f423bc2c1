//go:build e2e

package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// badCloud is several clouds that the fleet's flags allow, each with one kind of false answer, and
// an address that they do not allow. The first element of a path selects the kind of false answer.
type badCloud struct {
	server, elsewhere *httptest.Server

	mu     sync.Mutex
	seen   map[string][]lyingRequest // by lie, and by "" for the address elsewhere
	vms    map[string]cloudapi.Instance
	stolen string // the provider ID that the thief gives all its VMs
	// waiting is how many requests wait for the silent cloud now, and mostWaiting the most that have
	// waited at a time.
	waiting, mostWaiting int
}

// lyingRequest is a request.
type lyingRequest struct {
	head string // method, URL and header
	body []byte
}

// lies are the false answers of the clouds.
var lies = map[string]func(*badCloud, http.ResponseWriter, *http.Request){
	"working": (*badCloud).work, // its VMs never join
	"silent":  (*badCloud).wait,
	"large": func(_ *badCloud, w http.ResponseWriter, _ *http.Request) {
		text := `{"items":[{}` + strings.Repeat(",{}", 63<<20/3) + "]}"
		_, _ = io.WriteString(w, text)
	},
	"endless": func(_ *badCloud, w http.ResponseWriter, _ *http.Request) {
		for chunk := bytes.Repeat([]byte("a"), 64<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	},
	"deep": func(_ *badCloud, w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat(`{"tags":`, 100_000))
	},
	"verbose": func(_ *badCloud, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		body := cloudapi.ErrorBody{Code: cloudapi.CodeInternal, Message: strings.Repeat("line\r\n\x1b[31mred\x00\u202e", 20_000)}
		_ = json.NewEncoder(w).Encode(body)
	},
	"page": func(_ *badCloud, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "<html>the-secret-of-another-service</html>")
	},
	"redirect": func(c *badCloud, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, c.elsewhere.URL+"/v1/instances", http.StatusTemporaryRedirect)
	},
	"traversal": func(_ *badCloud, w http.ResponseWriter, r *http.Request) {
		vm := answerTo(r)
		vm.ID = "../../admin/v1/settings"
		vm.ProviderID = cloudapi.ProviderIDPrefix + "sim-1/sim-1a/" + vm.ID
		_ = json.NewEncoder(w).Encode(vm)
	},
	"thief": func(c *badCloud, w http.ResponseWriter, r *http.Request) {
		vm := answerTo(r)
		c.mu.Lock()
		defer c.mu.Unlock()
		vm.ID, vm.ProviderID = path.Base(c.stolen), c.stolen
		_ = json.NewEncoder(w).Encode(vm)
	},
}

func newBadCloud(t *testing.T) *badCloud {
	t.Helper()
	c := &badCloud{seen: map[string][]lyingRequest{}, vms: map[string]cloudapi.Instance{}}
	c.elsewhere = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { c.note("", r) }))
	mux := http.NewServeMux()
	for lie, answer := range lies {
		mux.Handle("/"+lie+"/", http.StripPrefix("/"+lie, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.note(lie, r)
			answer(c, w, r)
		})))
	}
	c.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		for _, server := range []*httptest.Server{c.server, c.elsewhere} {
			server.CloseClientConnections()
			server.Close()
		}
	})
	return c
}

// endpoints are those of all false answers.
func (c *badCloud) endpoints() (all []string) {
	for _, lie := range slices.Sorted(maps.Keys(lies)) {
		all = append(all, c.endpoint(lie))
	}
	return all
}

func (c *badCloud) endpoint(lie string) string { return c.server.URL + "/" + lie }

// note records a request, and leaves its body readable.
func (c *badCloud) note(lie string, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[lie] = append(c.seen[lie], lyingRequest{fmt.Sprint(r.Method, " ", r.URL, " ", r.Header, " ", err), body})
}

// requestsFor returns the requests to a cloud.
func (c *badCloud) requestsFor(lie string) []lyingRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen[lie])
}

// wait never answers.
func (c *badCloud) wait(_ http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.waiting++
	c.mostWaiting = max(c.mostWaiting, c.waiting)
	c.mu.Unlock()
	<-r.Context().Done()
	c.mu.Lock()
	c.waiting--
	c.mu.Unlock()
}

// atATime returns the most requests that have waited for the silent cloud at a time.
func (c *badCloud) atATime() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mostWaiting
}

// answerTo returns the VM that a create requests.
func answerTo(r *http.Request) cloudapi.Instance {
	var create cloudapi.CreateInstanceRequest
	_ = json.NewDecoder(r.Body).Decode(&create) // other requests have none
	return cloudapi.Instance{
		Name: create.Name, Tags: create.Tags, ClientToken: create.ClientToken, State: cloudapi.StateRunning,
		Region: create.Region, Zone: create.Zone, SourceDestCheck: true,
	}
}

// work creates, describes and deletes VMs.
func (c *badCloud) work(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := strings.TrimPrefix(r.URL.Path, cloudapi.PathInstances+"/")
	vm, known := c.vms[id]
	var answer any = vm
	switch {
	case r.Method == http.MethodPost:
		vm = answerTo(r)
		vm.ID = "i-" + vm.ClientToken
		vm.ProviderID = cloudapi.ProviderIDPrefix + "sim-1/sim-1a/" + vm.ID
		c.vms[vm.ID], answer = vm, vm
	case id == cloudapi.PathInstances:
		list := cloudapi.InstanceList{Items: []cloudapi.Instance{}}
		for _, vm := range c.vms {
			if key, value, _ := strings.Cut(r.URL.Query().Get(cloudapi.QueryTag), "="); vm.Tags[key] == value {
				list.Items = append(list.Items, vm)
			}
		}
		answer = list
	case !known:
		w.WriteHeader(http.StatusNotFound)
		answer = cloudapi.ErrorBody{Code: cloudapi.CodeNotFound}
	case r.Method == http.MethodDelete:
		vm.State = cloudapi.StateTerminated
		delete(c.vms, id)
		answer = vm
	}
	_ = json.NewEncoder(w).Encode(answer)
}
