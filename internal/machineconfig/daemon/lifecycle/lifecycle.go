package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/journal"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

const (
	// maxReason is the size of the annotation with the reason.
	maxReason = 2000
	// maxAttempts is how often a configuration is applied that does not work.
	maxAttempts = 2
	// drainWithin is after how long a drain that is not answered is reported as a failure; it is
	// requested further.
	drainWithin = time.Hour
	// rebootWithin is after how long a reboot that has not happened is requested again.
	rebootWithin = 10 * time.Minute
	// healthInterval is how often the health of the machine is looked at after a reboot.
	healthInterval = 2 * time.Second
	// maxRepairs is how often differing files are repaired within repairWindow. After that another
	// program is assumed to write them.
	maxRepairs   = 3
	repairWindow = time.Hour
)

// Do is the next step of the daemon.
type Do string

// The steps.
const (
	// Rest waits for a change, or for Verdict.After.
	Rest Do = "rest"
	// Fetch reads the desired configuration and plans it.
	Fetch Do = "fetch"
	// Apply applies the planned configuration.
	Apply Do = "apply"
	// Repair applies the current configuration again.
	Repair Do = "repair"
	// Act runs hooks, and commands except for a reboot.
	Act Do = "act"
	// Reboot reboots the machine.
	Reboot Do = "reboot"
	// Finish ends the open transaction with success, and Undo by restoring what was there before.
	Finish Do = "finish"
	Undo   Do = "undo"
)

// Open is a committed transaction that has not ended.
type Open struct {
	// From and Config are the names of the configurations before and after it.
	From, Config string
	// NeedsReboot reports whether it needs a reboot, and IsBooted whether the machine has booted
	// since.
	NeedsReboot, IsBooted bool
	// IsActedOn reports whether hooks and commands, all but the reboot, were run by this process.
	IsActedOn bool
	// Failed is why that could not be done; empty when nothing has failed.
	Failed string
	// Since is when this process has first seen it, after the reboot if it needs one.
	Since time.Time
}

// Target contains what is known of the desired configuration, if it is not the current one.
type Target struct {
	// IsKnown reports whether it was read.
	IsKnown bool
	// Missing is why it could not be read; empty when nothing has failed.
	Missing string
	// Refused are the parts of it that cannot be applied.
	Refused []plan.Refusal
	Digest  string
	// NeedsDrain reports whether the Node has to be drained for it.
	NeedsDrain bool
	// DrainSince is when the drain was requested first.
	DrainSince time.Time
}

// World is the input of Decide.
type World struct {
	Now time.Time
	// Desired is the annotation; empty when it is not set or not known.
	Desired string
	// Drain and Drained are the annotations of the requested and of the last carried out drain.
	Drain, Drained string
	// Current is the name of the applied configuration; empty when there is none.
	Current string
	Failure *journal.Failure
	BootID  string
	Open    *Open
	Target  Target
	// Drift has a message for each path that is not as the applied configuration requests.
	Drift []string
	// Unhealthy is why the machine does not work after a reboot; empty when it does.
	Unhealthy string
	// HealthWithin is how long that may last.
	HealthWithin time.Duration
	// Retry is when a failed step may be tried again, and Failed why it has failed; empty when none
	// has.
	Retry  time.Time
	Failed string
	// RebootSince is when this process has requested a reboot; zero when it has not.
	RebootSince time.Time
	// Repairs are the times of repairs, and RepairsDrift reports whether differing files are repaired,
	// and not only reported.
	Repairs      []time.Time
	RepairsDrift bool
	// DrainsNode reports whether a controller answers requests for drains. Without one a Node is not
	// drained.
	DrainsNode bool
}

// Report contains what the daemon writes on its Node.
type Report struct {
	Current string
	State   v1alpha1.NodeState
	Reason  string
	Drain   string
}

// Verdict is the result of Decide.
type Verdict struct {
	Do Do
	// Reason is why, for Undo.
	Reason string
	Report Report
	// After is when to decide again if nothing changes; 0 is never.
	After time.Duration
}

// Decide returns what to do next.
func Decide(w World) Verdict {
	var v Verdict
	switch {
	case w.Open != nil:
		v = w.open()
	case w.Failure != nil && w.Failure.BootID != "" && w.Failure.BootID == w.BootID:
		v = w.reboot(w.degraded(w.Failure.Reason))
	case w.Desired == "" || w.Desired == w.Current:
		v = w.settled()
	default:
		v = w.update()
	}
	v.Report.Reason = bounded.Text(v.Report.Reason, maxReason)
	return v
}

// open decides about a transaction that is committed.
func (w World) open() Verdict {
	report := w.working("verifying " + w.Open.Config)
	report.Current = w.Open.From
	switch {
	case w.Open.Failed != "":
		return Verdict{Do: Undo, Reason: w.Open.Failed, Report: report}
	case !w.Open.IsBooted && !w.Open.IsActedOn:
		return Verdict{Do: Act, Report: report}
	case !w.Open.IsBooted && w.Open.NeedsReboot:
		report.Reason = "rebooting into " + w.Open.Config
		return w.reboot(report)
	case len(w.Drift) > 0:
		return Verdict{Do: Undo, Reason: "verification: " + differences(w.Drift), Report: report}
	case w.Unhealthy == "" || w.Desired != "" && w.Desired != w.Open.Config:
		return Verdict{Do: Finish, Report: report} // another target does not wait for this one to become healthy
	case w.Now.Sub(w.Open.Since) >= w.HealthWithin:
		return Verdict{Do: Undo, Reason: fmt.Sprintf("the machine was not healthy within %s: %s", w.HealthWithin, w.Unhealthy), Report: report}
	}
	report.Reason = "waiting until the machine is healthy: " + w.Unhealthy
	return Verdict{Do: Rest, Report: report, After: healthInterval}
}

// reboot requests a reboot, and again when it does not happen.
func (w World) reboot(report Report) Verdict {
	if !w.RebootSince.IsZero() {
		if waited := w.Now.Sub(w.RebootSince); waited < rebootWithin {
			return Verdict{Do: Rest, Report: report, After: rebootWithin - waited}
		}
	}
	if v, waits := w.backsOff(); waits {
		v.Report.Current = report.Current
		return v
	}
	return Verdict{Do: Reboot, Report: report}
}

// settled decides about a machine that has its desired configuration. One without any is done, too:
// controllers see by that report that a daemon waits for the first.
func (w World) settled() Verdict {
	if len(w.Drift) > 0 {
		return w.drifted()
	}
	uncordon := v1alpha1.UncordonFor(w.Current)
	report := Report{Current: w.Current, State: v1alpha1.StateDone, Drain: w.Drain}
	if strings.HasPrefix(w.Drain, v1alpha1.DrainFor("")) {
		report.Drain = uncordon
	}
	if report.Drain != "" && w.Drained != report.Drain {
		report.State, report.Reason = v1alpha1.StateWorking, "waiting until the Node is uncordoned"
	}
	return Verdict{Do: Rest, Report: report}
}

// drifted decides about a machine whose files differ from its configuration.
func (w World) drifted() Verdict {
	report := w.degraded("files differ from the configuration: " + differences(w.Drift))
	if !w.RepairsDrift {
		return Verdict{Do: Rest, Report: report}
	}
	recent := 0
	for _, at := range w.Repairs {
		if w.Now.Sub(at) < repairWindow {
			recent++
		}
	}
	if recent >= maxRepairs {
		report.Reason = fmt.Sprintf("another program writes files of the configuration; they were repaired %d times within %s: %s",
			recent, repairWindow, differences(w.Drift))
		return Verdict{Do: Rest, Report: report}
	}
	if v, waits := w.backsOff(); waits {
		return v
	}
	return Verdict{Do: Repair, Report: report}
}

// update decides about a machine that has another configuration than desired.
func (w World) update() Verdict {
	report := w.working("applying " + w.Desired)
	if v, waits := w.backsOff(); waits {
		return v
	}
	switch {
	case w.Target.Missing != "":
		return Verdict{Do: Fetch, Report: w.degraded(w.Target.Missing)}
	case !w.Target.IsKnown:
		return Verdict{Do: Fetch, Report: report}
	case len(w.Target.Refused) > 0:
		report.State, report.Reason = v1alpha1.StateUnreconcilable, refusals(w.Target.Refused)
		return Verdict{Do: Rest, Report: report}
	case w.Failure != nil && w.Failure.ConfigDigest == w.Target.Digest && w.Failure.Attempts >= maxAttempts:
		return Verdict{Do: Rest, Report: w.degraded(fmt.Sprintf("%s was applied and undone %d times, and is not tried again: %s",
			w.Desired, w.Failure.Attempts, w.Failure.Reason))}
	}
	want := v1alpha1.DrainFor(w.Desired)
	if !w.Target.NeedsDrain || !w.DrainsNode || w.Drain == want && w.Drained == want {
		return Verdict{Do: Apply, Report: report}
	}
	report.Drain, report.Reason = want, "waiting until the Node is drained"
	waited := time.Duration(0)
	if !w.Target.DrainSince.IsZero() {
		waited = w.Now.Sub(w.Target.DrainSince)
	}
	if waited >= drainWithin {
		report.State, report.Reason = v1alpha1.StateDegraded,
			fmt.Sprintf("the Node was not drained within %s; what prevents it is in the condition Updating of its MachineConfigPool", drainWithin)
		return Verdict{Do: Rest, Report: report}
	}
	return Verdict{Do: Rest, Report: report, After: drainWithin - waited}
}

// backsOff returns the verdict of a machine whose last step has failed and is not tried again yet.
func (w World) backsOff() (Verdict, bool) {
	if w.Failed == "" || !w.Now.Before(w.Retry) {
		return Verdict{}, false
	}
	return Verdict{Do: Rest, Report: w.degraded(w.Failed), After: w.Retry.Sub(w.Now)}, true
}

// working reports progress. After a failure the report stays degraded until a success.
func (w World) working(reason string) Report {
	report := Report{Current: w.Current, State: v1alpha1.StateWorking, Reason: reason, Drain: w.Drain}
	switch {
	case w.Failed != "":
		report.State, report.Reason = v1alpha1.StateDegraded, w.Failed
	case w.Failure != nil && (w.Open != nil || w.Failure.ConfigDigest == w.Target.Digest):
		report.State, report.Reason = v1alpha1.StateDegraded, w.Failure.Reason
	}
	return report
}

func (w World) degraded(reason string) Report {
	return Report{Current: w.Current, State: v1alpha1.StateDegraded, Reason: reason, Drain: w.Drain}
}

// differences joins messages about files.
func differences(messages []string) string {
	return fmt.Sprintf("%d differ: %s", len(messages), strings.Join(messages, "; "))
}

// refusals joins the messages of refused fields.
func refusals(refused []plan.Refusal) string {
	messages := make([]string, len(refused))
	for i, r := range refused {
		messages[i] = r.Field + ": " + r.Message
	}
	return strings.Join(messages, "; ")
}
