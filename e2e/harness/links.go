package harness

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// The links of a process: the servers that it talks to, each through a proxy of its own.
const (
	LinkControl = "control"
	LinkTarget  = "target"
	LinkCloud   = "cloud"
)

// Fault is what a link does to what passes through it; make one with Cut, Refuse, Delay, Limit or Stall. The zero value is none.
type Fault struct {
	Kind        string    `json:"kind,omitempty"`
	Only        Direction `json:"only,omitempty"`
	DelayMillis int64     `json:"delayMillis,omitempty"`
	KBPerSecond int64     `json:"kbPerSecond,omitempty"`
	AboveKB     int64     `json:"aboveKB,omitempty"`
	HoldMillis  int64     `json:"holdMillis,omitempty"`
}

// Direction is one of a connection's two, as seen by the replica.
type Direction string

// The directions.
const (
	Both     Direction = ""
	Requests Direction = "requests"
	// Answers alone cut: requests take effect, and nobody hears of it.
	Answers Direction = "answers"
)

// Cut loses everything and says nothing. Connections that were open end when it is over.
func Cut(only Direction) Fault { return Fault{Kind: "cut", Only: only} }

// Refuse closes all connections and refuses new ones.
func Refuse() Fault { return Fault{Kind: "refuse"} }

// Delay passes everything on later; what waits when it is over is passed on then. In both directions it counts twice.
func Delay(by time.Duration, only Direction) Fault {
	return Fault{Kind: "delay", DelayMillis: by.Milliseconds(), Only: only}
}

// Limit passes on so many thousand bytes in a second, for each connection. Connections that were open end when it is over.
func Limit(kbPerSecond int64, only Direction) Fault {
	return Fault{Kind: "limit", KBPerSecond: kbPerSecond, Only: only}
}

// Stall passes small answers on and holds back large ones, such as lists: a connection on which the server sends more than so
// many thousand bytes within about 100 ms stops, and is closed after hold; 0: when its client closes it.
func Stall(aboveKB int64, hold time.Duration) Fault {
	return Fault{Kind: "stall", AboveKB: aboveKB, HoldMillis: hold.Milliseconds()}
}

// Link is a proxy between a process of the fleet and a server.
type Link struct {
	Process string `json:"process"`
	Link    string `json:"link"`
	Fault   Fault  `json:"fault"`
	// RequestBytes and AnswerBytes have come in from the process, and from the server.
	RequestBytes int64 `json:"requestBytes"`
	AnswerBytes  int64 `json:"answerBytes"`
}

// Links returns all links.
func (l *Lab) Links(ctx context.Context) ([]Link, error) {
	var list struct {
		Links []Link `json:"links"`
	}
	err := l.ask(ctx, http.MethodGet, "/v1/links", nil, &list)
	return list.Links, err
}

// SetFault makes a fault on a link of a process, in place of what was there.
func (l *Lab) SetFault(ctx context.Context, process, link string, fault Fault) error {
	return l.ask(ctx, http.MethodPut, "/v1/links/"+url.PathEscape(process)+"/"+url.PathEscape(link), fault, nil)
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
