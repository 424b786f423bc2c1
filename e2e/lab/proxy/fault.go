package proxy

import (
	"encoding/json"
	"fmt"
	"time"
)

// Kind is the kind of a fault.
type Kind string

// The kinds of faults.
const (
	// None is no fault.
	None Kind = ""
	// Cut forwards nothing, without an error: connections stay open, new ones are accepted, and all
	// wait. Data sent meanwhile is lost, and its connections are closed when the cut is over.
	Cut Kind = "cut"
	// Refuse closes all connections and rejects new ones.
	Refuse Kind = "refuse"
	// Delay forwards everything DelayMillis later. Delayed data is forwarded when the delay is over.
	Delay Kind = "delay"
	// Limit forwards KBPerSecond thousand bytes in a second, for each connection. Its connections are
	// closed when the limit is over.
	Limit Kind = "limit"
	// Stall forwards small answers and blocks large ones: a connection stops when the server sends
	// more than AboveKB thousand bytes on it within about 100 ms, and is closed HoldMillis later. A
	// list stops its connection; a write, a read of one object and an event of a watch do not. On a
	// connection that is shared (HTTP/2), the answers behind a list wait with it and fail when it is
	// closed; what is sent on the next connection before the next list passes. TLS leaves no other
	// way: no part of a connection can be dropped. Connections are closed when the stall is over.
	Stall Kind = "stall"
)

// Direction is one of the two that a connection has, from the point of view of the client.
type Direction string

// The directions.
const (
	Both     Direction = ""
	Requests Direction = "requests"
	Answers  Direction = "answers"
)

// maxDelay bounds a delay. Use a cut for a longer one.
const maxDelay = 10 * time.Minute

// Fault is the effect of a proxy on its connections. The zero value is no fault.
type Fault struct {
	Kind Kind `json:"kind,omitempty"`
	// Only restricts a cut, delay or limit to one direction. With Answers cut, requests take effect
	// and are not answered.
	Only Direction `json:"only,omitempty"`
	// DelayMillis is more than 0 for a delay. Without Only it delays requests and answers.
	DelayMillis int64 `json:"delayMillis,omitempty"`
	// KBPerSecond is more than 0 for a limit; thousands of bytes.
	KBPerSecond int64 `json:"kbPerSecond,omitempty"`
	// AboveKB is more than 0 for a stall; thousands of bytes.
	AboveKB int64 `json:"aboveKB,omitempty"`
	// HoldMillis is for how long a stall keeps a connection that has stopped; 0: until its client
	// closes it.
	HoldMillis int64 `json:"holdMillis,omitempty"`
}

// Validate returns the errors of a fault.
func (f Fault) Validate() error {
	switch f.Kind {
	case None, Cut, Refuse, Delay, Limit, Stall:
	default:
		return fmt.Errorf("kind %q: expected cut, refuse, delay, limit, stall, or none", f.Kind)
	}
	switch f.Only {
	case Both, Requests, Answers:
	default:
		return fmt.Errorf("only %q: expected requests, answers, or nothing for both", f.Only)
	}
	if f.Only != Both && (f.Kind == None || f.Kind == Refuse || f.Kind == Stall) {
		return fmt.Errorf("only %q: a fault of kind %q has no direction", f.Only, f.Kind)
	}
	if delayed := f.Kind == Delay; delayed != (f.DelayMillis != 0) || f.DelayMillis < 0 || f.DelayMillis > maxDelay.Milliseconds() {
		return fmt.Errorf("delayMillis %d: expected 1 to %d for a delay, and 0 for anything else", f.DelayMillis, maxDelay.Milliseconds())
	}
	if limited := f.Kind == Limit; limited != (f.KBPerSecond != 0) || f.KBPerSecond < 0 {
		return fmt.Errorf("kbPerSecond %d: expected more than 0 for a limit, and 0 for anything else", f.KBPerSecond)
	}
	if stalled := f.Kind == Stall; stalled != (f.AboveKB != 0) || f.AboveKB < 0 {
		return fmt.Errorf("aboveKB %d: expected more than 0 for a stall, and 0 for anything else", f.AboveKB)
	}
	if f.HoldMillis != 0 && f.Kind != Stall || f.HoldMillis < 0 || f.HoldMillis > maxDelay.Milliseconds() {
		return fmt.Errorf("holdMillis %d: expected 0 to %d for a stall, and 0 for anything else", f.HoldMillis, maxDelay.Milliseconds())
	}
	return nil
}

// String describes a fault for people.
func (f Fault) String() string {
	text := string(f.Kind)
	switch f.Kind {
	case None:
		return "-"
	case Delay:
		text += " " + (time.Duration(f.DelayMillis) * time.Millisecond).String()
	case Limit:
		text += fmt.Sprintf(" %d kB/s", f.KBPerSecond)
	case Stall:
		text += fmt.Sprintf(" above %d kB", f.AboveKB)
		if f.HoldMillis > 0 {
			text += " for " + (time.Duration(f.HoldMillis) * time.Millisecond).String()
		}
	case Cut, Refuse:
	}
	if f.Only != Both {
		text += " (" + string(f.Only) + " only)"
	}
	return text
}

// toxic returns the toxic of the fault in one direction, in the format of toxiproxy's API; nil if
// there is none.
func (f Fault) toxic(direction Direction) []byte {
	if f.Only != Both && f.Only != direction {
		return nil
	}
	type attributes map[string]int64
	switch f.Kind {
	case Cut:
		return toxic("timeout", direction, attributes{"timeout": 0}) // 0 means no limit.
	case Delay:
		return toxic("latency", direction, attributes{"latency": f.DelayMillis})
	case Limit:
		return toxic("bandwidth", direction, attributes{"rate": f.KBPerSecond})
	case Stall:
		if direction == Answers {
			return toxic(stallType, direction, attributes{"aboveKB": f.AboveKB, "holdMillis": f.HoldMillis})
		}
	case None, Refuse:
	}
	return nil
}

// toxic encodes a toxic, which is named like its direction.
func toxic(kind string, direction Direction, attributes map[string]int64) []byte {
	stream := "downstream"
	if direction == Requests {
		stream = "upstream"
	}
	body, err := json.Marshal(map[string]any{"name": kind + "-" + string(direction), "type": kind, "stream": stream, "attributes": attributes})
	if err != nil { // Strings and numbers can be encoded.
		return nil
	}
	return body
}
