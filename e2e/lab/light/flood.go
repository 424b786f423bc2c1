package light

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

const (
	nodesPath = "/api/v1/nodes"
	// bytesOfNode is about the size of a Node without its images.
	bytesOfNode = 4 << 10
)

// flood answers a list or watch of Nodes as the fault says, and reports whether it has.
func (c *Cluster) flood(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet || r.URL.Path != nodesPath {
		return false
	}
	c.mu.Lock()
	fault, changed := c.fault, c.changed
	c.mu.Unlock()
	isWatch := r.URL.Query().Get("watch") != ""
	switch {
	case isWatch && fault.Events:
		w.Header().Set("Content-Type", "application/json")
		sendEvents(w, r, changed)
	case !isWatch && fault.AnswerBytes > 0:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, listHead, "")
		_, _ = fmt.Fprintf(w, nodeHead, "flood", "1")
		_, _ = io.CopyN(w, filler{}, fault.AnswerBytes) // the client may be gone
		_, _ = io.WriteString(w, nodeTail+listTail)
	case !isWatch && fault.Nodes > 0:
		w.Header().Set("Content-Type", "application/json")
		sendPage(w, r, fault.Nodes)
	default:
		return false
	}
	return true
}

const (
	listHead = `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":%q},"items":[`
	listTail = `]}`
	nodeHead = `{"kind":"Node","apiVersion":"v1","metadata":{"name":%q,"uid":"flood","resourceVersion":%q,"annotations":{"filler":"`
	nodeTail = `"}},"spec":{},"status":{}}`
)

// sendPage writes a page of a list of all Nodes. Its token is the number of the first one.
func sendPage(w io.Writer, r *http.Request, all int) {
	first, _ := strconv.Atoi(r.URL.Query().Get("continue")) // 0 without a token
	size, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	last, next := all, ""
	if size > 0 && first+size < all {
		last = first + size
		next = strconv.Itoa(last)
	}
	_, _ = fmt.Fprintf(w, listHead, next)
	padding := strings.Repeat("x", bytesOfNode)
	for i := first; i < last; i++ {
		if i > first {
			_, _ = io.WriteString(w, ",")
		}
		if _, err := fmt.Fprintf(w, nodeHead+padding+nodeTail, "flood-"+strconv.Itoa(i), "1"); err != nil {
			return
		}
	}
	_, _ = io.WriteString(w, listTail)
}

// sendEvents writes changes of a Node until the client is gone or the fault changes.
func sendEvents(w http.ResponseWriter, r *http.Request, changed <-chan struct{}) {
	padding := strings.Repeat("x", bytesOfNode)
	version, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	for kind := "ADDED"; ; kind = "MODIFIED" {
		version++
		_, err := fmt.Fprintf(w, `{"type":%q,"object":`+nodeHead+padding+nodeTail+"}\n", kind, "flood", strconv.FormatInt(version, 10))
		if err != nil {
			return
		}
		select {
		case <-changed:
			return
		case <-r.Context().Done():
			return
		default:
		}
	}
}

// filler is text without an end.
type filler struct{}

func (filler) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
