package connection

import (
	"crypto/rand"
	"crypto/rsa"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
)

// flood is a network connection whose server sends without end.
type flood struct{ net.Conn }

func (flood) Read(p []byte) (int, error) { return len(p), nil }
func (flood) Close() error               { return nil }

// What a server sends beyond its answers is received at a bounded rate, what belongs to answers at
// any, and a connection that waits can be closed.
func TestFloodBeyondAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(access.Policy{}, access.Access{CA: certificateOf(t, &ecKey(t).PublicKey)}, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		all := c.newConns()
		flooded := all.newConn(t.Context(), flood{})
		part := make([]byte, 16<<10)
		receive := func(bytes int, bodies bool) (took time.Duration) {
			begun := time.Now()
			body := c.answeredBy(flood{})
			for n := 0; n < bytes; n += len(part) {
				if _, err := flooded.Read(part); err != nil {
					t.Fatal(err)
				}
				if bodies {
					_, _ = body.Read(part)
				}
			}
			return time.Since(begun)
		}
		if took := receive(100*overheadAtOnce, true); took != 0 {
			t.Errorf("answers were delayed by %s", took)
		}
		const seconds = 100
		if took := receive(overheadAtOnce+seconds*overheadPerSecond, false); took < (seconds-1)*time.Second || took > (seconds+1)*time.Second {
			t.Errorf("frames were received in %s, want %d s", took, seconds)
		}
		var closing sync.WaitGroup
		closing.Go(func() { _ = flooded.Close() })
		for range 10 * overheadAtOnce / len(part) {
			if _, err = flooded.Read(part); err != nil {
				break
			}
		}
		if err == nil {
			t.Error("it is read after it was closed")
		}
		closing.Wait()
	})
}

// A watch lasts while its credentials are the last or those before, and ends with Close.
func TestConnectionsAreClosedWithTheirRequests(t *testing.T) {
	var open sync.WaitGroup
	a := server(t, func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Done()
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c, err := New(access.Policy{}, a, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan string)
	watch := func(name string) {
		answer, err := get(t, c, a.Server+"?watch=true") //nolint:bodyclose // it is closed when it has ended
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			ended <- name
		}()
	}
	change := func() {
		key, err := rsa.GenerateKey(rand.Reader, minRSA)
		if err != nil {
			t.Fatal(err)
		}
		a.ClientCert, a.ClientKey = certificateOf(t, key.Public()), keyOf(key)
		if err := c.Use(a); err != nil {
			t.Fatal(err)
		}
	}
	watch("first")
	change()
	watch("second")
	change()
	if got := <-ended; got != "first" {
		t.Errorf("the %s watch ended with the second change", got)
	}
	c.Close()
	if got := <-ended; got != "second" {
		t.Errorf("the %s watch ended with Close", got)
	}
	open.Wait()
}
