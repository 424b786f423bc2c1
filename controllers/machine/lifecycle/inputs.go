package lifecycle

import (
	"fmt"
	"slices"
	"strings"

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
		return wrong(driver.InvalidArgument, "MachineClass %q is invalid and cannot be decoded: %s",
			w.Machine.Spec.Class.Name, w.Class.Undecodable)
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
		return wrong(driver.FailedPrecondition,
			"MachineClass %q is being deleted and cannot be used any more; create it again when its deletion has ended", class.Name)
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
		return wrong(driver.FailedPrecondition,
			"the user data has a placeholder of machine configuration, and there is none for this machine: %s", w.Config.Problem)
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
	return fmt.Sprintf("; %d of the bytes are the machine configuration %s",
		userDataSize(w)-userDataSize(without), w.Config.Values[v1alpha1.PlaceholderMachineConfigName])
}

// FieldsFact contains what is known of the fields of the class' provider spec that its driver
// ignores or refuses.
type FieldsFact struct {
	// Read is false until the driver was asked.
	Read bool
	// Unreported reports whether the driver does not report them.
	Unreported bool
	// Unknown are their paths.
	Unknown []string
	// Refused reports whether the driver refuses them; if not, it ignores them.
	Refused bool
}

// concerns returns what the names of fields contain that concern the security or the price of a VM,
// in lower case. What an unknown field means is not known to its driver either, and its user may
// have misspelled it, so these are parts of words. A harmless field that has one of them is refused
// until a user allows it, which costs an annotation; one that has none is ignored, and reported.
func concerns() []string {
	return []string{
		// security
		"encr", "crypt", "secur", "kms", "customermanaged", "confidential", "trust", "attest", "integrity", "enclave", "tpm", "sevsnp", "tdx",
		"isolat", "identity", "iam", "role", "password", "credential", "secret", "certificate", "ssh", "auth", "public", "metadataoptions",
		"metadataservice", "imds", "firewall", "protect", "guest", "agent", "sourcedest",
		// price
		"price", "spot", "market", "priority", "evict", "preempt", "interrupt", "billing", "charge", "cost", "licens", "licenc", "credit",
		"reserv", "commit", "dedicated", "tenancy", ".host.", ".hostid", ".hostgroup", "ultra", "iops", "throughput", "mbps", "tier", "ephemeral",
		"diffdisk", "hibernat", "provisioningmodel", "delete", "termination",
	}
}

// concernsUser reports whether a field that a driver ignores may concern the security or the price
// of a VM.
func concernsUser(path string) bool {
	name := "." + strings.ToLower(path) + "."
	return slices.ContainsFunc(concerns(), func(part string) bool { return strings.Contains(name, part) })
}

// refusedFields returns the fields for which no VM is created from a class: those that the driver
// refuses; or those that it ignores, that concern security or price, and that no user has allowed.
func refusedFields(class *v1alpha1.MachineClass, fact FieldsFact) []string {
	if fact.Refused {
		return fact.Unknown
	}
	var allowed []string
	for path := range strings.SplitSeq(class.Annotations[v1alpha1.AnnotationAllowUnknownFields], ",") {
		allowed = append(allowed, strings.TrimSpace(path))
	}
	return slices.DeleteFunc(slices.Clone(fact.Unknown), func(path string) bool {
		return !concernsUser(path) || slices.Contains(allowed, path)
	})
}

// checkFields asks the driver which fields of the class it ignores, and reports whether no VM is
// created because of them.
func checkFields(w World) (Verdict, bool) {
	if !w.Class.Fields.Read {
		return do(CheckFields), true
	}
	refused := refusedFields(w.Class.Class, w.Class.Fields)
	if len(refused) == 0 {
		return Verdict{}, false
	}
	return failCreate(w, w.Machine.DeepCopy(), driver.InvalidArgument, refusal(w.Class.Class, w.Class.Fields, refused)), true
}

// refusal returns why no VM is created from a class, and what to do about it.
func refusal(class *v1alpha1.MachineClass, fact FieldsFact, refused []string) string {
	if fact.Refused {
		return fmt.Sprintf("no VM is created from MachineClass %q, because its driver refuses fields of providerSpec that it does not know: "+
			"%s; correct or remove them",
			class.Name, listed(refused))
	}
	return fmt.Sprintf(
		"no VM is created from MachineClass %q, because its driver would ignore fields of providerSpec that can concern security or price: %s; "+
			"correct or remove them, or allow VMs without them by the annotation %s=%s of the MachineClass",
		class.Name, listed(refused), v1alpha1.AnnotationAllowUnknownFields, strings.Join(refused, ","),
	)
}

// FieldsNote returns what is recorded on the class about the fields that its driver ignores or
// refuses, and the text of the Event about it; "" when there are none.
func FieldsNote(class *v1alpha1.MachineClass, fact FieldsFact) (note, event string) {
	switch {
	case fact.Unreported:
		return v1alpha1.UnknownFieldsUnreported, fmt.Sprintf(
			"The driver of provider %q does not report which fields of providerSpec it ignores. "+
				"Compare the fields with the documentation of the driver, above all those for security and price", class.Provider)
	case len(fact.Unknown) == 0:
		return "", ""
	}
	if fact.Refused {
		event = fmt.Sprintf("The driver of provider %q refuses fields of providerSpec that it does not know: %s; "+
			"no VM is created until they are corrected or removed",
			class.Provider, listed(fact.Unknown))
		return "refused: " + listed(fact.Unknown), event
	}
	event = fmt.Sprintf("The driver of provider %q ignores fields of providerSpec, because it does not know them or makes no use of them: %s",
		class.Provider, listed(fact.Unknown))
	if refused := refusedFields(class, fact); len(refused) > 0 {
		event += "; " + refusal(class, fact, refused)
	}
	return listed(fact.Unknown), event
}

// mostListed is how many fields are listed at most.
const mostListed = 20

// listed returns a list of fields.
func listed(paths []string) string {
	if more := len(paths) - mostListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(paths[:mostListed], ","), more)
	}
	return strings.Join(paths, ",")
}
