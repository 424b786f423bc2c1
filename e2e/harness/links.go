package harness

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// The links of a process: the servers that it connects to, each through a separate proxy.
const (
	LinkControl = "control"
	LinkTarget  = "target"
	LinkCloud   = "cloud"
	// LinkServer is that between all replicas and the API server of a Member, whose name is that of
	// the process.
	LinkServer = "server"
)

// Fault is the effect of a link on its traffic; create one with Cut, Refuse, Delay, Limit or Stall.
// The zero value is none.
type Fault struct {
	Kind        string    `json:"kind,omitempty"`
	Only        Direction `json:"only,omitempty"`
	DelayMillis int64     `json:"delayMillis,omitempty"`
	KBPerSecond int64     `json:"kbPerSecond,omitempty"`
	AboveKB     int64     `json:"aboveKB,omitempty"`
	HoldMillis  int64     `json:"holdMillis,omitempty"`
}

// Direction is one of the two directions of a connection, as seen by the replica.
type Direction string

// The directions.
const (
	Both     Direction = ""
	Requests Direction = "requests"
	// Answers are cut alone: requests take effect, and their answers are lost.
	Answers Direction = "answers"
)

// Cut drops all data without an error. Connections that were open end when it is over.
func Cut(only Direction) Fault { return Fault{Kind: "cut", Only: only} }

// Refuse closes all connections and refuses new ones.
func Refuse() Fault { return Fault{Kind: "refuse"} }

// Delay forwards all data later; data that waits when it is over is forwarded then. In both
// directions it counts twice.
func Delay(by time.Duration, only Direction) Fault {
	return Fault{Kind: "delay", DelayMillis: by.Milliseconds(), Only: only}
}

// Limit forwards so many thousand bytes in a second, for each connection. Connections that were
// open end when it is over.
func Limit(kbPerSecond int64, only Direction) Fault {
	return Fault{Kind: "limit", KBPerSecond: kbPerSecond, Only: only}
}

// Stall forwards small answers and stops large ones, such as lists: a connection on which the
// server sends more than so many thousand bytes within about 100 ms stops, and is closed after
// hold; 0: when its client closes it.
func Stall(aboveKB int64, hold time.Duration) Fault {
	return Fault{Kind: "stall", AboveKB: aboveKB, HoldMillis: hold.Milliseconds()}
}

// Link is a proxy between a process of the fleet and a server.
type Link struct {
	Process string `json:"process"`
	Link    string `json:"link"`
	Fault   Fault  `json:"fault"`
	// RequestBytes and AnswerBytes were received from the process, and from the server.
	RequestBytes int64 `json:"requestBytes"`
	AnswerBytes  int64 `json:"answerBytes"`
}

// Links returns all links.
func (l *Lab) Links(ctx context.Context) ([]Link, error) {
	var list struct {
		Links []Link `json:"links"`
	}
	err := l.send(ctx, http.MethodGet, "/v1/links", nil, &list)
	return list.Links, err
}

// SetFault sets the fault of a link of a process, in place of an earlier one.
func (l *Lab) SetFault(ctx context.Context, process, link string, fault Fault) error {
	return l.send(ctx, http.MethodPut, "/v1/links/"+url.PathEscape(process)+"/"+url.PathEscape(link), fault, nil)
}

// Heal ends all faults of a process's links.
func (l *Lab) Heal(ctx context.Context, process string) error {
	for _, link := range []string{LinkControl, LinkTarget, LinkCloud} {
		if err := l.SetFault(ctx, process, link, Fault{}); err != nil {
			return err
		}
	}
	return nil
}
