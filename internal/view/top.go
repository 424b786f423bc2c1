package view

import (
	"strconv"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Top is the load of replicas.
type Top struct {
	Replicas []Load    `json:"replicas"`
	Missing  []Missing `json:"missing,omitempty"`
}

// Load is the load of a replica.
type Load struct {
	Replica

	// Machines is how many machines of the snapshot are in its slots.
	Machines int `json:"machines"`
	// Metrics of the replica; nil if they were not read.
	Metrics *Metrics `json:"metrics,omitempty"`
}

// Metrics are a part of the metrics of a replica.
type Metrics struct {
	// Version of the replica.
	Version string `json:"version,omitempty"`
	Commit  string `json:"commit,omitempty"`
	// Cores is how many cores it uses, in the time between two reads.
	Cores float64 `json:"cores"`
	// Memory is its resident memory in bytes.
	Memory float64 `json:"memory"`
	// InFlight are passes, requests and calls of drivers in flight; Waiting are keys in queues, and
	// Oldest is for how long the oldest of them has waited, in seconds.
	InFlight float64 `json:"inFlight"`
	Waiting  float64 `json:"waiting"`
	Oldest   float64 `json:"oldestSeconds"`

	cpu float64
}

// TopOf returns the load of each replica. metrics are those that were read, by replica.
func TopOf(s Snapshot, metrics map[string]Metrics) Top {
	f, top := FleetOf(s), Top{Replicas: []Load{}, Missing: s.Missing}
	machines := map[string]int{}
	for _, m := range s.Machines {
		number, err := strconv.Atoi(m.Labels[v1alpha1.LabelSlot])
		if slot, ok := f.slot(number); ok && err == nil {
			machines[slot.Session]++
		}
	}
	for _, r := range f.Replicas {
		if r.Session == "" {
			continue // it has left
		}
		load := Load{Replica: r, Machines: machines[r.Session]}
		if m, ok := metrics[r.Name]; ok {
			load.Metrics = &m
		}
		top.Replicas = append(top.Replicas, load)
	}
	return top
}

// ReadMetrics returns the metrics in the answer of /metrics, which is text.
func ReadMetrics(text string) (m Metrics) {
	for line := range strings.Lines(text) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(series, "#") {
			continue
		}
		// A value of a label may have spaces, of which the last ends the series.
		if i := strings.LastIndexByte(strings.TrimSpace(line), ' '); i > 0 {
			series, value = strings.TrimSpace(line)[:i], strings.TrimSpace(line)[i+1:]
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		name, labels, _ := strings.Cut(series, "{")
		switch name {
		case "process_cpu_seconds_total":
			m.cpu = number
		case "process_resident_memory_bytes":
			m.Memory = number
		case "mcf_in_flight":
			m.InFlight += number
		case "workqueue_depth":
			m.Waiting += number
		case "mcf_oldest_waiting_key_seconds":
			m.Oldest = max(m.Oldest, number)
		case "mcf_build_info":
			m.Version, m.Commit = labelIn(labels, "version"), labelIn(labels, "commit")
		}
	}
	return m
}

// labelIn returns the value of a label in the text between braces. Values that have commas and
// quotes are not expected.
func labelIn(labels, name string) string {
	_, rest, _ := strings.Cut(","+labels, ","+name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// Since returns the metrics with the cores that were used since earlier ones.
func (m Metrics) Since(before Metrics, took time.Duration) Metrics {
	if took > 0 && m.cpu >= before.cpu {
		m.Cores = (m.cpu - before.cpu) / took.Seconds()
	}
	return m
}

// Versions are those of the client and of each replica.
type Versions struct {
	Client   Build     `json:"client"`
	Replicas []Build   `json:"replicas,omitempty"`
	Missing  []Missing `json:"missing,omitempty"`
}

// Build is the build of a program.
type Build struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	// Differs reports whether a replica has another build than the client.
	Differs bool `json:"differs,omitempty"`
}

// VersionsOf returns the versions of a client and of replicas whose metrics were read.
func VersionsOf(client Build, s Snapshot, metrics map[string]Metrics) Versions {
	v := Versions{Client: client, Missing: s.Missing}
	for _, load := range TopOf(s, metrics).Replicas {
		b := Build{Name: load.Name, Version: "unknown"}
		if m := load.Metrics; m != nil {
			b.Version, b.Commit = m.Version, m.Commit
			b.Differs = m.Version != client.Version || m.Commit != client.Commit
		}
		v.Replicas = append(v.Replicas, b)
	}
	return v
}
