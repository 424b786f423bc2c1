package main

import "slices"

// level is where a net belongs.
type level string

const (
	// own is the level of the tests of the mutated package.
	own level = "own"
	// quick nets take about a second.
	quick level = "quick"
	// ci nets are part of make test-unit, some of them in their long form.
	ci level = "ci"
	// nightly nets are part of make nightly.
	nightly level = "nightly"
)

// net is a test binary with its arguments.
type net struct {
	name  string
	pkg   string
	level level
	args  []string
	env   []string
}

// area is a part of the code that is mutated, and the nets that should kill its mutants, in
// addition to the tests of the mutated package.
type area struct {
	name string
	// files are paths of files, or of one function of a file.
	files []string
	nets  []net
}

// areas returns what is mutated. seeds is how many worlds the nightly simulation tries, first the
// first of them.
func areas(seeds, first string) []area {
	worlds := "^(TestFaults|TestOutages|TestHandWrittenHolders)$"
	fleet := net{name: "whole fleet", pkg: "internal/replica", level: nightly, args: []string{"-seeds=100", "-test.run=^TestWholeFleet$"}}
	protocol := []net{
		{name: "shard/session/protocol", pkg: "shard/session/protocol", level: quick},
		{name: "simulation", pkg: "shard/verification/simulation", level: quick, args: []string{"-seeds=200", "-test.run=" + worlds}},
		{name: "shard/session", pkg: "shard/session", level: ci, args: []string{"-test.short"}},
		{name: "shard/assignment", pkg: "shard/assignment", level: ci},
		{name: "simulation", pkg: "shard/verification/simulation", level: ci, args: []string{"-seeds=2000", "-test.run=" + worlds}},
		fleet,
		{name: "simulation-nightly", pkg: "shard/verification/simulation", level: nightly, args: []string{
			"-seeds=" + seeds, "-first=" + first, "-test.run=" + worlds,
		}},
	}
	minutesOfFleets := "^(TestReplicasUnderFaults|TestSlotsThatDoNotOpenGoToOthers|TestAReplicaThatCannotAcquireIsTriedLessAndLessOften|" +
		"TestTheSlotsOfAReplicaThatSeesNothingGoToOthers)$"
	fence := []net{
		{name: "shard/fence", pkg: "shard/fence", level: quick},
		{name: "shard/session, what takes below a second", pkg: "shard/session", level: quick, args: []string{
			"-test.short", "-test.skip=" + minutesOfFleets,
		}},
		{name: "shard/session", pkg: "shard/session", level: ci, args: []string{"-test.short"}},
		{name: "shard/namespacelease", pkg: "shard/namespacelease", level: ci, args: []string{"-test.short"}},
		{name: "shard/slotlabel", pkg: "shard/slotlabel", level: ci, args: []string{"-test.short"}},
		{name: "shard/handback", pkg: "shard/handback", level: ci, args: []string{"-test.short"}},
		fleet,
		{name: "shard/session (long)", pkg: "shard/session", level: nightly},
		{name: "shard/slotlabel (long)", pkg: "shard/slotlabel", level: nightly},
	}
	intents := []net{
		{name: "controllers/machineset", pkg: "controllers/machineset", level: ci},
		{name: "controllers/machineset/scale", pkg: "controllers/machineset/scale", level: ci},
		{name: "controllers/machinedeployment", pkg: "controllers/machinedeployment", level: ci},
		{name: "controllers/machinedeployment/rollout", pkg: "controllers/machinedeployment/rollout", level: ci},
		{name: "controllers/remediation", pkg: "controllers/remediation", level: ci},
		{name: "controllers/machine", pkg: "controllers/machine", level: ci, args: []string{"-test.short"}},
		{name: "internal/machinesim", pkg: "internal/machinesim", level: ci},
		{name: "internal/machinesim-nightly", pkg: "internal/machinesim", level: nightly, env: []string{"RAPID_CHECKS=1000"}},
		{name: "controllers/machineset-nightly", pkg: "controllers/machineset", level: nightly, env: []string{"RAPID_CHECKS=1000"}},
	}
	trust := []net{
		{name: "controllers/machine/cloud", pkg: "controllers/machine/cloud", level: quick},
		{name: "controllers/machine/lifecycle", pkg: "controllers/machine/lifecycle", level: quick},
		{name: "e2e/simulated", pkg: "e2e/simulated", level: quick},
		{name: "controllers/machine", pkg: "controllers/machine", level: ci, args: []string{"-test.short"}},
		{name: "controllers/machineclass", pkg: "controllers/machineclass", level: ci},
	}
	return []area{
		{"protocol", protocolFiles(), protocol},
		{"fence", []string{
			"shard/fence/fence.go", "shard/fence/ownershipstate.go", "shard/fence/gate.go", "shard/fence/transport.go", "shard/fence/drivers.go",
			"shard/session/replica.go:Replica.carryOut", "shard/session/candidacy.go", "shard/namespacelease/policy/decide.go",
			"internal/apianswers/listhealth.go",
		}, fence},
		{"intents", []string{
			"internal/machinefacts/intents.go", "controllers/machineset/scale/progress.go", "controllers/machineset/act.go",
			"internal/ownerref/claim.go", "internal/disruption/disruptions.go", "controllers/machinedeployment/rollout/select.go",
		}, intents},
		{"trust", []string{
			"apis/machine/v1alpha1/machineclass_secrets.go", "apis/machine/v1alpha1/node_machine.go", "internal/nodeowner/nodeowner.go",
			"driver/providerid.go", "controllers/machine/lifecycle/secret.go", "controllers/machine/lifecycle/owner.go",
			"controllers/machine/lifecycle/aside.go", "controllers/machine/lifecycle/token.go", "controllers/machine/credentials/secrets.go",
			"controllers/machine/secrets.go", "controllers/machine/claims.go", "controllers/machine/namesakes.go",
			"controllers/machine/token.go:tokens.noteGone", "controllers/machine/credentials/sweep.go", "controllers/machine/aside.go",
			"controllers/machine/cloud/inflight.go", "controllers/machine/nodesync/applied.go", "controllers/machineclass/secrets.go",
			"internal/disruption/breakers.go", "internal/disruption/scope.go", "driver/check.go", "driver/httpclient/client.go",
			"driver/httpclient/endpoints.go", "e2e/simulated/find.go", "internal/pacing/rates.go",
		}, trust},
		{"accounts", []string{"shard/accounts/tracker.go"}, nil},
		cachesArea(),
		slotsArea(),
		namespacesArea(),
		reportsArea(),
		accessArea(),
		safetyArea(),
	}
}

// protocolFiles are those that decide which session may act when.
func protocolFiles() []string {
	files := []string{
		"membership/own.go", "membership/renew.go", "membership/start.go", "membership/others.go", "membership/fitness.go",
		"shard/assignment/assign.go",
	}
	for _, name := range []string{
		"ability.go", "acquire.go", "activation.go", "agenda.go", "assignments.go", "doubt.go", "holder.go", "leader.go",
		"observer.go", "outbox.go", "proof.go", "renewal.go", "reporting.go", "slot.go", "table.go",
		"session.go:Session.decideSlots", "session.go:Session.decideSlot", "session.go:Session.decideLeave",
		"session.go:Session.handleReply", "session.go:Session.handleReread", "session.go:Session.handleIdle",
		"session.go:Session.MayLead",
	} {
		files = append(files, "shard/session/protocol/"+name)
	}
	return files
}

// cachesArea returns what caches the objects of slots.
func cachesArea() area {
	const dir = "shard/slotcache/"
	return area{"caches", []string{dir + "classes.go", dir + "grant.go", dir + "kind.go", dir + "set.go", "shard/assignment/weights.go"}, nil}
}

// slotsArea returns what decides which slot an object is labeled with, and by which replica, and
// when it may be reconciled.
func slotsArea() area {
	const pkg = "shard/slotlabel"
	return area{"slots", []string{
		pkg + "/policy/object.go", pkg + "/policy/offer.go", pkg + "/policy/tree.go",
		pkg + "/admission.go", pkg + "/labeler.go", pkg + "/read.go", pkg + "/refused.go", pkg + "/suspects.go", pkg + "/waits.go",
		pkg + "/watch.go", pkg + "/write.go",
	}, []net{
		{name: pkg + ", without worlds", pkg: pkg, level: quick, args: []string{"-test.short", "-test.skip=^TestEveryTreeFitsInTheEnd$"}},
		{name: pkg, pkg: pkg, level: ci, args: []string{"-test.short"}},
	}}
}

// namespacesArea returns what acquires and releases the Leases of namespaces.
func namespacesArea() area {
	const pkg = "shard/namespacelease"
	return area{"namespaces", []string{pkg + "/namespacelease.go", pkg + "/reporter.go"}, []net{
		{name: pkg + ", without worlds", pkg: pkg, level: quick, args: []string{
			"-test.short", "-test.skip=^TestEveryNamespaceWithRootsIsServedInTheEnd$",
		}},
		{name: pkg, pkg: pkg, level: ci, args: []string{"-test.short"}},
	}}
}

// reportsArea returns what a session finds out about others: when slots were not served, and which
// sessions are unfit. The first net is the tests of decisions, which take no time.
func reportsArea() area {
	const pkg = "shard/session"
	return area{"reports", []string{pkg + "/holders.go:holders.seen", pkg + "/holders.go:holders.unserved", pkg + "/unfit.go"}, []net{
		{name: pkg + ", decisions", pkg: pkg, level: quick, args: []string{"-test.run=^(TestHolders.*|TestUnfit.*)$"}},
		{name: pkg, pkg: pkg, level: ci, args: []string{"-test.short"}},
	}}
}

// accessArea returns what decides which connections and requests a replica serves. Its net is the
// tests of these files, which take a second: others of the package run whole fleets.
func accessArea() area {
	const pkg = "internal/serving"
	const tests = `^Test(.*Connections.*|.*Address.*|SlowClients.*|MetricsAreServed.*|Review.*|ManyTokens.*|AReader.*)$`
	return area{"access", []string{pkg + "/connections.go", pkg + "/reviewer.go"}, []net{
		{name: pkg + ", connections and reviews", pkg: pkg, level: quick, args: []string{"-test.run=" + tests}},
	}}
}

// safetyArea returns what decides which VMs, Nodes and machines are deleted, frozen or left as they
// are, and what records it.
func safetyArea() area {
	nets := []net{
		{name: "controllers/orphans, without simulation", pkg: "controllers/orphans", level: quick, args: []string{
			"-test.short", "-test.skip=^(TestSweeps|TestBrokenRules)$",
		}},
		{name: "controllers/orphans", pkg: "controllers/orphans", level: ci, args: []string{"-test.short"}},
		{name: "internal/disruption, without landscapes", pkg: "internal/disruption", level: quick, args: []string{
			"-test.short", "-test.skip=^TestLandscape$",
		}},
		{name: "internal/disruption", pkg: "internal/disruption", level: ci},
		{name: "controllers/remediation", pkg: "controllers/remediation", level: ci},
		{name: "controllers/machine", pkg: "controllers/machine", level: ci, args: []string{"-test.short"}},
	}
	return area{"safety", []string{
		"controllers/orphans/decide/suspect.go", "controllers/orphans/decide/record.go", "controllers/orphans/decide/confirm.go",
		"controllers/orphans/decide/ledger.go", "controllers/overshoot/decide/decide.go", "controllers/overshoot/decide/counter.go",
		"controllers/unmanaged/decide/unmanaged.go", "internal/decode/pages.go", "internal/runner/rounds.go",
		"controllers/orphans/controller.go:Controller.reconcile", "controllers/orphans/controller.go:Controller.plan",
		"controllers/orphans/scopes.go", "controllers/orphans/sweep.go", "controllers/orphans/confirm.go", "controllers/orphans/act.go",
		"controllers/orphans/ledger.go", "controllers/overshoot/controller.go:Controller.round",
		"controllers/overshoot/controller.go:Controller.count", "controllers/overshoot/controller.go:Controller.act",
		"controllers/overshoot/controller.go:apply", "controllers/unmanaged/controller.go:Controller.search",
		"controllers/unmanaged/controller.go:annotate", "internal/target/reach/reach.go", "internal/target/reach/check/check.go",
		"internal/deletion/holds.go", "internal/deletion/recorder.go", "internal/deletion/receipt/receipt.go",
		"internal/deletion/receipt/reason.go", "internal/disruption/decide.go", "internal/disruption/machine.go", "internal/disruption/held.go",
		"internal/disruption/thresholds.go", "internal/disruption/allbreakers.go", "internal/disruption/reports.go",
		"internal/disruption/recorded/recorded.go", "controllers/remediation/breakers.go", "controllers/remediation/conditions.go",
		"controllers/remediation/hold.go", "controllers/remediation/controller.go:Controller.ServerChanged", "controllers/remediation/roots.go",
		"controllers/remediation/thresholds.go", "controllers/remediation/tree.go", "controllers/remediation/watch.go",
	}, nets}
}

// netsOf returns the nets of a mutant, its package's own tests first.
func (a area) netsOf(pkg string) []net {
	first := net{name: pkg, pkg: pkg, level: ci, args: []string{"-test.short"}}
	nets := slices.Clone(a.nets)
	if at := slices.IndexFunc(nets, func(n net) bool { return n.pkg == pkg && n.level != nightly }); at >= 0 {
		first = nets[at]
		nets = slices.Delete(nets, at, at+1)
	}
	first.level = own
	return append([]net{first}, nets...)
}
