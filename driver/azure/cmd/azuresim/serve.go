package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
)

const (
	// pathResources: GET shows what there is and what was ever created (→ inventory), POST creates a
	// VM (resourceToCreate).
	pathResources = "/admin/v1/resources"
	// pathStop: POST has a request wait until its client has gone (requestToStop).
	pathStop = "/admin/v1/stop"
	// syncEvery is how often VMs are started and stopped at cloudsim. It costs no request while
	// nothing changes.
	syncEvery = 100 * time.Millisecond
	// validFor is longer than a lab lives.
	validFor   = 365 * 24 * time.Hour
	headerTime = 5 * time.Second
	// maxBody bounds the body of a request of the operator.
	maxBody = 1 << 16
)

// run listens and serves until ctx ends.
func run(ctx context.Context, o options, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen for requests: %w", err)
	}
	return serve(ctx, o, listener, log)
}

// serve serves until ctx ends, and closes the listener.
func serve(ctx context.Context, o options, listener net.Listener, log *slog.Logger) error {
	defer func() { _ = listener.Close() }() // the server closes it, once it serves
	host, _, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return err
	}
	certificate, err := newCertificate(host, clock.RealClock{}.Now())
	if err != nil {
		return err
	}
	// Complete before the first connection is accepted.
	if err := os.WriteFile(o.certificate,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}), 0o600); err != nil {
		return err
	}
	cloud := azuretest.New(azuretest.Config{
		CreateTime: o.createTime, DeleteTime: o.deleteTime, WritesPerHour: o.writesPerHour, Burst: o.burst,
		Secrets: map[string]string{o.clientID: o.clientSecret},
	})
	server := &http.Server{
		Handler: handler(cloud), ReadHeaderTimeout: headerTime, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var background sync.WaitGroup
	background.Go(func() {
		tick := clock.RealClock{}.NewTicker(syncEvery)
		defer tick.Stop()
		newGuests(cloud, o, log).run(ctx, tick.C())
	})
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err = server.ServeTLS(listener, "", "")
	cancel()
	background.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve requests: %w", err)
}

// newCertificate returns a certificate for an address, signed by itself.
func newCertificate(host string, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "azuresim"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validFor),
		IPAddresses: []net.IP{net.ParseIP(host)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, nil
}

// inventory lists all resources, and the VMs that were ever created.
type inventory struct {
	Resources []azuretest.Resource `json:"resources"`
	Created   []azuretest.Resource `json:"created"`
	// Stopped reports whether the request that was to be stopped last has arrived.
	Stopped bool `json:"stopped"`
}

// requestToStop is a request to Resource Manager, by its number from now on.
type requestToStop struct {
	Number int `json:"number"`
	// After reports whether it is carried out before.
	After bool `json:"after"`
}

// resourceToCreate is a VM without network interface and disks, which does not boot.
type resourceToCreate struct {
	ID   string            `json:"id"`
	Tags map[string]string `json:"tags"`
}

// handler serves the cloud's API, and that of its operator.
func handler(cloud *azuretest.Cloud) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", cloud)
	mux.HandleFunc("GET "+pathResources, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(inventory{cloud.All(), cloud.Created(), cloud.HasCut()}) // an operator who has gone does not need it
	})
	mux.HandleFunc("POST "+pathResources, func(w http.ResponseWriter, r *http.Request) {
		var toCreate resourceToCreate
		if err := read(w, r, &toCreate); err != nil || toCreate.ID == "" {
			http.Error(w, "expected a JSON object with the id of a VM, and its tags", http.StatusBadRequest)
			return
		}
		cloud.Create(toCreate.ID, toCreate.Tags)
	})
	mux.HandleFunc("POST "+pathStop, func(w http.ResponseWriter, r *http.Request) {
		var toStop requestToStop
		if err := read(w, r, &toStop); err != nil || toStop.Number < 1 {
			http.Error(w,
				"expected a JSON object with the number of a request, from 1, and whether to stop it after its effect", http.StatusBadRequest)
			return
		}
		cloud.Stop(toStop.Number, toStop.After)
	})
	return mux
}

// read reads the body of a request of the operator.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}
