package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/replica"
)

// declareMachine declares the flags of a machine's life. MachineDeployments and Machines may
// override them.
func declareMachine(g *flags.Group, o *replica.MachineOptions) {
	g.Duration(&o.CreationTimeout, "machine-creation-timeout", o.CreationTimeout,
		"how long a machine may take to become a healthy Node before it has failed; 0 gives it no time at all", flags.OrZero)
	g.Duration(&o.InPlaceUpdateTimeout, "machine-inplace-update-timeout", o.InPlaceUpdateTimeout,
		"how long an update in place may take, counted from the end of the drain, before it has failed; 0 gives it no time at all", flags.OrZero)
	g.Duration(&o.PreserveTimeout, "machine-preserve-timeout", o.PreserveTimeout,
		"how long a machine is preserved; 0 ends it at once", flags.OrZero)
	g.Duration(&o.ResourceExhaustedRetry, "resource-exhausted-retry", o.ResourceExhaustedRetry,
		"wait after the cloud had no quota or capacity; 0 means 10m", flags.OrZero)
	g.List(&o.BootstrapTokenGroups, "bootstrap-token-auth-extra-groups", o.BootstrapTokenGroups,
		"groups, separated by commas, that bootstrap tokens put a joining VM into")
	g.Bool(&o.BootstrapTokenSigning, "bootstrap-token-signing", o.BootstrapTokenSigning, "let bootstrap tokens sign the ConfigMap "+
		"cluster-info, too, for VMs that discover their cluster by token, as with kubeadm join (MCM: always)")
	g.Bool(&o.CountMinReady, "count-min-ready-seconds", o.CountMinReady,
		"have a machine count as available only when it has been so for minReadySeconds; the annotation "+v1alpha1.AnnotationCountMinReady+
			" on a MachineDeployment goes before (MCM: ignores minReadySeconds)")
	g.Bool(&o.ScaleDownAnnotation, "autoscaler-scaledown-annotation-during-rollout", o.ScaleDownAnnotation,
		"keep the cluster-autoscaler from removing Nodes of a MachineDeployment while its machines are replaced")
	g.Bool(&o.ComponentsTaint, "critical-components-taint", o.ComponentsTaint,
		"add the taint "+v1alpha1.TaintCriticalComponentsNotReady+" to a Node that was updated in place; false where nothing in the target "+
			"cluster removes it, which in Gardener its resource manager does; the annotation "+v1alpha1.AnnotationComponentsTaint+
			" on a MachineDeployment goes before (MCM: always)")
}

// bootstrapGroup is the form of groups of bootstrap tokens that the API server accepts; a token
// with another one is invalid.
const bootstrapGroup = `^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`

func validateMachine(o *replica.MachineOptions) error {
	var errs []error
	for _, group := range o.BootstrapTokenGroups {
		if !regexp.MustCompile(bootstrapGroup).MatchString(group) {
			errs = append(errs,
				fmt.Errorf("--bootstrap-token-auth-extra-groups: expected groups that match %s, got %q; no VM could join with such a token, correct it",
					bootstrapGroup, group))
		}
	}
	return errors.Join(errs...)
}

// declareDrain declares the flags of emptying a Node before its VM is deleted.
func declareDrain(g *flags.Group, o *drain.Settings) {
	g.Duration(&o.Timeout, "machine-drain-timeout", o.Timeout,
		"how long the drain of a Node may take, counted from the machine's deletion, before its pods are deleted by force; 0 means at once",
		flags.OrZero)
	g.Int(&o.MaxEvictRetries, "machine-max-evict-retries", o.MaxEvictRetries, "for how long a pod that may not be evicted is tried before "+
		"it is deleted by force: 20s for each retry; with 0 it is when it was refused once", flags.OrZero)
	g.Duration(&o.DetachTimeout, "machine-pv-detach-timeout", o.DetachTimeout,
		"how long a volume may stay attached after its pods have left; 0 waits for none", flags.OrZero)
	g.Duration(&o.ReattachTimeout, "machine-pv-reattach-timeout", o.ReattachTimeout,
		"how long the next pods with volumes wait for a detached volume to be attached to another Node; 0 waits for none", flags.OrZero)
	g.Int(&o.VolumeParallelism, "drain-volume-parallelism", o.VolumeParallelism,
		"how many volumes of a Node move at a time before the next pod with volumes waits; 1 where their driver is unknown (MCM: 1)")
	g.Bool(&o.SeveralBudgets, "drain-several-pod-disruption-budgets", o.SeveralBudgets, "whether pods that several PodDisruptionBudgets "+
		"select, which the eviction API does not evict, are evicted by writing to the status of these; "+
		"that needs the right to patch poddisruptionbudgets/status. Otherwise they are reported, and deleted without grace at the drain timeout")
}

// declareSafety declares the flags of periodic checks.
func declareSafety(g *flags.Group, o *replica.SafetyOptions) {
	g.Duration(&o.OrphanVMsPeriod, "machine-safety-orphan-vms-period", o.OrphanVMsPeriod, "time between two sweeps of a namespace for VMs, "+
		"network interfaces, disks and addresses that belong to no machine; 0 switches the sweeps off", flags.OrZero)
	g.Duration(&o.OrphanVMsQuarantine, "machine-safety-orphan-vms-quarantine", o.OrphanVMsQuarantine,
		"how long something must have belonged to no machine before a later sweep deletes it; at least the period", flags.OrZero)
	g.Int(&o.MaxOrphanDeletions, "safety-max-orphan-deletions", o.MaxOrphanDeletions,
		"how many orphans of a namespace are deleted in an hour, and 10 times as many of all; where there are more, "+
			"none is deleted until a user approves it; at most "+strconv.Itoa(decide.MaxLimit), flags.OrZero)
	g.Int(&o.MaxDeletions, "safety-max-deletions-per-hour", o.MaxDeletions, "the deletion budget: how many machines of a namespace are "+
		"replaced for their health, and orphans of it deleted without an approval, in an hour; 0 means any number, at most "+
		strconv.Itoa(receipt.MaxLimit)+"; the annotation "+v1alpha1.AnnotationMaxDeletions+" on a Namespace goes before it", flags.OrZero)
	g.Bool(&o.DryRun, "safety-dry-run", o.DryRun, "report orphans without deleting them")
	g.Duration(&o.StatusCheckTimeout, "machine-safety-apiserver-statuscheck-timeout", o.StatusCheckTimeout,
		"how long an API server, of the control or the target cluster, may not answer before it is away: "+
			"no machine that depends on it is created, fails, is replaced or deleted until it answers again", flags.OrZero)
	g.Duration(&o.StatusCheckPeriod, "machine-safety-apiserver-statuscheck-period", o.StatusCheckPeriod,
		"time between two checks of each API server that answers; not less than the timeout", flags.OrZero)
	g.Int(&o.OvershootUp, "safety-up", o.OvershootUp, "how many machines more than its replicas, or than replicas and surge of its "+
		"MachineDeployment, are too many: a MachineSet that creates yet another one is frozen; 0 means 1", flags.OrZero)
	g.Int(&o.OvershootDown, "safety-down", o.OvershootDown,
		"how many machines fewer than that end the freeze; the ordered number always does", flags.OrZero)
	g.Duration(&o.OvershootPeriod, "machine-safety-overshooting-period", o.OvershootPeriod,
		"time between two counts of the machines of a namespace; 0 never counts them, and no MachineSet is frozen", flags.OrZero)
	g.String(&o.DeletionLog, "deletion-log", o.DeletionLog, "file to which a line of JSON is appended for each Machine, "+
		"VM and Node whose deletion this replica starts, - means standard output; empty means none")
}

func validateSafety(o *replica.SafetyOptions) error {
	if o.MaxOrphanDeletions > decide.MaxLimit {
		return fmt.Errorf("--safety-max-orphan-deletions: expected at most %d, got %d; approve the deletion of more",
			decide.MaxLimit, o.MaxOrphanDeletions)
	}
	if o.MaxDeletions > receipt.MaxLimit {
		return fmt.Errorf("--safety-max-deletions-per-hour: expected at most %d, got %d; 0 means any number", receipt.MaxLimit, o.MaxDeletions)
	}
	if o.StatusCheckPeriod >= o.StatusCheckTimeout {
		return nil
	}
	return fmt.Errorf("--machine-safety-apiserver-statuscheck-period: expected at least %s, "+
		"which is --machine-safety-apiserver-statuscheck-timeout, got %s; raise it or lower the timeout",
		o.StatusCheckTimeout, o.StatusCheckPeriod)
}
