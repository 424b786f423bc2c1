package v1alpha1

// Reasons of Events on MachineSets and MachineDeployments, in addition to those that are reasons of
// conditions, too. What each means is in its row below.
const (
	EventSuccessfulCreate = "SuccessfulCreate"
	EventSuccessfulDelete = "SuccessfulDelete"

	EventFrozeMachineSet   = "FrozeMachineSet"
	EventUnfrozeMachineSet = "UnfrozeMachineSet"

	EventReleased = "Released"

	EventScalingMachineSet = "ScalingMachineSet"

	EventRolloutStarted  = "RolloutStarted"
	EventRolloutComplete = "RolloutComplete"
	EventRolloutStalled  = "RolloutStalled"
	EventRolloutPaused   = "RolloutPaused"
	EventRolloutResumed  = "RolloutResumed"

	EventSelectingAll = "SelectingAll"

	EventSelectedForUpdate = "SelectedForUpdate"
	EventUpdatedInPlace    = "UpdatedInPlace"

	EventMachineConfigChanged = "MachineConfigChanged"

	EventRollback                  = "DeploymentRollback"
	EventRollbackWaits             = "DeploymentRollbackWaits"
	EventRollbackRevisionNotFound  = "DeploymentRollbackRevisionNotFound"
	EventRollbackTemplateUnchanged = "DeploymentRollbackTemplateUnchanged"
	EventRollbackRefused           = "DeploymentRollbackRefused"

	EventCircuitBreakerOpen = "CircuitBreakerOpen"
	EventReplacementResumed = "ReplacementResumed"

	EventAccountCircuitBreakerOpen = "AccountCircuitBreakerOpen"

	EventAPIServerAway = "APIServerAway"
	EventAPIServerBack = "APIServerBack"

	EventReplicaUnfit     = "ReplicaUnfit"
	EventAccountUnreached = "AccountUnreached"
)

func replicaEvents() []EventReason {
	return []EventReason{
		{
			EventReplicaUnfit, true,
			[]string{"Lease"},
			"A replica renews its session Lease and has been unable for 10 s to do its work: it cannot list the fleet's Leases, " +
				"its watch of them is silent, or the objects of its slots are not delivered. The leader emits it once for each such period.",
			"The message says what is missing; see [a replica is unfit](operations/fleet.md#a-replica-is-unfit).",
		},
		{
			EventAccountUnreached, true,
			[]string{"Lease"},
			"A cloud or a driver does not answer the replica, and answers other replicas. " +
				"The replica reports that 1 to 2 min after its first call without an answer, and the Event follows 10 s later. " +
				"The slots that need it move to the others. The leader emits it once for each such period and account.",
			"The message names a MachineClass; see [a replica does not reach a cloud](operations/fleet.md#a-replica-does-not-reach-a-cloud).",
		},
	}
}

func machineSetEvents() []EventReason {
	set := []string{"MachineSet"}
	return []EventReason{
		{
			EventSuccessfulCreate, false, set,
			"The set has created Machines. The message says how many.",
			"",
		},
		{
			EventSuccessfulDelete, false,
			[]string{"MachineSet", "MachineDeployment"},
			"The set has deleted Machines. The message says how many and which replica did it under which slot and epoch, " +
				"and names up to five of them with their Nodes, the rule and the evidence.",
			"",
		},
		{
			ReasonFailedCreate, true, set,
			"The API server refused a Machine of the set. It is emitted once, regardless of the number of attempts.",
			"The message is the API server's: a quota of the namespace, a webhook, or a template that breaks a rule.",
		},
		{
			ReasonFailedDelete, true, set,
			"The API server refused to delete a Machine of the set. It is emitted once, regardless of the number of attempts.",
			"The message is the API server's, mostly a webhook's or an admission policy's.",
		},
		{
			EventFrozeMachineSet, true, set,
			"Machines were created beyond what was ordered, and the set creates none until their number is lower. The message has the numbers.",
			"See [a MachineSet is frozen](operations/rollouts.md#a-machineset-is-frozen).",
		},
		{
			EventUnfrozeMachineSet, false, set,
			"The set no longer has too many machines, and may create machines again.",
			"",
		},
		{
			ReasonMachinesFailEarly, true, set,
			"Machines of the set fail again and again soon after their creation. The next is created 10 s after the failure of the last, " +
				"later up to 6 min after it. It is emitted once until a machine lives for 10 min.",
			"The Machines are gone: Events `SuccessfulDelete` of the MachineSet name them, and why they failed; " +
				"timeouts that are too short are one cause. A change of the spec ends the delay.",
		},
		{
			EventReleased, true,
			[]string{"MachineSet", "MachineDeployment"},
			"Machines of the set, or MachineSets of the deployment, do not match the selector, are no longer its own, and live on. " +
				"Others are created in their place. The message names them.",
			"If that was not intended, find the client that changes their labels and restore these, or delete what was released. " +
				"See [what drifts out of a selector](operations/rollouts.md#what-drifts-out-of-a-selector).",
		},
	}
}

func machineDeploymentEvents() []EventReason {
	deployment := []string{"MachineDeployment"}
	return []EventReason{
		{
			EventScalingMachineSet, false, deployment,
			"A MachineSet of the deployment gets another number of replicas.",
			"",
		},
		{
			EventRolloutStarted, false, deployment,
			"The deployment has a template that its machines do not have yet, and a rollout begins, " +
				"which creates its first machines or replaces those of earlier templates. The message has the revision. " +
				"A rollout that begins with `DeploymentRollback` has that Event instead.",
			"",
		},
		{
			EventRolloutComplete, false, deployment,
			"All machines of the deployment have its template, are available, and are as many as its replicas.",
			"",
		},
		{
			EventRolloutStalled, true, deployment,
			"A rollout makes no progress. The message has reason and message of the condition `RolloutStalled`. " +
				"It is emitted once for each reason, and again when the rollout has made progress in between.",
			"The message says what to do; see [rollouts](operations/rollouts.md#a-rollout-makes-no-progress).",
		},
		{
			EventRolloutPaused, false, deployment,
			"The deployment is paused: no machine is replaced for its template.",
			"",
		},
		{
			EventRolloutResumed, false, deployment,
			"The deployment is paused no longer.",
			"",
		},
		{
			EventSelectedForUpdate, false, deployment,
			"Nodes were selected for their update in place. The message names them.",
			"",
		},
		{
			EventUpdatedInPlace, false, deployment,
			"Machines were updated in place and now belong to the MachineSet of their new template. The message names them.",
			"",
		},
		{
			EventMachineConfigChanged, false, deployment,
			"The configuration of the MachineConfigPool that refers to the deployment was written into the template, " +
				"whose machines are updated or replaced by the strategy. The message names both.",
			"",
		},
		{
			ReasonMachineSetCreateError, true, deployment,
			"The API server refused the MachineSet of a new template. It is emitted once, regardless of the number of attempts.",
			"The message is the API server's. The condition `Progressing` is False until it accepts the set.",
		},
		{
			ReasonNoStrategy, true, deployment,
			"The deployment names no strategy, has no MachineSets, and was ignored for it before the fleet was installed. " +
				"It is not reconciled until its spec changes.",
			"Give it a strategy if you want its machines, or delete it.",
		},
	}
}

func rollbackEvents() []EventReason {
	deployment := []string{"MachineDeployment"}
	return []EventReason{
		{
			EventRollback, false, deployment,
			"The deployment has the template of an earlier revision again, as requested with `rollbackTo`, and machines are replaced.",
			"",
		},
		{
			EventRollbackWaits, true, deployment,
			"`rollbackTo` is set while the deployment is paused, and is carried out when it is resumed. " +
				"It is emitted once for each change of the spec meanwhile.",
			"Resume the deployment, or remove `rollbackTo`.",
		},
		{
			EventRollbackRevisionNotFound, true, deployment,
			"There is no MachineSet of the revision that `rollbackTo` names, and nothing was changed.",
			"The annotation `deployment.kubernetes.io/revision` of the MachineSets has the revisions. " +
				"Revisions beyond `revisionHistoryLimit` are deleted.",
		},
		{
			EventRollbackRefused, true, deployment,
			"The API server refuses the template of the revision that `rollbackTo` names, because it is older than a rule of the definitions, " +
				"and nothing was changed.",
			"Correct a copy of the template, and set it as `spec.template`.",
		},
		{
			EventRollbackTemplateUnchanged, true, deployment,
			"The deployment already has the template of the revision that `rollbackTo` names, and nothing was changed.",
			"Name another revision if another one was intended.",
		},
	}
}

func invalidEvents() []EventReason {
	parents := []string{"MachineDeployment", "MachineSet"}
	return []EventReason{
		{
			EventSelectingAll, true, parents,
			"The selector is empty, so it would match all machines, and the object is not reconciled.",
			"Give it the labels of the template.",
		},
		{
			ReasonSelectorMatchesNothing, true, parents,
			"The selector does not match the labels of the template, so its machines would not be found again, and the object is not reconciled.",
			"Correct one of the two.",
		},
		{
			ReasonInvalidClass, true, parents[1:],
			"No machine gets a VM, because of the MachineClass that the template names: it, its Secret or its provider does not exist, " +
				"or it is invalid. It is normally found out before a machine is created, and also with `replicas: 0`.",
			"The message names what is missing or invalid. It is checked again when the MachineClass changes, and within 30 s, " +
				"or 10 min once there are machines, which wait for it.",
		},
		{
			ReasonTargetUnavailable, true, parents,
			"Machines wait for the target cluster of their namespace: its Secret is missing or invalid, its API server does not answer, " +
				"or it is another cluster than before. A MachineDeployment that updates in place is not reconciled until then. " +
				"Of MachineSets it is emitted on those without a controller.",
			"The message has the reason. Correct the Secret; no restart is needed.",
		},
		{
			ReasonInvalidSpec, true, parents,
			"The spec breaks a rule, and the object is not reconciled. It is emitted once for each mistake.",
			"The message names the field.",
		},
	}
}

func replacementEvents() []EventReason {
	roots := []string{"MachineDeployment", "MachineSet"}
	return []EventReason{
		{
			EventHealthTimedOut, true,
			[]string{"Machine"},
			"The Node was unhealthy, or missing, for longer than the health timeout. The machine fails, and its MachineSet replaces it.",
			"Look at the VM before it is deleted, or have such machines [kept](operations/preserve.md).",
		},
		{
			EventCircuitBreakerOpen, true, roots,
			"Unhealthy machines are not replaced for now, because too many machines of their zone, or of their target cluster, are not Ready. " +
				"The message has the numbers. It is on a MachineSet only if the MachineSet has no controller.",
			"Look for what the machines have in common; see [Unknown](troubleshooting.md#a-machine-stays-in-unknown).",
		},
		{
			EventReplacementResumed, false, roots,
			"Unhealthy machines are replaced again.",
			"",
		},
		{
			EventAccountCircuitBreakerOpen, true, roots,
			"A cloud has refused the credentials of a class, throttled them or not answered for five machines in a row, " +
				"and is called for one machine at a time until it answers. It is on a MachineSet only if the MachineSet has no controller, " +
				"and emitted by each replica once for each such period.",
			"The message has the operation and the cloud's answer; see [the account's circuit " +
				"breaker](troubleshooting.md#the-circuit-breaker-of-an-account-is-open).",
		},
		{
			EventAPIServerAway, true, roots,
			"The API server of the target cluster, or that of the control cluster, has not answered for longer than " +
				"`--machine-safety-apiserver-statuscheck-timeout`. Until it does, no machine is created, fails, is replaced or deleted; " +
				"machines with the label `force-deletion` are. It is on a MachineSet only if the MachineSet has no controller.",
			"Repair the connection or the API server; `/debug/apiservers` has the error.",
		},
		{
			EventAPIServerBack, false, roots,
			"The API servers answer again. The health timeouts of unhealthy machines begin anew.",
			"",
		},
		{
			ReasonThresholdsIgnored, true, roots,
			"The annotation `fleet.machine.sapcloud.io/circuit-breaker` of the object or of its Namespace is invalid, " +
				"or too many different ones are in use, or the annotation `fleet.machine.sapcloud.io/max-deletions-per-hour` of its Namespace is " +
				"invalid. It is ignored; the thresholds of the Namespace, or the flags, apply.",
			"The message says what was expected; see [thresholds](operations/configure.md#thresholds-of-circuit-breakers) and [deletion " +
				"budgets](operations/configure.md#deletion-budgets).",
		},
	}
}
