package check

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Servers are those that a process checks.
type Servers []*Server

// Register registers the metrics. mcm_machine_controller_frozen has the name and meaning of Machine
// Controller Manager's.
func (all Servers) Register(registerer prometheus.Registerer) {
	registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mcm_machine_controller_frozen",
		Help: "1 while an API server is away, so that decisions which depend on it wait in this replica.",
	}, func() float64 {
		frozen := 0.0
		for _, s := range all {
			frozen = max(frozen, s.away())
		}
		return frozen
	}))
	for _, s := range all {
		registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "mcf_apiserver_away", ConstLabels: prometheus.Labels{"server": s.cfg.Name},
			Help: "1 while this API server has not answered this replica for longer than --machine-safety-apiserver-statuscheck-timeout.",
		}, s.away))
	}
}

func (s *Server) away() float64 {
	if s.Fact().Away {
		return 1
	}
	return 0
}

// shown is a server on the debug page.
type shown struct {
	Server string `json:"server"`
	Away   bool   `json:"away"`
	// LastAnswer, FailingSince and Error are of checks; From and Back are those of the last outage.
	LastAnswer   time.Time `json:"lastAnswer,omitzero"`
	FailingSince time.Time `json:"failingSince,omitzero"`
	Error        string    `json:"error,omitempty"`
	From         time.Time `json:"lastOutageFrom,omitzero"`
	Back         time.Time `json:"lastOutageBack,omitzero"`
}

// ServeHTTP shows what is known of each server.
func (all Servers) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	page := make([]shown, len(all))
	for i, s := range all {
		s.mu.Lock()
		fact := s.state.Fact()
		page[i] = shown{Server: s.cfg.Name, Away: fact.Away, LastAnswer: s.state.LastAnswer(), From: fact.From, Back: fact.Back}
		page[i].FailingSince, _ = s.state.IsFailing()
		if s.last != nil {
			page[i].Error = s.last.Error()
		}
		s.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(page)
}
