package azuretest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds the body of a request.
const maxBody = 1 << 20

// ServeHTTP answers a request.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/subscriptions/") && !strings.EqualFold(r.URL.Path, pathGraph) {
		c.serveToken(w, r, body)
		return
	}
	answer := c.carryOut(w, r, body)
	if answer == nil { // no answer
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
	answer(w)
}

// carryOut does what a request is about, and returns what writes the answer; nil when there is to
// be none.
func (c *Cloud) carryOut(w http.ResponseWriter, r *http.Request, body []byte) func(http.ResponseWriter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	c.stats.Requests++
	p := parsePath(r.URL.Path)
	isRead := r.Method == http.MethodGet || r.Method == http.MethodHead || p.kind == kindGraph
	isWrite := !isRead && r.Method != http.MethodDelete
	makesVM := r.Method == http.MethodPut && p.kind == kindVM
	if isWrite {
		c.stats.Writes++
	}
	cutNow := c.stats.Requests == c.cut.at
	if cutNow {
		c.cut.done = true
	}
	if cutNow && !c.cut.after {
		return c.cut.end(r)
	}
	if c.fault == NoAnswer {
		return nil
	}
	if refused := refusalOf(c.fault, makesVM); refused != nil {
		return refused.write
	}
	if !c.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] {
		return refusalOf(Unauthorized, false).write
	}
	if isWrite {
		if refused := c.throttle(w, p.subscription); refused != nil {
			return refused.write
		}
	}
	answer := c.route(r, p, body)
	switch {
	case cutNow:
		return c.cut.end(r)
	case c.fault == LostAnswer && makesVM:
		return nil
	}
	return answer
}

// path names the resource of a request.
type path struct {
	subscription, group string
	kind                string // provider and type, in lower case
	name                string // "" for a list
	more                []string
}

// parsePath reads
// /subscriptions/{s}[/resourceGroups/{g}]/providers/{provider}/{type}[/{name}[/...]].
func parsePath(text string) path {
	parts := strings.Split(strings.TrimPrefix(text, "/subscriptions/"), "/")
	p := path{subscription: parts[0]}
	parts = parts[1:]
	if len(parts) >= 2 && strings.EqualFold(parts[0], "resourceGroups") {
		p.group, parts = parts[1], parts[2:]
	}
	if len(parts) < 3 || !strings.EqualFold(parts[0], "providers") {
		return p
	}
	p.kind = strings.ToLower(parts[1] + "/" + parts[2])
	if parts = parts[3:]; len(parts) > 0 {
		p.name, p.more = parts[0], parts[1:]
	}
	return p
}

// route calls what handles a request.
func (c *Cloud) route(r *http.Request, p path, body []byte) func(http.ResponseWriter) {
	action := r.Method + " " + strings.ToLower(strings.Join(p.more, "/"))
	if !r.URL.Query().Has("api-version") {
		return badRequest("MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	switch p.kind {
	case kindGraph:
		return c.graph(body)
	case kindNetwork:
		return subnet(r, p)
	case kindGroup:
		if r.Method == http.MethodHead { // whether it exists
			return func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }
		}
		return notFound("InvalidResourceType", "The resource type could not be found.")
	case "microsoft.compute/locations":
		return c.location(r, p)
	case "microsoft.marketplaceordering/offertypes":
		return c.agreement(r, body)
	case kindVM, kindDisk, kindNIC:
	default:
		return notFound("InvalidResourceType", "The resource type could not be found.")
	}
	if c.noGroups[strings.ToLower(p.group)] {
		return notFound("ResourceGroupNotFound", fmt.Sprintf("Resource group '%s' could not be found.", p.group))
	}
	found := c.resources[strings.ToLower(r.URL.Path)]
	if found != nil && action == "GET " && c.isHidden(found) {
		found = nil
	}
	switch {
	case p.name == "" && r.Method == http.MethodGet:
		return c.list(r, p)
	case action == "PUT ":
		return c.put(r, p, body, found)
	case action == "GET instanceview" || action == "POST start":
		found = c.resources[strings.ToLower(r.URL.Path[:strings.LastIndex(r.URL.Path, "/")])]
	}
	if found == nil && r.Method == http.MethodDelete {
		return func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }
	}
	if found == nil {
		return notFound("ResourceNotFound", fmt.Sprintf("The Resource '%s/%s' under resource group '%s' was not found.", p.kind, p.name, p.group))
	}
	switch action {
	case "GET ":
		return writeJSON(http.StatusOK, c.show(found))
	case "DELETE ":
		return c.remove(r, found)
	case "GET instanceview":
		return writeJSON(http.StatusOK, instanceView(found))
	case "POST start":
		return c.start(r, found)
	}
	return (&refusal{status: http.StatusMethodNotAllowed, code: "MethodNotAllowed", message: "The method is not allowed."}).write
}

// isHidden reports whether a resource is not shown.
func (c *Cloud) isHidden(r *resource) bool { return r.kind == kindVM && c.hidesVMs }

// list answers with a page of the resources of a kind in a resource group or a subscription.
func (c *Cloud) list(r *http.Request, p path) func(http.ResponseWriter) {
	prefix := "/subscriptions/" + p.subscription + "/"
	if p.group != "" {
		prefix += "resourceGroups/" + p.group + "/"
	}
	prefix = strings.ToLower(prefix)
	after, items, next := r.URL.Query().Get("$skiptoken"), []any{}, ""
	for _, key := range slices.Sorted(maps.Keys(c.resources)) {
		found := c.resources[key]
		if found.kind != p.kind || !strings.HasPrefix(key, prefix) || key <= after || c.isHidden(found) {
			continue
		}
		if len(items) == c.cfg.PageSize {
			break
		}
		items, next = append(items, c.show(found)), key
	}
	answer := map[string]any{"value": items}
	if len(items) == c.cfg.PageSize {
		query := r.URL.Query()
		query.Set("$skiptoken", next)
		answer["nextLink"] = origin(r) + r.URL.Path + "?" + query.Encode()
	}
	return writeJSON(http.StatusOK, answer)
}

// location answers about an image of the marketplace, or an operation.
func (c *Cloud) location(r *http.Request, p path) func(http.ResponseWriter) {
	if len(p.more) == 2 && p.more[0] == "operations" {
		o := c.operations[p.more[1]]
		switch {
		case o == nil:
			return notFound("NotFound", "The operation was not found.")
		case o.due.After(c.cfg.Clock.Now()):
			return c.pollLater(writeJSON(http.StatusOK, map[string]any{"status": "InProgress"}))
		case o.reason != "":
			return writeJSON(http.StatusOK, map[string]any{
				"status": stateFailed, "error": map[string]any{"code": o.reason, "message": "Allocation failed."},
			})
		}
		return writeJSON(http.StatusOK, map[string]any{"status": stateSucceeded})
	}
	const count = 10 // publishers/{p}/artifacttypes/vmimage/offers/{o}/skus/{s}/versions/{v}
	if len(p.more) != count {
		return notFound("NotFound", "The image was not found.")
	}
	publisher, offer, sku := p.more[1], p.more[5], p.more[7]
	properties := map[string]any{}
	if c.cfg.Plans[publisher+":"+offer+":"+sku] {
		properties["plan"] = map[string]any{"publisher": publisher, "product": offer, "name": sku}
	}
	return writeJSON(http.StatusOK, map[string]any{"id": r.URL.Path, "name": p.more[9], "location": p.name, "properties": properties})
}

// agreement answers about the agreement of a plan.
func (c *Cloud) agreement(r *http.Request, body []byte) func(http.ResponseWriter) {
	if r.Method == http.MethodPut {
		var terms struct {
			Properties struct {
				Accepted bool `json:"accepted"`
			} `json:"properties"`
		}
		if json.Unmarshal(body, &terms) != nil {
			return badRequest("InvalidRequestContent", "The request content was invalid.")
		}
		c.agreed[r.URL.Path] = terms.Properties.Accepted
	}
	return writeJSON(http.StatusOK, map[string]any{"id": r.URL.Path, "properties": map[string]any{"accepted": c.agreed[r.URL.Path]}})
}

// Agreed returns how many agreements are accepted.
func (c *Cloud) Agreed() (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, accepted := range c.agreed {
		if accepted {
			count++
		}
	}
	return count
}

// show returns a resource as the cloud does.
func (c *Cloud) show(r *resource) map[string]any {
	properties := maps.Clone(r.properties)
	properties["provisioningState"] = r.state
	shown := map[string]any{
		"id":         r.id,
		"name":       r.id[strings.LastIndex(r.id, "/")+1:],
		"type":       r.kind,
		"location":   r.location,
		"tags":       r.tags,
		"properties": properties,
	}
	if len(r.zones) > 0 {
		shown["zones"] = r.zones
	}
	switch {
	case r.user == "":
	case r.kind == kindDisk:
		shown["managedBy"] = r.user
	default:
		properties["virtualMachine"] = map[string]any{"id": r.user}
	}
	return shown
}

// instanceView returns the state of a VM in detail.
func instanceView(r *resource) map[string]any {
	status := map[string]any{"code": "ProvisioningState/" + strings.ToLower(r.state), "level": "Info"}
	if r.state == stateFailed {
		status = map[string]any{"code": "ProvisioningState/failed/" + r.reason, "level": "Error", "message": "Allocation failed."}
	}
	return map[string]any{"statuses": []any{status}}
}

// origin returns scheme and host of the server.
func origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// begin starts an operation in the background, and returns what writes its answer.
func (c *Cloud) begin(r *http.Request, status int, body any, due time.Time, reason string) func(http.ResponseWriter) {
	c.created++
	id := "op-" + strconv.Itoa(c.created)
	c.operations[id] = &operation{due, reason}
	to := origin(r) + "/subscriptions/" + parsePath(r.URL.Path).subscription + "/providers/Microsoft.Compute/locations/anywhere/operations/" +
		id +
		"?api-version=" + url.QueryEscape(r.URL.Query().Get("api-version"))
	return c.pollLater(func(w http.ResponseWriter) {
		w.Header().Set("Azure-AsyncOperation", to)
		w.Header().Set("Location", to)
		if body == nil {
			w.WriteHeader(status)
			return
		}
		writeJSON(status, body)(w)
	})
}

// pollLater adds to an answer about an operation that runs when to ask again.
func (c *Cloud) pollLater(write func(http.ResponseWriter)) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if c.cfg.PollAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(c.cfg.PollAfter.Seconds())))
		}
		write(w)
	}
}

// subnet answers about a subnet; each one exists.
func subnet(r *http.Request, p path) func(http.ResponseWriter) {
	const count = 2 // subnets/{subnet}
	if r.Method != http.MethodGet || len(p.more) != count {
		return notFound("InvalidResourceType", "The resource type could not be found.")
	}
	return writeJSON(http.StatusOK, map[string]any{
		"id": r.URL.Path, "name": p.more[1], "properties": map[string]any{"addressPrefix": "10.0.0.0/8", "provisioningState": stateSucceeded},
	})
}

func writeJSON(status int, body any) func(http.ResponseWriter) {
	raw, err := json.Marshal(body)
	if err != nil {
		return (&refusal{status: http.StatusInternalServerError, code: "InternalServerError", message: err.Error()}).write
	}
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(raw)
	}
}

// write writes a refusal.
func (f *refusal) write(w http.ResponseWriter) {
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(f.retryAfter.Seconds())))
	}
	writeJSON(f.status, map[string]any{"error": map[string]any{"code": f.code, "message": f.message}})(w)
}

func notFound(code, message string) func(http.ResponseWriter) {
	return (&refusal{status: http.StatusNotFound, code: code, message: message}).write
}

func badRequest(code, message string) func(http.ResponseWriter) {
	return (&refusal{status: http.StatusBadRequest, code: code, message: message}).write
}

func conflict(code, message string) func(http.ResponseWriter) {
	return (&refusal{status: http.StatusConflict, code: code, message: message}).write
}
