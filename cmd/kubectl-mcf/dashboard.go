package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
)

const (
	pagePath = "/page/"
	// pageCookie has the key of the one browser that was opened.
	pageCookie = "kubectl-mcf-dashboard"

	rightsForPage = "create pods/portforward in the fleet's namespace (role …:operator of the chart), and get " + pagePath +
		" (role …:page-reader) with a bearer token: a kubeconfig with a client certificate only needs --token"
)

func newDashboardCommand(p *program) *cobra.Command {
	var from replicaSource
	var replica string
	port, noBrowser := 0, false
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Open the page of the fleet in a browser",
		Long: help(`
Open the page of the fleet, which any replica serves, in a browser. The port of the replica's pod is forwarded to a port of this
computer, with the credentials of the kubeconfig, until the command is interrupted. Only the browser with the printed URL is served, and
only the page.`,
			rightToReadLeases, rightsForPage),
		Example: "  kubectl mcf dashboard --token \"$(kubectl create token reader)\"",
		Args:    cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			s, err := p.readFleet(cmd, observe.Scope{})
			if err != nil {
				return err
			}
			name, err := servingReplica(view.FleetOf(s), replica)
			if err != nil {
				return err
			}
			connection, err := p.replicas(cmd.Context(), from)
			if err != nil {
				return err
			}
			defer connection.close()
			if err := mayReadPage(cmd.Context(), connection, name); err != nil {
				return err
			}
			return p.servePage(cmd.Context(), connection, name, port, noBrowser)
		}),
	}
	from.declare(cmd)
	cmd.Flags().StringVar(&replica, "replica", "", "the replica that serves the page; without it the first one that lives")
	cmd.Flags().IntVar(&port, "port", 0, "the port of this computer; 0 means any")
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "only print the URL")
	return cmd
}

// servingReplica returns the replica with a name, or the first one that lives. Errors: it does not
// live.
func servingReplica(f view.Fleet, name string) (string, error) {
	var names []string
	for _, r := range f.Replicas {
		if r.Lives {
			names = append(names, r.Name)
		}
		if r.Lives && (name == "" || r.Name == name) {
			return r.Name, nil
		}
	}
	return "", fmt.Errorf("expected a replica that lives, got %q; there are %v", name, names)
}

// mayReadPage returns an error if a replica does not serve the page to this user.
func mayReadPage(ctx context.Context, from *replicas, name string) error {
	_, err := from.get(ctx, name, pagePath)
	answer, ok := errors.AsType[*answerError](err)
	switch {
	case ok && rightOf(err) != "":
		return fmt.Errorf("missing the right to %s: %w", rightOf(err), err)
	case ok && answer.code == http.StatusNotFound:
		return fmt.Errorf("the replica serves no page: it has --page=false (the value page.enabled), or an older version: %w", err)
	}
	return err
}

// servePage serves the page of a replica on this computer until ctx ends.
func (p *program) servePage(ctx context.Context, from *replicas, name string, port int, noBrowser bool) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("listen on a port of this computer, see --port: %w", err)
	}
	base, err := url.Parse(from.urls[name])
	if err != nil {
		return err
	}
	key := rand.Text()
	server := &http.Server{
		Handler: pageProxy(base, from.client.Transport, key, listener.Addr().String()), ReadHeaderTimeout: replicaTimeout,
	}
	address := fmt.Sprintf("http://%s%s?key=%s", listener.Addr(), pagePath, key)
	fmt.Fprintf(p.streams.Out, "The page of the fleet, served by %s, until this command is interrupted:\n\n  %s\n", name, address)
	if !noBrowser {
		if err := openBrowser(ctx, address); err != nil {
			fmt.Fprintf(p.streams.ErrOut, "no browser was opened: %v\n", err)
		}
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-ctx.Done():
		case <-done:
		}
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// pageProxy returns a handler that serves the page of a replica to the browser that has the key:
// other programs and sites reach a port of this computer, too.
func pageProxy(base *url.URL, transport http.RoundTripper, key, address string) http.Handler {
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			r.Out.Header.Del("Cookie")
			r.Out.Header.Del("Authorization")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the replica does not answer any more; start the command again: "+err.Error(), http.StatusBadGateway)
		},
	}
	is := func(value string) bool { return subtle.ConstantTimeCompare([]byte(value), []byte(key)) == 1 }
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pagePath, func(w http.ResponseWriter, r *http.Request) {
		cookie, err := r.Cookie(pageCookie)
		switch {
		case r.Host != address:
			http.Error(w, "expected a request to "+address, http.StatusForbidden)
		case is(r.URL.Query().Get("key")):
			http.SetCookie(w, &http.Cookie{ //nolint:gosec // HTTP of a loopback address has no secure cookies in all browsers
				Name: pageCookie, Value: key, Path: pagePath, HttpOnly: true, SameSite: http.SameSiteStrictMode,
			})
			w.Header().Set("Referrer-Policy", "no-referrer")
			http.Redirect(w, r, pagePath, http.StatusSeeOther)
		case err != nil || !is(cookie.Value):
			http.Error(w, "expected the URL that the command has printed", http.StatusForbidden)
		default:
			proxy.ServeHTTP(w, r)
		}
	})
	return mux
}

// browserTimeout is how long a program that opens a browser may take.
const browserTimeout = 10 * time.Second

// openBrowser opens a URL in the browser of the user.
func openBrowser(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, browserTimeout)
	defer cancel()
	command := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		command = []string{"open"}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	command = append(command, address)
	return exec.CommandContext(ctx, command[0], command[1:]...).Run()
}
