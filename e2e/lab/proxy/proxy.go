package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// ErrUnknown means that there is no proxy of that name.
var ErrUnknown = errors.New("unknown proxy")

// Status describes a proxy.
type Status struct {
	Name string `json:"name"`
	// Listen is the proxy's own address, Upstream that of the server behind it.
	Listen   string `json:"listen"`
	Upstream string `json:"upstream"`
	Fault    Fault  `json:"fault"`
	// RequestBytes and AnswerBytes were received since the proxy was opened, from its client and from
	// the server. Bytes that a cut has lost are included.
	RequestBytes int64 `json:"requestBytes"`
	AnswerBytes  int64 `json:"answerBytes"`
}

// Set holds proxies by name. It may be used from several goroutines.
type Set struct {
	server *toxiproxy.ApiServer // Proxies need one for its settings; it never listens.

	mu      sync.Mutex
	proxies map[string]*proxy
}

// NewSet returns an empty set.
func NewSet() *Set {
	toxics.Register(countType, new(counter))
	toxics.Register(stallType, new(stall))
	zerolog.SetGlobalLevel(zerolog.WarnLevel) // Some toxics log to their own logger.
	return &Set{
		server:  toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		proxies: map[string]*proxy{},
	}
}

// proxy is one proxy. Faults are set one after the other.
type proxy struct {
	tcp               *toxiproxy.Proxy
	requests, answers *counter
	listen, upstream  string

	changing sync.Mutex
	fault    atomic.Pointer[Fault]
	toxics   []string // of the fault
}

// Open starts a proxy. Addresses are host and port.
func (s *Set) Open(name, listen, upstream string) error {
	p := &proxy{tcp: toxiproxy.NewProxy(s.server, name, listen, upstream), upstream: upstream}
	p.fault.Store(&Fault{})
	var errs [2]error
	p.requests, errs[0] = p.count(Requests)
	p.answers, errs[1] = p.count(Answers)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.proxies[name]; known {
		return fmt.Errorf("opening proxy %q: there is one of that name", name)
	}
	if err := p.tcp.Start(); err != nil {
		return fmt.Errorf("opening proxy %q at %s: %w", name, listen, err)
	}
	p.listen = p.tcp.Listen // It has a port now, if 0 was requested.
	s.proxies[name] = p
	return nil
}

// Close ends a proxy and all its connections. It has no effect if there is no such proxy.
func (s *Set) Close(name string) {
	s.mu.Lock()
	p := s.proxies[name]
	delete(s.proxies, name)
	s.mu.Unlock()
	if p != nil {
		p.tcp.Stop()
	}
}

// CloseAll ends all proxies.
func (s *Set) CloseAll() {
	for _, p := range s.List() {
		s.Close(p.Name)
	}
}

// SetFault replaces the fault of a proxy. The end of a delay may have to wait for a
// paused process with much queued data. ErrUnknown if there is no such proxy.
func (s *Set) SetFault(ctx context.Context, name string, fault Fault) (Status, error) {
	if err := fault.Validate(); err != nil {
		return Status{}, err
	}
	s.mu.Lock()
	p, ok := s.proxies[name]
	s.mu.Unlock()
	if !ok {
		return Status{}, fmt.Errorf("proxy %q: %w", name, ErrUnknown)
	}
	if err := p.set(ctx, fault); err != nil {
		return Status{}, fmt.Errorf("proxy %q: %w", name, err)
	}
	return p.status(name), nil
}

func (p *proxy) set(ctx context.Context, fault Fault) error {
	p.changing.Lock()
	defer p.changing.Unlock()
	if fault == *p.fault.Load() {
		return nil // The connections of the new fault need not be closed.
	}
	if old := p.fault.Load().Kind; old == Cut || old == Limit || old == Stall {
		// Open connections have lost data, or would: toxiproxy drops data that a limit has delayed and
		// that is not read.
		p.tcp.Stop()
	}
	for len(p.toxics) > 0 {
		if err := p.tcp.Toxics.RemoveToxic(ctx, p.toxics[0]); err != nil {
			return fmt.Errorf("ending a fault: %w", err)
		}
		p.toxics = p.toxics[1:]
	}
	for _, direction := range []Direction{Requests, Answers} {
		body := fault.toxic(direction)
		if body == nil {
			continue
		}
		created, err := p.tcp.Toxics.AddToxicJson(bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("beginning a fault: %w", err)
		}
		p.toxics = append(p.toxics, created.Name)
	}
	p.fault.Store(&fault)
	if fault.Kind == Refuse {
		p.tcp.Stop()
		return nil
	}
	if err := p.tcp.Start(); err != nil && !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
		return fmt.Errorf("listening again: %w", err)
	}
	return nil
}

// List describes all proxies, by name.
func (s *Set) List() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Status, 0, len(s.proxies))
	for name, p := range s.proxies {
		list = append(list, p.status(name))
	}
	slices.SortFunc(list, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (p *proxy) status(name string) Status {
	return Status{
		Name: name, Listen: p.listen, Upstream: p.upstream, Fault: *p.fault.Load(),
		RequestBytes: p.requests.bytes.Load(), AnswerBytes: p.answers.bytes.Load(),
	}
}
