package autoscaler

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
)

// entered admits a call and begins it; end is its end.
func entered(ctx context.Context, l *limits, who identity, writes bool) (end func(), err error) {
	c, err := l.admit(who, writes)
	if err != nil {
		return nil, err
	}
	done, err := c.begin(ctx)
	if err != nil {
		c.leave()
		return nil, err
	}
	return func() {
		done()
		c.leave()
	}, nil
}

func TestLimits(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	one, same, two := identity{"n", "a"}, identity{"n", "b"}, identity{"m", "a"}
	begin := func(t *testing.T, l *limits, who identity, writes bool, want string) func() {
		t.Helper()
		end, err := entered(t.Context(), l, who, writes)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %q", err, want)
		}
		return end
	}
	t.Run("calls of a namespace", func(t *testing.T) {
		l := newLimits(clock)
		for range callsInBurst {
			begin(t, l, one, false, "")()
		}
		begin(t, l, one, false, "calls a second")
		begin(t, l, same, false, "calls a second")
		begin(t, l, two, false, "")()
		clock.SetTime(clock.Now().Add(time.Second))
		for range callsPerSecond {
			begin(t, l, one, false, "")()
		}
		begin(t, l, one, false, "calls a second")
	})
	t.Run("writes of a namespace", func(t *testing.T) {
		l := newLimits(clock)
		for range writesInBurst {
			begin(t, l, one, true, "")()
		}
		begin(t, l, same, true, "changes of sizes")
		begin(t, l, one, false, "")()
	})
	t.Run("in flight", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLimits(clock)
			var last func()
			for range callsAtOnce {
				last = begin(t, l, one, false, "")
			}
			ctx, cancel := context.WithCancel(t.Context())
			var served, left atomic.Int64
			wait := func(ctx context.Context, who identity) {
				if _, err := entered(ctx, l, who, false); err != nil {
					left.Add(1)
					return
				}
				served.Add(1)
			}
			go wait(t.Context(), one)
			synctest.Wait()
			for range callsWaiting - 1 {
				go wait(ctx, same)
			}
			synctest.Wait()
			begin(t, l, one, false, "at a time")
			last()
			synctest.Wait()
			if served.Load() != 1 {
				t.Errorf("when a call has ended %d of those that wait are served, want 1", served.Load())
			}
			cancel()
			synctest.Wait()
			if n := left.Load(); n != callsWaiting-1 {
				t.Errorf("%d calls whose clients have left wait no more, want %d", n, callsWaiting-1)
			}
			if c := l.of("n"); c.inFlight != callsAtOnce || c.counts != callsAtOnce || l.inFlight != callsAtOnce {
				t.Errorf("%d, %d and %d calls in flight, want %d", c.inFlight, c.counts, l.inFlight, callsAtOnce)
			}
		})
	})
	t.Run("of clients that may do nothing", func(t *testing.T) {
		l := newLimits(clock)
		for i := range allCallsAtOnce {
			if _, err := l.admit(identity{fmt.Sprint("hostile-", i/callsAtOnce), fmt.Sprint(i)}, false); err != nil {
				t.Fatal(err)
			}
		}
		begin(t, l, two, false, "")
	})
	t.Run("of all clients", func(t *testing.T) {
		l := newLimits(clock)
		for i := range (allCallsAtOnce - sharedCalls) / callsAtOnce {
			for range callsAtOnce {
				begin(t, l, identity{fmt.Sprint("busy-", i), "a"}, false, "")
			}
		}
		begin(t, l, identity{"busy-0", "a"}, false, "of all clients")
		for i := range sharedCalls / shareOfClient {
			who := identity{fmt.Sprint("other-", i), "a"}
			for range shareOfClient {
				begin(t, l, who, false, "")
			}
			begin(t, l, who, false, "of all clients")
		}
		begin(t, l, two, false, "of all clients")
	})
}

// halfCalls begins calls whose requests never come, and returns their streams.
func halfCalls(t *testing.T, connection *grpc.ClientConn, count int) (streams []grpc.ClientStream) {
	t.Helper()
	for range count {
		s, err := connection.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true},
			externalgrpc.CloudProvider_NodeGroupDeleteNodes_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	return streams
}

// TestACallWhoseRequestNeverComesEnds: with the time-out of calls; one of a client that may not
// scale at once.
func TestACallWhoseRequestNeverComesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pool("pool", 1)...)
		connection := f.connection(f.certificateOf("n"))
		began := time.Now()
		for _, s := range halfCalls(t, connection, 2) {
			wantCode(t, "half a call", s.RecvMsg(&externalgrpc.NodeGroupDeleteNodesResponse{}), codes.DeadlineExceeded)
		}
		if took := time.Since(began); took != maxCall {
			t.Errorf("it took %s, want %s", took, maxCall)
		}
		f.revoked.Store(true)
		f.clock.SetTime(f.clock.Now().Add(reviewFresh))
		began = time.Now()
		for _, s := range halfCalls(t, connection, 2) {
			wantCode(t, "without the right", s.RecvMsg(&externalgrpc.NodeGroupDeleteNodesResponse{}), codes.PermissionDenied)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s, want none: its request is not waited for", took)
		}
	})
}
