package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/labtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that repeats every line, and records it.
type echo struct {
	listener net.Listener

	mu    sync.Mutex
	lines []string
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{listener: listener}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { e.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return e
}

func (e *echo) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		e.mu.Lock()
		e.lines = append(e.lines, strings.TrimSpace(line))
		e.mu.Unlock()
		_, _ = io.WriteString(conn, line)
	}
}

func (e *echo) received(line string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.lines, line)
}

// open returns an echo with a proxy in front of it.
func open(t *testing.T) (*Set, *echo) {
	t.Helper()
	e := newEcho(t)
	set := NewSet()
	if err := set.Open("it", "127.0.0.1:0", e.listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.CloseAll)
	return set, e
}

func fault(t *testing.T, set *Set, f Fault) Status {
	t.Helper()
	status, err := set.SetFault(t.Context(), "it", f)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// client is one connection.
type client struct {
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, set *Set) client {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", set.List()[0].Listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client{Conn: conn, lines: bufio.NewReader(conn)}
}

// ask sends a line, and returns the answer, if it arrives in time.
func (c client) ask(line string, timeout time.Duration) (string, error) {
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return "", err
	}
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	answer, err := c.lines.ReadString('\n')
	return strings.TrimSpace(answer), err
}

const (
	short = 50 * time.Millisecond
	long  = labtest.Standstill
)

func expectAnswer(t *testing.T, c client, line string) {
	t.Helper()
	if answer, err := c.ask(line, long); answer != line || err != nil {
		t.Errorf("%q is answered %q, %v", line, answer, err)
	}
}

func expectSilence(t *testing.T, c client, line string) {
	t.Helper()
	answer, err := c.ask(line, short)
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		t.Errorf("%q is answered %q, %v, want nothing", line, answer, err)
	}
}

func expectClosed(t *testing.T, c client) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(long)); err != nil {
		t.Fatal(err)
	}
	_, err := c.lines.ReadByte()
	if timeout, ok := errors.AsType[net.Error](err); err == nil || ok && timeout.Timeout() {
		t.Errorf("the connection is open: %v", err)
	}
}

func TestProxyCountsBytes(t *testing.T) {
	set, _ := open(t)
	c := dial(t, set)
	for range 3 {
		expectAnswer(t, c, "hello")
	}
	want := []Status{{Name: "it", RequestBytes: 18, AnswerBytes: 18}}
	if diff := cmp.Diff(want, set.List(), cmpopts.IgnoreFields(Status{}, "Listen", "Upstream")); diff != "" {
		t.Errorf("proxies (-want +got):\n%s", diff)
	}
}

// A cut applies to open and to new connections; the open ones end with it, and none of their data
// arrives later.
func TestCut(t *testing.T) {
	set, server := open(t)
	before := dial(t, set)
	expectAnswer(t, before, "before")
	fault(t, set, Fault{Kind: Cut})
	during := dial(t, set)
	expectSilence(t, before, "lost 1")
	expectSilence(t, during, "lost 2")
	fault(t, set, Fault{Kind: Cut}) // A second time it has no effect.
	fault(t, set, Fault{})
	expectClosed(t, before)
	expectClosed(t, during)
	expectAnswer(t, dial(t, set), "after")
	if server.received("lost 1") || server.received("lost 2") {
		t.Error("what was cut has arrived")
	}
}

// With the answers cut, requests take effect.
func TestCutAnswers(t *testing.T) {
	set, server := open(t)
	c := dial(t, set)
	fault(t, set, Fault{Kind: Cut, Only: Answers})
	expectSilence(t, c, "done")
	labtest.For(t, "the request arrives", func() bool { return server.received("done") })
	fault(t, set, Fault{Kind: Cut, Only: Requests})
	expectSilence(t, dial(t, set), "not done")
	if server.received("not done") {
		t.Error("the request has arrived")
	}
}

func TestRefuse(t *testing.T) {
	set, _ := open(t)
	c := dial(t, set)
	expectAnswer(t, c, "before")
	address := fault(t, set, Fault{Kind: Refuse}).Listen
	expectClosed(t, c)
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); err == nil {
		_ = conn.Close()
		t.Error("a connection is accepted")
	}
	fault(t, set, Fault{})
	expectAnswer(t, dial(t, set), "after")
}

// Delayed data is forwarded when the delay is over.
func TestDelay(t *testing.T) {
	set, _ := open(t)
	c := dial(t, set)
	fault(t, set, Fault{Kind: Delay, DelayMillis: 60_000, Only: Requests})
	expectSilence(t, c, "late")
	fault(t, set, Fault{})
	if err := c.SetReadDeadline(time.Now().Add(long)); err != nil {
		t.Fatal(err)
	}
	if answer, err := c.lines.ReadString('\n'); answer != "late\n" || err != nil {
		t.Errorf("after the delay: %q, %v", answer, err)
	}
	fault(t, set, Fault{Kind: Delay, DelayMillis: 20})
	started := time.Now()
	expectAnswer(t, c, "slow")
	if took := time.Since(started); took < 40*time.Millisecond {
		t.Errorf("it took %v, want 20 ms for each direction", took)
	}
}

func TestLimit(t *testing.T) {
	set, _ := open(t)
	c := dial(t, set)
	fault(t, set, Fault{Kind: Limit, KBPerSecond: 100, Only: Answers})
	started := time.Now()
	expectAnswer(t, c, strings.Repeat("x", 10_000))
	if took := time.Since(started); took < 50*time.Millisecond {
		t.Errorf("10 kB took %v, want about 100 ms", took)
	}
}

func TestRefusals(t *testing.T) {
	set, e := open(t)
	if _, err := set.SetFault(t.Context(), "other", Fault{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("an unknown proxy: %v, want %v", err, ErrUnknown)
	}
	if err := set.Open("it", "127.0.0.1:0", e.listener.Addr().String()); err == nil {
		t.Error("opened twice")
	}
	if err := set.Open("other", e.listener.Addr().String(), e.listener.Addr().String()); err == nil {
		t.Error("opened at an address that is in use")
	}
	for _, f := range []Fault{
		{Kind: "burn"},
		{Kind: Cut, Only: "sideways"},
		{Only: Answers},
		{Kind: Refuse, Only: Answers},
		{Kind: Delay},
		{Kind: Delay, DelayMillis: -1},
		{Kind: Delay, DelayMillis: 700_000},
		{Kind: Cut, DelayMillis: 1},
		{Kind: Limit},
		{Kind: Limit, KBPerSecond: -1},
		{Kind: Cut, KBPerSecond: 1},
		{Kind: Stall},
		{Kind: Stall, AboveKB: -1},
		{Kind: Stall, AboveKB: 1, Only: Answers},
		{Kind: Stall, AboveKB: 1, HoldMillis: -1},
		{Kind: Stall, AboveKB: 1, HoldMillis: 700_000},
		{Kind: Cut, AboveKB: 1},
		{Kind: Cut, HoldMillis: 1},
	} {
		if _, err := set.SetFault(t.Context(), "it", f); err == nil {
			t.Errorf("fault %+v is accepted", f)
		}
	}
}

func TestFaultString(t *testing.T) {
	var got []string
	for _, f := range []Fault{{}, {Kind: Cut}, {Kind: Cut, Only: Answers}, {Kind: Delay, DelayMillis: 1500}, {
		Kind: Limit, KBPerSecond: 64, Only: Requests,
	}, {Kind: Stall, AboveKB: 16}, {Kind: Stall, AboveKB: 16, HoldMillis: 5000}} {
		got = append(got, f.String())
	}
	want := []string{
		"-", "cut", "cut (answers only)", "delay 1.5s", "limit 64 kB/s (requests only)", "stall above 16 kB", "stall above 16 kB for 5s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}
