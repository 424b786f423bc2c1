// Command page serves the page of the fleet with a generated fleet, for tests of the page in a
// browser: without a login, or with the token that --token has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/pagetest"
)

// access admits the bearer of one token.
type access string

// Review is page.Access's.
func (a access) Review(_ context.Context, token, _, _ string) (user string, status int, err error) {
	if token != string(a) {
		return "", http.StatusUnauthorized, nil
	}
	return "viewer", http.StatusOK, nil
}

// ReviewLogin is page.Access's.
func (a access) ReviewLogin(ctx context.Context, token, verb, path string) (user string, status int, err error) {
	return a.Review(ctx, token, verb, path)
}

func main() {
	machines := flag.Int("machines", 10_000, "machines of the generated fleet")
	token := flag.String("token", "", "the token of the login; empty means none")
	step := flag.Int("step", 0, "machines that change in each second")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := serve(ctx, *machines, *step, *token)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

// serve serves until ctx ends, and prints the URL.
func serve(ctx context.Context, machines, step int, token string) error {
	clock := clock.RealClock{} // a browser has no other
	world := pagetest.NewWorld(machines, clock.Now())
	cfg := page.Config{Source: world, Clock: clock}
	if token != "" {
		cfg.Access = access(token)
	}
	served, err := page.New(cfg)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: served, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second}
	go served.Run(ctx)
	go func() {
		ticker := clock.NewTicker(time.Second)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				_ = server.Close()
				return
			case now := <-ticker.C():
				if step > 0 {
					world.Step(i, step, now)
				}
			}
		}
	}()
	fmt.Printf("http://%s%s\n", listener.Addr(), page.Path)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
