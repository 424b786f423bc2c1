package connection

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
)

// stream is a body that repeats an event, and pauses before each part.
type stream struct {
	event string
	pause time.Duration
	at    int
}

func (s *stream) Read(p []byte) (n int, err error) {
	time.Sleep(s.pause)
	for n < len(p) {
		more := copy(p[n:], s.event[s.at:])
		n, s.at = n+more, (s.at+more)%len(s.event)
	}
	return n, nil
}

func (s *stream) Close() error { return nil }

// idle returns a connection that has had no events.
func idle() *Connection {
	return &Connection{clock: clock.RealClock{}, events: pacing.NewRates[struct{}](eventsAtOnce, time.Second/eventsPerSecond)}
}

// Two watches of a server that sends events without end are read at the rate of one connection.
func TestFloodOfEvents(t *testing.T) {
	const long = 10 * time.Second
	one := `{"object":"` + strings.Repeat("x", 9<<10) + `"}`
	empty := string(binary.BigEndian.AppendUint32(nil, 0))
	for _, tc := range []struct {
		name, event string
		isProtobuf  bool
		values      int
	}{
		{"large", one, false, 1},
		{"small", `{"a":1}`, false, 1},
		{"small in protobuf", string(binary.BigEndian.AppendUint32(nil, 3)) + "abc", true, 0},
		{"empty in protobuf", empty, true, 0},
		{"many values", `{"a":[` + strings.Repeat("{},", 500) + `{}]}`, false, 1003},
		{"many values in protobuf", string(binary.BigEndian.AppendUint32(nil, 1000)) + strings.Repeat("\x0a\x00", 500), true, 500},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, begun := idle(), time.Now()
				watches := []io.ReadCloser{}
				for range 2 {
					watches = append(watches, c.eventsOf(t.Context(), &stream{event: tc.event}, tc.isProtobuf))
				}
				part, read := make([]byte, 32<<10), 0
				most := eventsAtOnce + int(long/time.Second)*eventsPerSecond
				for time.Since(begun) < long && read < 2*most {
					for _, watch := range watches {
						n, err := watch.Read(part)
						if err != nil {
							t.Fatal(err)
						}
						read += n
					}
				}
				most = eventsAtOnce + int(time.Since(begun).Seconds()*eventsPerSecond)
				// The last part of each may be too much.
				cost := read + read/len(tc.event)*(eventBytes+tc.values*valueBytes)
				if last := 2 * (len(part) + len(part)/len(tc.event)*(eventBytes+tc.values*valueBytes)); cost > most+most/100+last || cost < most-last {
					t.Errorf("events cost %d bytes in %s, want about %d", cost, long, most)
				}
				for _, watch := range watches {
					_ = watch.Close()
				}
			})
		})
	}
}

// A list at once, and 40 events of 10 kB each second, are read as they come: 5,000 Nodes have 17.
func TestEventsAtANormalRateAreNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 25 * time.Millisecond
		event := `{"object":"` + strings.Repeat("x", 10_000) + `"}`
		source := &stream{event: event}
		watch := idle().eventsOf(t.Context(), source, false)
		defer func() { _ = watch.Close() }()
		begun, part := time.Now(), make([]byte, len(event))
		read := func(times int) {
			for range times {
				if _, err := watch.Read(part); err != nil {
					t.Fatal(err)
				}
			}
		}
		read((eventsAtOnce - 1) / (len(event) + eventBytes + valueBytes))
		if took := time.Since(begun); took != 0 {
			t.Errorf("a list took %s", took)
		}
		source.pause = pause
		const events = 2400
		read(events)
		if took := time.Since(begun); took != events*pause {
			t.Errorf("%d events took %s, want %s", events, took, events*pause)
		}
	})
}

// A watch that waits ends when it is closed, and with its request.
func TestWatchThatWaitsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ends := range []func(watch io.Closer, request context.CancelFunc){
			func(watch io.Closer, _ context.CancelFunc) { _ = watch.Close() },
			func(_ io.Closer, request context.CancelFunc) { request() },
		} {
			c := idle()
			c.events.CountTimes(struct{}{}, 100*eventsAtOnce, time.Now())
			ctx, cancel := context.WithCancel(t.Context())
			watch := c.eventsOf(ctx, &stream{event: "{}"}, false)
			ended := make(chan error, 1)
			go func() {
				_, err := watch.Read(make([]byte, 1))
				ended <- err
			}()
			synctest.Wait()
			begun := time.Now()
			ends(watch, cancel)
			if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(begun) != 0 {
				t.Errorf("ended after %s with %v", time.Since(begun), err)
			}
			cancel()
			_ = watch.Close()
		}
	})
}
