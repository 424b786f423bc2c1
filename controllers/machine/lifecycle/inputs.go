package lifecycle

import (
	"fmt"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// inputProblem is why no VM can be created now: something that has to be read first, or a failure
// that a user has to correct.
type inputProblem struct {
	read    Action
	code    driver.Code
	message string
}

func wrong(code driver.Code, format string, args ...any) inputProblem {
	return inputProblem{code: code, message: fmt.Sprintf(format, args...)}
}

// inputCheck checks one input. find returns the zero value when there is no problem.
type inputCheck struct {
	name string
	find func(World) inputProblem
}

// inputChecks find what is missing or invalid of that from which a VM is created. The first problem
// decides, so each check may rely on those before it: the class exists, and from "user data
// present" on, its Secrets do.
var inputChecks = []inputCheck{
	{"machine valid", findInvalidMachine},
	{"class decodable", findUndecodableClass},
	{"class exists", findMissingClass},
	{"class not being deleted", findDeletedClass},
	{"class valid", findInvalidClass},
	{"provider has a driver", findMissingDriver},
	{"secrets read", findUnreadSecrets},
	{"secrets exist", findMissingSecret},
	{"user data present", findMissingUserData},
	{"configuration read", findUnreadConfig},
	{"configuration present", findMissingConfig},
	{"user data small enough", findLargeUserData},
}

// checkInputs reads what the VM is created from, and reports whether it is incomplete or invalid,
// with the verdict for that.
func checkInputs(w World) (Verdict, bool) {
	for _, check := range inputChecks {
		switch is := check.find(w); {
		case is.read != "":
			return do(is.read), true
		case is.message != "":
			return failCreate(w, w.Machine.DeepCopy(), is.code, is.message), true
		}
	}
	return Verdict{}, false
}

func findInvalidMachine(w World) (none inputProblem) {
	if errs := validation.ValidateMachine(w.Machine); len(errs) > 0 {
		return wrong(driver.InvalidArgument, "the machine is invalid: %v", errs.ToAggregate())
	}
	return none
}

func findUndecodableClass(w World) (none inputProblem) {
	if w.Class.Undecodable != "" {
		return wrong(driver.InvalidArgument, "MachineClass %q is invalid and cannot be decoded: %s", w.Machine.Spec.Class.Name, w.Class.Undecodable)
	}
	return none
}

func findMissingClass(w World) (none inputProblem) {
	if w.Class.Class == nil {
		return wrong(driver.NotFound, "MachineClass %q does not exist in namespace %q; create it, or correct spec.class.name",
			w.Machine.Spec.Class.Name, w.Machine.Namespace)
	}
	return none
}

// findDeletedClass finds a class that may be gone before the VM exists. One with our finalizer
// remains until its machines are gone.
func findDeletedClass(w World) (none inputProblem) {
	if class := w.Class.Class; class.DeletionTimestamp != nil && !slices.Contains(class.Finalizers, v1alpha1.FinalizerName) {
		return wrong(driver.FailedPrecondition, "MachineClass %q is being deleted and cannot be used any more; create it again when its deletion has ended", class.Name)
	}
	return none
}

func findInvalidClass(w World) (none inputProblem) {
	if errs := validation.ValidateMachineClass(w.Class.Class); len(errs) > 0 {
		return wrong(driver.InvalidArgument, "MachineClass %q is invalid: %v", w.Class.Class.Name, errs.ToAggregate())
	}
	return none
}

func findMissingDriver(w World) (none inputProblem) {
	if w.Class.ProviderError != nil {
		return wrong(driver.InvalidArgument, "MachineClass %q: %v", w.Class.Class.Name, w.Class.ProviderError)
	}
	return none
}

func findUnreadSecrets(w World) (none inputProblem) {
	if !w.Secret.Read {
		return inputProblem{read: ReadSecret}
	}
	return none
}

func findMissingSecret(w World) (none inputProblem) {
	if w.Secret.Missing != "" {
		code, text := missingSecret(w, " or is being deleted; create it")
		return inputProblem{code: code, message: text}
	}
	return none
}

func findMissingUserData(w World) (none inputProblem) {
	if len(w.Secret.UserData) == 0 {
		return wrong(driver.InvalidArgument, "the secrets of MachineClass %q have no key %q; add it with the data that the VM boots with",
			w.Class.Class.Name, v1alpha1.SecretKeyUserData)
	}
	return none
}

// findUnreadConfig has the configuration read that the machine boots with, if the user data has a
// place for it.
func findUnreadConfig(w World) (none inputProblem) {
	if wantsConfig(w.Secret.UserData) && !w.Config.Read {
		return inputProblem{read: ReadConfig}
	}
	return none
}

func findMissingConfig(w World) (none inputProblem) {
	if wantsConfig(w.Secret.UserData) && w.Config.Problem != "" {
		return wrong(driver.FailedPrecondition, "the user data has a placeholder of machine configuration, and there is none for this machine: %s", w.Config.Problem)
	}
	return none
}

func findLargeUserData(w World) (none inputProblem) {
	if size := userDataSize(w); size > driver.MaxUserData {
		return wrong(driver.InvalidArgument, "the user data has %d bytes with its placeholders filled in, and no VM takes more than %d; "+
			"create the key %q of the secrets of MachineClass %q smaller, or have the VM fetch the rest%s",
			size, driver.MaxUserData, v1alpha1.SecretKeyUserData, w.Class.Class.Name, shareOfConfig(w))
	}
	return none
}

// shareOfConfig returns the remark on user data that is too large how much of it is machine
// configuration; "" when it has none.
func shareOfConfig(w World) string {
	if !w.Config.Read {
		return ""
	}
	without := w
	without.Config.Values = nil
	return fmt.Sprintf("; %d of the bytes are the machine configuration %s", userDataSize(w)-userDataSize(without), w.Config.Values[v1alpha1.PlaceholderMachineConfigName])
}
