package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// Clients are clients of a server.
type Clients struct {
	Core     kubernetes.Interface
	Machines machineclient.MachineV1alpha1Interface // decodes as the fleet's does
	Configs  fleetclient.FleetV1alpha1Interface
	Metadata metadata.Interface
}

// Config returns the configuration of a client of the server that sends JSON, also for built-in
// kinds.
func (s *Server) Config() *rest.Config { return configOf(s) }

func configOf(transport http.RoundTripper) *rest.Config {
	return &rest.Config{
		Host: "http://memory", Transport: transport, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
	}
}

// ClientsThrough returns clients whose requests pass a transport.
func ClientsThrough(transport http.RoundTripper) Clients {
	config := configOf(transport)
	core, err1 := kubernetes.NewForConfig(config)
	machines, err2 := rest.RESTClientFor(decode.Config(config))
	configs, err3 := fleetclient.NewForConfig(config)
	names, err4 := metadata.NewForConfig(config)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		panic(fmt.Sprintf("clients of the API server in memory: %v", err))
	}
	return Clients{Core: core, Machines: machineclient.New(machines), Configs: configs, Metadata: names}
}

// Recording returns a server with the objects, by the clock of the process, that records its
// requests.
func Recording(objs ...Typed) *Server {
	s := New("s", clock.RealClock{}.Now)
	s.records = true
	for _, obj := range objs {
		Add(s, obj)
	}
	return s
}

// Core returns a client of the server for built-in kinds.
func (s *Server) Core() kubernetes.Interface { return s.clients().Core }

// Machines returns a client of the server for the machine API.
func (s *Server) Machines() machineclient.MachineV1alpha1Interface { return s.clients().Machines }

// Configs returns a client of the server for MachineConfigs and what belongs to them.
func (s *Server) Configs() fleetclient.FleetV1alpha1Interface { return s.clients().Configs }

// Metadata returns a client of the server for metadata.
func (s *Server) Metadata() metadata.Interface { return s.clients().Metadata }

// Via is the way of a client to the server: it calls send, which sends a request, or does not, and
// returns what the client gets as the error; nil for the answer of the last request that was sent.
type Via func(r Request, send func() error) error

// Via returns clients of the server all of whose requests use a way.
func (s *Server) Via(via Via) Clients { return s.Late(0, via) }

// Late is Via for clients whose watches show each change so much later.
func (s *Server) Late(lag time.Duration, via Via) Clients {
	return ClientsThrough(roundTripper(func(r *http.Request) (answer *http.Response, err error) {
		q, err := requestOf(r)
		if err != nil {
			return failure(r, err)
		}
		err = via(q, func() (err error) {
			answer, err = s.serve(q) //nolint:bodyclose // the client closes it
			return err
		})
		if err != nil {
			return failure(r, err)
		}
		if events, isWatch := answer.Body.(*Events); isWatch && lag > 0 {
			events.Lag = func(at time.Time) time.Time { return at.Add(lag) }
		}
		return answer, nil
	}))
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip is http.RoundTripper's.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
