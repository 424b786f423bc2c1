package light

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"
)

// Set has the clusters of one process.
type Set struct {
	// Listen is the address at which faults are set, with PUT /clusters/NAME/fault and a Fault, a
	// cluster is replaced by an empty one, with POST /clusters/NAME/replace, and GET /clusters returns
	// the Usage by cluster and user.
	Listen   string   `json:"listen"`
	Clusters []Config `json:"clusters"`
}

// ReadSet reads a Set from a file.
func ReadSet(file string) (s Set, err error) {
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read the light clusters: %w", err)
	}
	return s, nil
}

// Run serves all clusters until ctx ends, or one fails.
func (s Set) Run(ctx context.Context, clk clock.WithTicker, log *slog.Logger) error {
	all := map[string]*Cluster{}
	for _, cfg := range s.Clusters {
		c, err := New(cfg, clk, log)
		if err != nil {
			return err
		}
		all[cfg.Name] = c
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("listen for control: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range all {
		group.Go(func() error { return c.Run(ctx) })
	}
	server := &http.Server{Handler: control(all), ReadHeaderTimeout: time.Minute}
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve control: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	return group.Wait()
}

const unknownCluster = "no light cluster has that name"

// control returns the handler by which faults are set and usage is read.
func control(all map[string]*Cluster) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /clusters", func(w http.ResponseWriter, _ *http.Request) {
		usage := map[string]map[string]Usage{}
		for name, c := range all {
			usage[name] = c.Usage()
		}
		write(w, http.StatusOK, usage)
	})
	mux.HandleFunc("POST /clusters/{name}/replace", func(w http.ResponseWriter, r *http.Request) {
		c := all[r.PathValue("name")]
		if c == nil {
			http.Error(w, unknownCluster, http.StatusNotFound)
			return
		}
		c.Replace()
	})
	mux.HandleFunc("PUT /clusters/{name}/fault", func(w http.ResponseWriter, r *http.Request) {
		c := all[r.PathValue("name")]
		var fault Fault
		switch err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&fault); {
		case c == nil:
			http.Error(w, unknownCluster, http.StatusNotFound)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			c.SetFault(fault)
		}
	})
	return mux
}
