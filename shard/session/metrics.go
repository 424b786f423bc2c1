package session

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// Metrics of one replica's part in the fleet.
type Metrics struct {
	owned, unowned, leads, suspended             prometheus.Gauge
	imbalance, sessions, inFlight                prometheus.Gauge
	unreached                                    prometheus.Gauge
	suspensions                                  prometheus.Counter
	slots                                        prometheus.Gauge
	unownedSeconds, unopenedSeconds, rootSeconds prometheus.Counter
	handOver, takeOver                           prometheus.Histogram
	fit, unopened                                *prometheus.GaugeVec
}

// NewMetrics returns the metrics, registered.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.01, 2, 14)})
	}
	m := &Metrics{
		owned: gauge("mcf_owned_slots", "Slots that this replica holds."),
		unowned: gauge("mcf_unowned_slots",
			"Slots without a holder, or with one that has given no sign of life for as long as it may work without, "+
				"as this replica sees it: their objects are not reconciled."),
		slots: gauge("mcf_slots", "Slots of the fleet."),
		unownedSeconds: counter("mcf_unowned_slot_seconds_total",
			"For how long slots had no live holder, summed over slots, as this replica sees it: "+
				"from the last sign of life of a dead holder, or from the release, until another session holds them."),
		unopenedSeconds: counter("mcf_unopened_slot_seconds_total", "For how long this replica held slots and did not reconcile their objects, "+
			"summed over slots: their objects were not known yet, they were being handed over, or the replica was suspended and got them back."),
		leads:     gauge("mcf_leader", "1 if this replica leads the fleet."),
		suspended: gauge("mcf_suspended", "1 if this replica may begin nothing, because its fence has passed."),
		imbalance: gauge("mcf_imbalance_ratio", "Weight of the busiest replica divided by that of the average one, as this replica sees it."),
		sessions:  gauge("mcf_sessions", "Sessions that live, as this replica sees it."),
		unreached: gauge("mcf_unreached_accounts", "Accounts at clouds, and drivers, that do not answer this replica, and answer another one."),
		inFlight:  gauge("mcf_in_flight", "Passes, requests and calls of drivers that are in flight under an ownership."),
		rootSeconds: counter("mcf_unserved_root_seconds_total",
			"For how long roots were not reconciled, summed over roots: those of slots that opened here, "+
				"from when no live session held the slot until it was open. "+
				"Roots are MachineDeployments, and MachineSets and Machines without a controller."),
		suspensions: counter("mcf_suspensions_total", "How often the fence passed."),
		fit: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mcf_fit", Help: "1 if this replica can do its work, by aspect: acts (it has read all Leases, and its fence has not passed), " +
				"observes (its renewals come back through its watch), serves (the slots that it acquires open, and their objects are watched).",
		}, []string{"aspect"}),
		unopened: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mcf_unopened_slots",
			Help: "Slots that this replica holds and whose objects it does not know yet, so that they are not reconciled, " +
				"by reason: the kind of objects that was not listed, or Pending.",
		}, []string{"reason"}),
		handOver: seconds("mcf_hand_over_seconds",
			"From a slot of a live session being assigned to this replica, or being released, if that was before, to the slot being open here."),
		takeOver: seconds("mcf_take_over_seconds", "From the last sign of life of a dead session to its slot being open here."),
	}
	registerer.MustRegister(m.fit, m.unopened, m.owned, m.unowned, m.leads, m.suspended, m.imbalance, m.sessions, m.inFlight, m.unreached,
		m.suspensions, m.handOver, m.takeOver, m.slots, m.unownedSeconds, m.unopenedSeconds, m.rootSeconds)
	return m
}

// observe sets the metrics that depend on the facts of the protocol.
func (m *Metrics) observe(facts *protocol.Facts, inFlight int) {
	owned := 0
	weights := map[string]float64{}
	for _, s := range facts.Sessions {
		if s.Session == facts.Session {
			m.unreached.Set(float64(len(s.Unreached)))
		}
	}
	for _, slot := range facts.Slots {
		if slot.Owned && slot.Holder == facts.Session {
			owned++
		}
		if slot.Owned {
			weights[slot.Holder] += float64(slot.Weight)
		}
	}
	m.owned.Set(float64(owned))
	m.slots.Set(float64(len(facts.Slots)))
	m.leads.Set(number(facts.Leads))
	m.suspended.Set(number(facts.Suspended))
	m.inFlight.Set(float64(inFlight))
	live := slices.DeleteFunc(slices.Clone(facts.Sessions), func(s protocol.SessionFacts) bool { return s.Session == "" })
	m.sessions.Set(float64(len(live)))
	m.imbalance.Set(imbalance(live, weights))
}

// observeFitness sets the metrics of the session's fitness, and of its slots that are not open, by
// reason.
func (m *Metrics) observeFitness(f member.Fitness, unopened map[string]int) {
	serves := !slices.Contains(slices.Collect(maps.Values(f.Serves)), member.Failing)
	for aspect, is := range map[string]bool{"acts": f.Acts, "observes": f.Observes, "serves": serves} {
		m.fit.WithLabelValues(aspect).Set(number(is))
	}
	m.unopened.Reset()
	m.unopened.WithLabelValues(pending).Set(0) // a series at all times, so that no series means that the replica is not scraped
	for reason, count := range unopened {
		m.unopened.WithLabelValues(reason).Set(float64(count))
	}
}

// imbalance returns the weight per capacity of the busiest session, divided by the total weight per
// total capacity; 0 if there is no weight.
func imbalance(live []protocol.SessionFacts, weights map[string]float64) float64 {
	total, capacity, busiest := 0.0, 0.0, 0.0
	for _, s := range live {
		total, capacity = total+weights[s.Session], capacity+s.Capacity
		busiest = max(busiest, weights[s.Session]/s.Capacity)
	}
	if total == 0 {
		return 0
	}
	return busiest * capacity / total
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
